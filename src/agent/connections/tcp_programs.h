// Programs' TCP connections in the daemon: a device, a stack on it, and the service between the stack and the programs'
// channels. A program on this machine and the agent wake each other by the sockets of program_sockets.h. It keeps its
// connections until its last process has ended: the agent has its own mapping of their memory, so the channel that
// opened them may end earlier. A program on another machine has a relay there (tcp_relay.h), and linked_programs.h
// carries its area over the channel's link.
//
// This is core 0, on the agent's loop. Further cores (tcp.cores, tcp_core.h) have threads of their own, and learn of
// programs from this one. A program wakes them by their doorbells.
//
// Read this first in src/agent/connections, then program_sockets.h (wakes and processes), tcp_device.h (the device),
// crossing.h and tcp_core.h (several cores), tcp_slow_path.h, and for programs on other machines linked_programs.h and
// tcp_relay.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/tcp_settings.h"
#include "agent/connections/linked_programs.h"
#include "agent/connections/program_sockets.h"
#include "agent/connections/tcp_core.h"
#include "agent/connections/tcp_slow_path.h"
#include "agent/connections/tcp_status.h"
#include "base/received_fds.h"
#include "channel/agent_end.h"
#include "loop/loop.h"
#include "tcp/port/overheard_port.h"
#include "tcp/port/shared_address.h"
#include "tcp/program/tcp_service.h"
#include "tcp/stack/stage_trace.h"
#include "tcp/stack/station.h"
#include "wire/messages/tcp_messages.h"

namespace offpath::agent {

class TcpPrograms final : public loop::Poller, private ProgramSockets::Owner {
 public:
  // Opens the device, which needs privileges (tcp_device.h). The loop outlives this.
  [[nodiscard]] static Result<std::unique_ptr<TcpPrograms>> make(loop::Loop& loop, const TcpSettings& settings,
                                                                 std::shared_ptr<ReceivedFds> received, TimeNs now);
  ~TcpPrograms() override;

  // Serves the requests tcp_*, for a channel that lives until on_channel_closed.
  void on_request(channel::AgentEnd& channel, const channel::Entry& request, const tcp::TcpService::Who& who,
                  TimeNs now);
  // `ended`: the process that opened the channel has ended; other processes of the program may outlive it. Otherwise
  // the program broke the protocol.
  void on_channel_closed(std::uint64_t channel, bool ended, TimeNs now);
  // A read or write of a channel's link that this began.
  void on_transfer(std::uint64_t token, Status status, TimeNs now) {
    linked_.on_transfer(token, std::move(status), now);
  }
  // Ends the channel of a program that broke the protocol.
  std::function<void(std::uint64_t channel, Failure why)> on_ended;

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs now) override;
  [[nodiscard]] TimeNs next_deadline() const override {
    return std::min(station_->next_deadline(), slow_path_.next_deadline());
  }

  // Starts the threads of other cores, after privileges are given up.
  [[nodiscard]] Status start();
  // Answers once every core has reported; at once if there is only one.
  void ask_status(std::function<void(TcpStatus status, TimeNs now)> answer, TimeNs now);

 private:
  TcpPrograms(loop::Loop& loop, const TcpSettings& settings, std::shared_ptr<ReceivedFds> received)
      : loop_(loop),
        settings_(settings),
        received_(std::move(received)),
        service_(settings.limits, 0, settings.cores),
        sockets_(loop, *this),
        slow_path_(loop, settings.slow_path_on_host) {}
  [[nodiscard]] Status prepare(TimeNs now);
  [[nodiscard]] Status make_cores(TimeNs now);
  [[nodiscard]] Status open(channel::AgentEnd& channel, const channel::Entry& request, const tcp::TcpService::Who& who);
  [[nodiscard]] Result<std::vector<std::shared_ptr<const Fd>>> make_doorbells(ReceivedFds::User& user) const;
  // Keyed by a number of its own, not its channel's: a program may close its connections and open them again on one
  // channel, while flows of the earlier area are still ending and other cores still refer to it.
  struct Program {
    std::uint64_t channel = 0;  // that opened it
    bool has_channel = true;    // the channel still exists
    // Over a link, after its end: answers its relay when the rest of its area was fetched.
    std::function<void()> closing{};
  };

  [[nodiscard]] Status open_linked(channel::AgentEnd& channel, const wire::TcpOpen& asked, tcp::TcpService::Who who);
  [[nodiscard]] Status on_linked(channel::AgentEnd& channel, const channel::Entry& request);

  // ---- ProgramSockets::Owner
  [[nodiscard]] Status on_joined(std::uint64_t number, std::uint32_t process) override;
  void on_socket(std::uint64_t number, std::uint32_t process, std::shared_ptr<const Fd> wake) override;
  [[nodiscard]] bool on_process_ended(std::uint64_t number, std::uint32_t process) override;
  void refuse(std::uint64_t number, Failure why, TimeNs now) override;

  void leave(std::uint64_t number, TimeNs now);
  [[nodiscard]] std::optional<std::uint64_t> on_channel(
      std::uint64_t channel) const;  // the program of a channel, as long as it has one
  void react(TimeNs now);
  void wake_programs();
  bool hear_cores(TimeNs now);
  void tell_cores();
  [[nodiscard]] TcpStatus with_channels(TcpStatus status) const;

  loop::Loop& loop_;
  TcpSettings settings_;
  std::shared_ptr<ReceivedFds> received_;
  std::optional<tcp::SharedAddress> shared_address_;
  std::unique_ptr<tcp::Port> device_;
  std::vector<std::unique_ptr<tcp::Port>> other_devices_;  // until the cores take them
  std::unique_ptr<tcp::OverheardPort> overheard_port_;     // null: there is one core
  std::unique_ptr<tcp::StageTrace> trace_;                 // null: not recorded
  std::unique_ptr<tcp::TracedPort> traced_port_;           // null likewise
  std::unique_ptr<const tcp::CongestionControl> congestion_;
  tcp::TcpService service_;
  ProgramSockets sockets_;
  LinkedPrograms linked_;
  std::unique_ptr<tcp::Stack> stack_;
  std::unique_ptr<tcp::Station> station_;
  TcpSlowPath slow_path_;
  bool slow_path_worked_ = false;              // in this round
  bool told_address6_ = false;                 // the cores know whether the IPv6 address is used
  std::map<std::uint64_t, Program> programs_;  // by number
  std::uint64_t last_number_ = 0;
  std::vector<std::unique_ptr<TcpCore>> cores_;  // the cores except this one
};

}  // namespace offpath::agent
