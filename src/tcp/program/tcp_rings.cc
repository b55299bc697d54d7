// The rings of programs' flows: how their memory is charged, when a larger one is advised, and how another one takes
// the place of a ring (TcpCommandKind::replace). A program names the memory; here it is checked and charged. A ring
// gets larger on advice. The flow's first ring takes its place again when the program says so, which knows how long the
// flow has been idle and which others need the memory.
#include <algorithm>
#include <array>

#include "tcp/program/tcp_service.h"

namespace offpath::tcp {

namespace {

using wire::TcpWay;
namespace tcp_ring = wire::tcp_ring;
namespace event = wire::tcp_event;

constexpr std::array both_ways{TcpWay::out, TcpWay::in};
// Between two advices: the program may have no memory, or its user may have no more of the agent's.
constexpr TimeNs advise_again_ns = second_ns;
// On short paths it is the program that takes this long to be woken.
constexpr TimeNs round_trip_min_ns = millisecond_ns;

}  // namespace

// ---- charges

Status TcpService::keep_for_first(const Program& program, std::uint32_t handle, const Held::Ring& ring) {
  if (program.blocks->keep_for_first(ring.at, ring.bytes)) return {};
  return fail(Error::protocol, "handle {}: a first ring of {} bytes at {}, where a larger one is", handle, ring.bytes,
              ring.at);
}

// Of one user and of all: whether so much more may be charged. Larger rings leave an eighth to first ones, and one of
// them gets at most a sixteenth of the rest, so that the first to ask does not take all.
bool TcpService::may_charge(const Program& program, std::uint64_t bytes, RingIs is) const {
  std::uint64_t of_user = 0, of_all = 0;
  for (const auto& [number, each] : programs_) {
    of_all += each.charged_bytes;
    if (each.who.user == program.who.user) of_user += each.charged_bytes;
  }
  const auto fits = [&](std::uint64_t used, std::uint64_t most) {
    most /= cores_;
    if (is == RingIs::first) return used + bytes <= most;
    most -= most / 8;
    return used < most && bytes <= (most - used) / 16;
  };
  return fits(of_user, limits_.receive_bytes_of_user_max) && fits(of_all, limits_.receive_bytes_max);
}

bool TcpService::charge(Program& program, const Held& held) {
  const std::uint64_t cost = cost_of(program, held);
  if (cost == 0) return true;
  if (!may_charge(program, cost, RingIs::first)) return false;
  for (const TcpWay way : both_ways) pay(program, way, held.ring(way));
  return true;
}

// On one machine, the pages of a ring for sending are the program's own.
std::uint64_t TcpService::cost_of(const Program& program, TcpWay way, const Held::Ring& ring) {
  return way == TcpWay::out && !program.who.linked ? 0 : program.blocks->cost(ring.at, ring.bytes);
}

std::uint64_t TcpService::cost_of(const Program& program, const Held& held) {
  return cost_of(program, TcpWay::out, held.ring(TcpWay::out)) + cost_of(program, TcpWay::in, held.ring(TcpWay::in));
}

void TcpService::pay(Program& program, TcpWay way, const Held::Ring& ring) {
  if (way == TcpWay::out && !program.who.linked) return;
  program.charged_bytes += program.blocks->charge(ring.at, ring.bytes);
}

// The program may use the memory for another flow once it is told, and removes its pages. The agent does not: a program
// could make it wait for its file's lock. So the memory stays charged.
void TcpService::return_ring(Program& program, Held::Ring& ring) {
  if (!std::exchange(ring.lent, false)) return;
  program.blocks->give_back(ring.at, ring.bytes);
  program.lent_bytes -= ring.bytes;
}

// The flow is gone, and the program is about to be told. Until it is, its commands are checked against these rings.
void TcpService::return_rings(Program& program, Held& held) {
  for (const TcpWay way : both_ways) {
    if (held.is_moving(way)) end_move(program, held, way);
    return_ring(program, held.ring(way));
  }
}

// ---- other rings

// Called when half of a ring has passed since the last call.
void TcpService::measure(Held& held, TcpWay way, TimeNs now) noexcept {
  Held::Move& move = held.moves[static_cast<std::size_t>(way)];
  const TimeNs took = now - std::exchange(move.marked_at, now);
  const Flow* const flow = stack_->flow(held.id);
  if (flow == nullptr || held.is_moving(way) || held.ring(way).bytes >= wire::tcp_ring_bytes_max ||
      now < move.advise_at || took > std::max(flow->rtt.smoothed_ns(), round_trip_min_ns))
    return;
  move.advised = true;
  move.advise_at = now + advise_again_ns;
  held.ring_events |= tcp_ring::of(way, tcp_ring::advised);
}

Status TcpService::replace(Program& program, Held& held, const wire::TcpCommand& command) {
  if (command.flags > static_cast<std::uint16_t>(TcpWay::in))
    return fail(Error::protocol, "handle {}: another ring for direction {}", command.handle, command.flags);
  OFP_TRY(wire::check_tcp_ring(program.area.layout(), command.handle, command.receive_at, command.receive_bytes));
  const Held::Ring& present = held.rings[command.flags];
  return command.receive_bytes < present.bytes ? shrink(program, held, command) : grow(program, held, command);
}

void TcpService::answer_ring(Program& program, const wire::TcpCommand& command, std::uint32_t bits) {
  const auto way = static_cast<TcpWay>(command.flags);
  std::uint32_t& events = program.held[command.handle].ring_events;
  // An advice that the program has not seen is answered with it.
  events = (events & ~tcp_ring::of(way, tcp_ring::advised)) | tcp_ring::of(way, bits);
  tell(program, command.handle, 0);
}

Status TcpService::grow(Program& program, Held& held, const wire::TcpCommand& command) {
  const auto way = static_cast<TcpWay>(command.flags);
  Held::Move& move = held.moves[command.flags];
  const Held::Ring ring{command.receive_at, command.receive_bytes, true}, before = held.ring(way);
  if (ring.bytes <= before.bytes || ring.at % wire::tcp_ring_block_bytes != 0)
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {} after one of {} bytes", command.handle,
                ring.bytes, ring.at, before.bytes);
  OFP_TRY(check_begin(held, way, command));
  if (!program.blocks->lend(ring.at, ring.bytes))
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {}, where another one is", command.handle,
                ring.bytes, ring.at);
  const auto refuse = [&]() -> Status {
    program.blocks->give_back(ring.at, ring.bytes);
    answer_ring(program, command, tcp_ring::refused);
    return {};
  };
  if (!std::exchange(move.advised, false) || held.is_moving(way)) return refuse();
  const std::uint64_t cost = cost_of(program, way, ring);
  if (cost > 0 && !may_charge(program, cost, RingIs::larger)) {
    ++counters_.rings_refused;
    return refuse();
  }
  pay(program, way, ring);
  program.lent_bytes += ring.bytes;
  ++counters_.rings_grown;
  move.from = command.position;
  move.before = before;
  move.advise_at = 0;
  held.ring(way) = ring;
  held.moving |= Held::bit(way);
  answer_ring(program, command, tcp_ring::taken);
  return {};
}

