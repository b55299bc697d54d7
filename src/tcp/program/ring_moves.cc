#include "tcp/program/ring_moves.h"

#include <algorithm>
#include <utility>

namespace offpath::tcp {

using wire::TcpWay;
namespace tcp_ring = wire::tcp_ring;
namespace event = wire::tcp_event;

namespace {
// Between two advices: the program may have no memory, or its user may have no more of the agent's.
constexpr TimeNs advise_again_ns = second_ns;
// On short paths it is the program that takes this long to be woken.
constexpr TimeNs round_trip_min_ns = millisecond_ns;
}  // namespace

Status RingMoves::begin(Program& program, Held& held, const wire::TcpCommand& command) {
  const wire::TcpAreaLayout& layout = program.area.layout();
  OFP_TRY(wire::check_tcp_ring(layout, command.handle, command.send_at, command.send_bytes));
  OFP_TRY(wire::check_tcp_ring(layout, command.handle, command.receive_at, command.receive_bytes));
  held.ring(TcpWay::out) = {command.send_at, command.send_bytes, false};
  held.ring(TcpWay::in) = {command.receive_at, command.receive_bytes, false};
  held.firsts = held.rings;
  for (const TcpWay way : {TcpWay::out, TcpWay::in})
    OFP_TRY(RingCharges::keep_for_first(program, command.handle, held.ring(way)));
  return {};
}

void RingMoves::return_all(Program& program, Held& held) {
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) {
    if (held.is_moving(way)) end(program, held, way);
    RingCharges::return_ring(program, held.ring(way));
  }
}

// Whether half of a ring passes in the time for which bytes stay there: a round trip of the path and, beyond a link,
// the time of the program's answer over it. The bytes that passed are put in relation to the time that they took. The
// pace of a quarter shows it, so that a stream in slow start, which doubles in a round trip, is not held up. But beyond
// a link a ring that bounds its stream passes all at once, so short times and small parts tell nothing.
void RingMoves::measure(const Program& program, Held& held, TcpWay way, std::uint64_t position, TimeNs now) noexcept {
  Held::Move& move = held.move(way);
  std::uint32_t& mark = held.marks[static_cast<std::size_t>(way)];
  const std::uint32_t passed = static_cast<std::uint32_t>(position) - mark, half = held.ring(way).bytes / 2;
  const bool beyond_link = static_cast<bool>(program.answer_ns);
  if (passed < (beyond_link ? half : half / 2)) return;
  const Flow* const flow = core_.stack->flow(held.id);
  if (flow == nullptr) return;
  const TimeNs took = now - move.marked_at, over_link = beyond_link ? program.answer_ns() : 0,
               stay = std::max(flow->rtt.smoothed_ns(), round_trip_min_ns) + over_link;
  if (beyond_link && took < stay / 2) return;
  mark = static_cast<std::uint32_t>(position);
  move.marked_at = now;
  const bool needs =
      static_cast<double>(passed) * static_cast<double>(stay) >= static_cast<double>(half) * static_cast<double>(took);
  if (!needs || held.is_moving(way) || held.ring(way).bytes >= wire::tcp_ring_bytes_max || now < move.advise_at) return;
  move.advised = true;
  move.advise_at = now + advise_again_ns;
  held.ring_events |= tcp_ring::of(way, tcp_ring::advised);
}

Status RingMoves::replace(Program& program, Held& held, const wire::TcpCommand& command) {
  if (command.flags > static_cast<std::uint16_t>(TcpWay::in))
    return fail(Error::protocol, "handle {}: another ring for direction {}", command.handle, command.flags);
  OFP_TRY(wire::check_tcp_ring(program.area.layout(), command.handle, command.receive_at, command.receive_bytes));
  const Held::Ring& present = held.rings[command.flags];
  return command.receive_bytes < present.bytes ? shrink(program, held, command) : grow(program, held, command);
}

void RingMoves::answer(Program& program, const wire::TcpCommand& command, std::uint32_t bits) {
  const auto way = static_cast<TcpWay>(command.flags);
  std::uint32_t& events = program.held[command.handle].ring_events;
  // An advice that the program has not seen is answered with it.
  events = (events & ~tcp_ring::of(way, tcp_ring::advised)) | tcp_ring::of(way, bits);
  program.tell(command.handle, 0);
}

