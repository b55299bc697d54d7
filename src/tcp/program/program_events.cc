#include "tcp/program/program_events.h"

#include <algorithm>

#include "tcp/program/ring_moves.h"

namespace offpath::tcp {

using wire::TcpError;
using wire::TcpWay;
namespace event = wire::tcp_event;

// Departures come before other events: after the event, the process's number is used again.
Result<bool> ProgramEvents::write_departures(Program& program) {
  while (!program.departed.empty()) {
    wire::TcpEvent told{};
    told.handle = wire::tcp_no_handle;
    told.listener = program.departed.front();
    OFP_ASSIGN(const bool posted, program.area.post(told, ~0ull));
    if (!posted) return false;
    wakes_.add({program.number, program.departed.front()});
    program.departed.pop_front();
  }
  return true;
}

wire::TcpEvent ProgramEvents::event_of(const Program& program, std::uint32_t handle, bool is_part) const {
  constexpr std::uint8_t of_parts = event::connected | event::accepted | event::received | event::acknowledged;
  const Held& held = program.held[handle];
  wire::TcpEvent told{};
  told.what = is_part ? static_cast<std::uint8_t>((held.events & of_parts) | event::received) : held.events;
  told.error = is_part ? TcpError::none : held.error;
  told.port = held.key.local.port != 0 ? held.key.local.port : held.port;
  told.handle = handle;
  told.received = is_part ? held.told + linked_event_bytes_max : held.received;
  const bool accepted = (told.what & event::accepted) != 0;
  if (accepted) {
    told.remote_address = held.key.remote.address;
    told.remote_port = held.key.remote.port;
  } else {
    told.acknowledged = held.acknowledged;
  }
  told.listener = held.listener;
  told.shut = is_part ? 0 : held.shut;
  told.rings = held.ring_events;
  if (const Flow* const flow = held.is == Held::Is::flow ? core_.stack->flow(held.id) : nullptr; flow != nullptr) {
    told.mss = flow->mss;
    told.round_trip_us = static_cast<std::uint32_t>(std::min<TimeNs>(flow->rtt.smoothed_ns() / microsecond_ns, ~0u));
    told.window = flow->congestion.window;
    if (accepted) told.begun = flow->slow->begun;
  }
  return told;
}

Result<bool> ProgramEvents::write(Program& program) {
  bool worked = !program.departed.empty();
  OFP_ASSIGN(const bool all_departed, write_departures(program));
  if (!all_departed) return false;
  while (!program.listed.empty()) {
    const std::uint32_t handle = program.listed.front();
    Held& held = program.held[handle];
    const bool is_part = program.who.linked && held.received - held.told > linked_event_bytes_max;
    RingMoves::end_acknowledged(program, held);
    if ((held.events & event::gone) != 0 && !is_part) RingMoves::return_all(program, held);
    const wire::TcpEvent told = event_of(program, handle, is_part);
    // No process waits for an acknowledgement that leaves too little room to be called writable.
    const bool wakes = told.what != event::acknowledged || held.is_writable(held.ring(TcpWay::out).bytes);
    OFP_ASSIGN(const bool posted, program.area.post(told, wakes ? held.holders : 0));
    if (!posted) return worked;
    ++core_.counters.events;
    worked = true;
    program.listed.pop_front();
    held.told = told.received;
    held.ring_events = 0;
    if (is_part) {  // the others have their turn before the next part
      held.events = static_cast<std::uint8_t>((held.events & ~told.what) | event::received);
      program.listed.push_back(handle);
      continue;
    }
    held.listed = false;
    held.events = held.shut = 0;
    if ((told.what & event::gone) != 0) {
      program.set(held, Held::Is::free);
      held = Held();
    } else if ((told.what & event::accepted) != 0 && held.acknowledged > 0) {
      program.tell(handle, event::acknowledged);  // of a program that sends before it knows of the connection
    }
  }
  return worked;
}

}  // namespace offpath::tcp
