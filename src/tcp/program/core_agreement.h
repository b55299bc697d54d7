// How the cores of an agent agree about programs' ports (core_message.h): all cores have each listener, and core 0
// grants the ports that programs name for connections. A connection begins here, once its port is decided.
#pragma once

#include <utility>
#include <vector>

#include "tcp/program/core_message.h"
#include "tcp/program/port_table.h"

namespace offpath::tcp {

class CoreAgreement {
 public:
  CoreAgreement(ServiceCore& core, PortTable& ports) noexcept : core_(core), ports_(ports) {}

  // ---- listeners, on core 0
  // The handle listens on this core. The program is told when it listens on all.
  void listen(Program& program, std::uint32_t handle, const FlowOptions& options);
  // The program is told when no core has it any more, and may use the handle again.
  void stop(Program& program, std::uint32_t handle);

  // ---- connections
  // The handle's connection begins, or waits until core 0 has decided about the port that it names.
  void connect(Program& program, std::uint32_t handle, TimeNs now);
  // The connection is gone, or was not made: its port is nobody's.
  void unclaim(Program& program, Held& held);

  [[nodiscard]] std::vector<CoreMessage> take_messages() noexcept { return std::exchange(messages_, {}); }
  [[nodiscard]] bool has_messages() const noexcept { return !messages_.empty(); }
  // Error: the program uses a handle here that listens on core 0.
  [[nodiscard]] Status on_message(const CoreMessage& message, Program& program, TimeNs now);

 private:
  void stop_here(Program& program, std::uint32_t handle);
  void ask_others(Program& program, std::uint32_t handle, CoreMessage message);
  [[nodiscard]] Status on_listener(const CoreMessage& message, Program& program);
  void on_done(Program& program, std::uint32_t handle);
  void on_claim(const CoreMessage& message, Program& program);
  void on_answer(const CoreMessage& message, Program& program, TimeNs now);
  void begin(Program& program, std::uint32_t handle, TimeNs now);

  ServiceCore& core_;
  PortTable& ports_;
  std::vector<CoreMessage> messages_;
};

}  // namespace offpath::tcp