Status RingMoves::grow(Program& program, Held& held, const wire::TcpCommand& command) {
  const auto way = static_cast<TcpWay>(command.flags);
  Held::Move& move = held.moves[command.flags];
  const Held::Ring ring{command.receive_at, command.receive_bytes, true}, before = held.ring(way);
  if (ring.bytes <= before.bytes || ring.at % wire::tcp_ring_block_bytes != 0)
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {} after one of {} bytes", command.handle,
                ring.bytes, ring.at, before.bytes);
  OFP_TRY(check_begin(held, way, command));
  OFP_TRY(RingCharges::lend(program, command.handle, ring));
  const auto refuse = [&]() -> Status {
    program.blocks->give_back(ring.at, ring.bytes);
    answer(program, command, tcp_ring::refused);
    return {};
  };
  if (!std::exchange(move.advised, false) || held.is_moving(way)) return refuse();
  if (!charges_.charge_larger(program, way, ring)) {
    ++core_.counters.rings_refused;
    return refuse();
  }
  ++core_.counters.rings_grown;
  move.from = command.position;
  move.before = before;
  move.advise_at = 0;
  held.ring(way) = ring;
  held.moving |= Held::bit(way);
  answer(program, command, tcp_ring::taken);
  return {};
}

// The larger ring holds nothing, so it is the program's at once. The first one was charged when the flow began.
Status RingMoves::shrink(Program& program, Held& held, const wire::TcpCommand& command) {
  const auto way = static_cast<TcpWay>(command.flags);
  Held::Ring& present = held.ring(way);
  const Held::Ring& first = held.firsts[command.flags];
  if (command.receive_at != first.at || command.receive_bytes != first.bytes)
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {} after one of {} bytes", command.handle,
                command.receive_bytes, command.receive_at, present.bytes);
  const Flow* const flow = core_.stack->flow(held.id);
  held.moves[command.flags].advised = false;
  // The program has not been told that the flow is gone, or that the ring before is free.
  if (flow == nullptr || (way == TcpWay::out && held.is_moving(way))) {
    answer(program, command, tcp_ring::refused);
    return {};
  }
  const bool is_over = flow->state == FlowState::closed;  // nothing is stored or sent any more
  const bool empty = way == TcpWay::out
                         ? command.position == held.offered && (is_over || command.position == flow->acknowledged)
                         : command.position == flow->received && (is_over || flow->allowed <= flow->received);
  if (!empty)
    return fail(Error::protocol, "handle {}: a first ring from byte {} on, and the one so far is in use, direction {}",
                command.handle, command.position, command.flags);
  if (held.is_moving(way)) end(program, held, way);  // bytes before its position have not come
  RingCharges::return_ring(program, present);
  present = first;
  ++core_.counters.rings_shrunk;
  answer(program, command, tcp_ring::taken | tcp_ring::returned);
  return {};
}

// Bytes from the position on were never in the ring so far, and earlier ones fit into it.
Status RingMoves::check_begin(const Held& held, TcpWay way, const wire::TcpCommand& command) const {
  const Flow* const flow = core_.stack->flow(held.id);
  const bool good = way == TcpWay::out ? command.position == held.offered
                                       : flow == nullptr || (command.position >= flow->allowed &&
                                                             command.position <= flow->received + held.ring(way).bytes);
  if (good) return {};
  return fail(Error::protocol, "handle {}: a larger ring from byte {} on, direction {}", command.handle,
              command.position, command.flags);
}

void RingMoves::end(Program& program, Held& held, TcpWay way) {
  held.moving &= static_cast<std::uint8_t>(~Held::bit(way));
  RingCharges::return_ring(program, held.move(way).before);
}

void RingMoves::note_allowed(Program& program, std::uint32_t handle, std::uint64_t position, TimeNs now) {
  Held& held = program.held[handle];
  measure(program, held, TcpWay::in, program.area.read_position(handle), now);
  // The program allows so much only if it has read all of the ring before.
  if (!held.is_moving(TcpWay::in) || position < held.move(TcpWay::in).from + held.ring(TcpWay::in).bytes) return;
  end(program, held, TcpWay::in);
  held.ring_events |= tcp_ring::of(TcpWay::in, tcp_ring::returned);
  program.tell(handle, event::received);
}

}  // namespace offpath::tcp
