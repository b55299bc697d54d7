// Writes events for programs: processes that have ended, and changes of the handles that are listed (Program::tell).
#pragma once

#include "tcp/program/program_wakes.h"
#include "tcp/program/service_core.h"

namespace offpath::tcp {

class ProgramEvents {
 public:
  ProgramEvents(ServiceCore& core, ProgramWakes& wakes) noexcept : core_(core), wakes_(wakes) {}

  // Writes as many as there is room for; true: some. Error: the program has written invalid positions.
  [[nodiscard]] Result<bool> write(Program& program);

 private:
  // Beyond a link the bytes of an event cross it before the event does. Of more bytes there are several events, so that
  // the program reads the first ones while the others are on their way.
  static constexpr std::uint64_t linked_event_bytes_max = 128 << 10;

  [[nodiscard]] Result<bool> write_departures(Program& program);
  [[nodiscard]] wire::TcpEvent event_of(const Program& program, std::uint32_t handle, bool is_part) const;

  ServiceCore& core_;
  ProgramWakes& wakes_;
};

}  // namespace offpath::tcp