// The larger ring holds nothing, so it is the program's at once. The first one was charged when the flow began.
Status TcpService::shrink(Program& program, Held& held, const wire::TcpCommand& command) {
  const auto way = static_cast<TcpWay>(command.flags);
  Held::Ring& present = held.ring(way);
  const Held::Ring& first = held.firsts[command.flags];
  if (command.receive_at != first.at || command.receive_bytes != first.bytes)
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {} after one of {} bytes", command.handle,
                command.receive_bytes, command.receive_at, present.bytes);
  const Flow* const flow = stack_->flow(held.id);
  held.moves[command.flags].advised = false;
  // The program has not been told that the flow is gone, or that the ring before is free.
  if (flow == nullptr || (way == TcpWay::out && held.is_moving(way))) {
    answer_ring(program, command, tcp_ring::refused);
    return {};
  }
  const bool is_over = flow->state == FlowState::closed;  // nothing is stored or sent any more
  const bool empty = way == TcpWay::out
                         ? command.position == held.offered && (is_over || command.position == flow->acknowledged)
                         : command.position == flow->received && (is_over || flow->allowed <= flow->received);
  if (!empty)
    return fail(Error::protocol, "handle {}: a first ring from byte {} on, and the one so far is in use, direction {}",
                command.handle, command.position, command.flags);
  if (held.is_moving(way)) end_move(program, held, way);  // bytes before its position have not come
  return_ring(program, present);
  present = first;
  ++counters_.rings_shrunk;
  answer_ring(program, command, tcp_ring::taken | tcp_ring::returned);
  return {};
}

// Bytes from the position on were never in the ring so far, and earlier ones fit into it.
Status TcpService::check_begin(const Held& held, TcpWay way, const wire::TcpCommand& command) const {
  const Flow* const flow = stack_->flow(held.id);
  const bool good = way == TcpWay::out ? command.position == held.offered
                                       : flow == nullptr || (command.position >= flow->allowed &&
                                                             command.position <= flow->received + held.ring(way).bytes);
  if (good) return {};
  return fail(Error::protocol, "handle {}: a larger ring from byte {} on, direction {}", command.handle,
              command.position, command.flags);
}

void TcpService::end_move(Program& program, Held& held, TcpWay way) {
  held.moving &= static_cast<std::uint8_t>(~Held::bit(way));
  return_ring(program, held.moves[static_cast<std::size_t>(way)].before);
}

void TcpService::note_allowed(Program& program, std::uint32_t handle, std::uint64_t position, TimeNs now) {
  Held& held = program.held[handle];
  if (held.passes(TcpWay::in, position)) measure(held, TcpWay::in, now);
  // The program allows so much only if it has read all of the ring before.
  if (!held.is_moving(TcpWay::in) ||
      position < held.moves[static_cast<std::size_t>(TcpWay::in)].from + held.ring(TcpWay::in).bytes)
    return;
  end_move(program, held, TcpWay::in);
  held.ring_events |= tcp_ring::of(TcpWay::in, tcp_ring::returned);
  tell(program, handle, event::received);
}

}  // namespace offpath::tcp
