// The user of a script's stack: an owner with plain memory; a program, whose words and bytes go through the rings of
// its area; or such a program on another machine. For tests.
#pragma once

#include <memory>
#include <string>

#include "tcp/stack/stack.h"

namespace offpath::tcp {

inline constexpr std::uint32_t script_receive_bytes = 65'536;

// Byte `position` of the stream in either direction.
[[nodiscard]] constexpr std::byte script_byte(std::uint64_t position) noexcept {
  return static_cast<std::byte>(position * 2654435761u >> 13);
}

class ScriptEnd {
 public:
  virtual ~ScriptEnd() = default;
  [[nodiscard]] virtual Owner& owner() = 0;
  virtual void serve(Stack& stack) = 0;
  virtual void react(TimeNs now) = 0;  // between receiving and sending
  // Something is on its way between the user and the stack until then; `never`: nothing is.
  [[nodiscard]] virtual TimeNs next_due() const { return never; }

  [[nodiscard]] virtual bool listen(std::uint16_t port) = 0;
  virtual void connect(std::uint16_t local_port, Endpoint remote, TimeNs now) = 0;
  // Before listen or connect: of its connections. Afterwards: of the one that it has.
  virtual void set_traffic_class(std::uint8_t traffic_class, TimeNs now) = 0;
  virtual void choose(wire::TcpCongestion congestion, TimeNs now) = 0;
  virtual void offer(std::uint64_t position, TimeNs now) = 0;
  virtual void finish(TimeNs now) = 0;
  virtual void abort(TimeNs now) = 0;
  virtual void release(TimeNs now) = 0;

  // The events that it has received.
  [[nodiscard]] virtual std::uint64_t received() = 0;
  [[nodiscard]] virtual std::uint64_t acknowledged() = 0;
  [[nodiscard]] virtual bool finished() = 0;
  [[nodiscard]] virtual bool gone() = 0;
  [[nodiscard]] virtual std::optional<FlowError> closed() = 0;
};

[[nodiscard]] std::unique_ptr<ScriptEnd> make_bare_end();
[[nodiscard]] std::unique_ptr<ScriptEnd> make_program_end();
[[nodiscard]] std::unique_ptr<ScriptEnd> make_linked_end();

}  // namespace offpath::tcp
