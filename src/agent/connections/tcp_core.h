// One more core for programs' TCP connections: a loop on a thread of its own, with a queue of the device, a stack, and
// the service between the stack and the programs' areas. Core 0 is the agent's own loop. It knows programs and
// processes (tcp_programs.h) and announces them to the other cores. All communication goes through two mailboxes, one
// each way, in order. A program wakes it by a doorbell, an eventfd that core 0 makes for the two.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "agent/config/tcp_settings.h"
#include "agent/connections/crossing.h"
#include "agent/connections/tcp_status.h"
#include "base/fd.h"
#include "loop/loop.h"
#include "tcp/program/tcp_service.h"
#include "tcp/stack/station.h"

namespace offpath::agent {

class TcpCore final : public loop::Poller {
 public:
  // Calls to core 0, made on its thread when it polls told().
  struct ToCore0 {
    std::function<void(const tcp::CoreMessage&, TimeNs now)> on_message;
    std::function<void(tcp::TcpService::Ended, TimeNs now)> on_ended;
  };
  // `core_0` and `congestion` outlive it.
  [[nodiscard]] static Result<std::unique_ptr<TcpCore>> make(std::uint32_t core, loop::Loop& core_0,
                                                             const TcpSettings& settings,
                                                             const tcp::CongestionControl& congestion,
                                                             std::unique_ptr<tcp::Port> device, ToCore0 to, TimeNs now);
  // Carries out earlier orders, then leaves.
  ~TcpCore() override;
  [[nodiscard]] Status start(std::optional<unsigned> pin);

  // ---- core 0's thread
  // `doorbell`: each write of the program to it is a wake.
  void open(std::uint64_t program, const wire::TcpAreaLayout& layout, const tcp::TcpService::Who& who,
            tcp::TcpService::Memory memory, std::shared_ptr<tcp::RingBlocks> blocks,
            std::shared_ptr<const Fd> doorbell);
  void close(std::uint64_t program);
  void add_process(std::uint64_t program, std::uint32_t process,
                   std::shared_ptr<const Fd> wake);  // replaces the descriptor of a known process
  void remove_process(std::uint64_t program, std::uint32_t process);
  void say(const tcp::CoreMessage& message);
  void settle_own(bool usable);                         // the IPv6 address, by core 0
  void overhear(const tcp::NeighbourMessage& message);  // lost if there is no room, as frames are
  void ask_status(std::function<void(TcpStatus, TimeNs now)> answer);
  [[nodiscard]] loop::Poller& told() noexcept { return told_.mailbox(); }
  bool flush() { return orders_.flush(); }

  // ---- its own
  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs now) override;
  [[nodiscard]] TimeNs next_deadline() const override { return station_.next_deadline(); }

 private:
  TcpCore(std::uint32_t core, std::unique_ptr<loop::Loop> loop, loop::Loop& core_0, const TcpSettings& settings,
          const tcp::CongestionControl& congestion, std::unique_ptr<tcp::Port> device, ToCore0 to, TimeNs now);
  void wake_programs();

  std::uint32_t core_;
  ToCore0 to_;
  std::unique_ptr<loop::Loop> loop_;
  Crossing orders_, told_;
  std::unique_ptr<tcp::Port> device_;
  tcp::TcpService service_;
  tcp::Stack stack_;
  tcp::Station station_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::shared_ptr<const Fd>> wakes_;  // by program and process
  std::map<std::uint64_t, std::shared_ptr<const Fd>> doorbells_;                        // by program
  std::thread thread_;
};

// Settings of one stack of several: bounds for all programs together are divided.
[[nodiscard]] tcp::StackOptions stack_of_core(const TcpSettings& settings, std::uint32_t core);
[[nodiscard]] tcp::PortCapabilities capabilities_of(const tcp::Port& port, const TcpSettings& settings);

}  // namespace offpath::agent
