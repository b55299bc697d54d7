// TCP connections of this machine's programs by another agent (tcp.device = "agent:ADDRESS"): the card has the network
// and the stack, this machine the programs. Each program's area is announced on a channel of its own to that agent,
// which reads commands and payload from it and writes events and payload to it (linked_programs.h). Only events that a
// link cannot carry pass through this process: the areas' announcement, processes that join or end, and wakes of
// sleeping processes. The memory outlives forks of the program, because it is mapped here.
//
//   process -- datagram "look" -->  this relay -- tcp_look -->  the other agent       when it sleeps
//   process <-- datagram ---------  this relay <-- wake of the link, TcpProcessLine::woken
//
// When a program has ended, its area stays until the other agent has fetched the rest: earlier commands, and how far
// the program has read each stream, which decides between FIN and RST.
//
// If the other agent ends or falls silent, the programs' connections end with an error, as with an agent that ends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/connections/owed_notices.h"
#include "agent/connections/program_sockets.h"
#include "base/received_fds.h"
#include "channel/agent_end.h"
#include "channel/host_end.h"
#include "link/address.h"
#include "link/handshake/handshake.h"
#include "loop/job_pool.h"
#include "loop/loop.h"
#include "wire/areas/tcp_area.h"

namespace offpath::agent {

struct TcpRelayOptions {
  link::Address agent;
  link::HostOptions host;
  std::size_t programs_max = 256;
  TimeNs open_within_ns = 10 * second_ns;
};

class TcpRelay final : public loop::Poller, private ProgramSockets::Owner {
 public:
  // The loop outlives this.
  TcpRelay(loop::Loop& loop, TcpRelayOptions options, std::shared_ptr<ReceivedFds> received);
  ~TcpRelay() override;

  // As in TcpPrograms.
  void on_request(channel::AgentEnd& channel, const channel::Entry& request, uid_t user, bool privileged, TimeNs now);
  void on_channel_closed(std::uint64_t channel, bool ended, TimeNs now);
  std::function<void(std::uint64_t channel, Failure why)> on_ended;

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs now) override;
  [[nodiscard]] TimeNs next_deadline() const override;

 private:
  // The other agent's end of a program's area. Made by a job, because connecting waits.
  struct Far {
    std::unique_ptr<channel::HostEnd> end;
    wire::RegionId region = 0;
    std::uint32_t cores = 1;
  };
  struct Program {
    channel::AgentEnd* channel = nullptr;  // null: it has ended
    std::uint64_t channel_number = 0;
    std::uint64_t ticket = 0;  // of the program's request, until it is answered
    std::shared_ptr<ReceivedFds::User> user;
    std::unique_ptr<Far> far;  // null: being opened
    // By process, ended ones until their numbers are used again: TcpProcessLine::woken when it was last woken.
    std::map<std::uint32_t, std::uint64_t> woken;
    OwedNotices owed;  // requests that found no room
    bool look_owed = false;
  };
  // A program that has ended.
  struct Closing {
    std::unique_ptr<Far> far;
    TimeNs until;
    std::uint64_t ticket = 0;  // 0: there was no room for the request
  };

  [[nodiscard]] Status open(channel::AgentEnd& channel, const channel::Entry& request, uid_t user, bool privileged);
  void on_opened(std::uint64_t number, std::unique_ptr<Far> far, Status status, TimeNs now);
  [[nodiscard]] Status serve(std::uint64_t number, Program& program);
  void on_far(std::uint64_t number, TimeNs now);
  void wake_processes(std::uint64_t number, Program& program);
  bool settle(Program& program);
  void leave(std::uint64_t number);
  void finish(std::uint64_t number, TimeNs now);
  [[nodiscard]] bool is_over(Closing& closing, TimeNs now) const;
  void look_at_closing(TimeNs now);
  [[nodiscard]] Program* on_channel(std::uint64_t channel, std::uint64_t& number);

  // ---- ProgramSockets::Owner
  void on_woken(std::uint64_t number) override;
  [[nodiscard]] Status on_joined(std::uint64_t number, std::uint32_t process) override;
  [[nodiscard]] bool on_process_ended(std::uint64_t number, std::uint32_t process) override;
  void refuse(std::uint64_t number, Failure why, TimeNs now) override;

  loop::Loop& loop_;
  TcpRelayOptions options_;
  std::shared_ptr<ReceivedFds> received_;
  ProgramSockets sockets_;
  std::map<std::uint64_t, Program> programs_;
  std::map<std::uint64_t, Closing> closing_;
  std::uint64_t last_number_ = 0;
  std::unique_ptr<loop::JobPool> connecting_;
};

}  // namespace offpath::agent
