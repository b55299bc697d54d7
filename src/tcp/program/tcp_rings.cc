// The rings of programs' flows: how their memory is charged, when a larger one is advised, and how it takes the place
// of the one before (TcpCommandKind::grow). A program names the memory; here it is checked and charged.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <span>

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

struct Blocks {
  std::ptrdiff_t first, end;
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return static_cast<std::uint64_t>(end - first) * wire::tcp_ring_block_bytes;
  }
};
Blocks blocks_of(std::uint64_t at, std::uint64_t length) noexcept {
  constexpr std::uint64_t block = wire::tcp_ring_block_bytes;
  return {static_cast<std::ptrdiff_t>(at / block), static_cast<std::ptrdiff_t>((at + length + block - 1) / block)};
}

}  // namespace

// ---- charges

// Of one user and of all: whether so much more may be charged.
bool TcpService::may_charge(const Program& program, std::uint64_t bytes) const {
  std::uint64_t of_user = bytes, of_all = bytes;
  for (const auto& [number, each] : programs_) {
    of_all += each.charged_bytes;
    if (each.who.user == program.who.user) of_user += each.charged_bytes;
  }
  return of_user <= limits_.receive_bytes_of_user_max / cores_ && of_all <= limits_.receive_bytes_max / cores_;
}

bool TcpService::charge(Program& program, const Held& held) {
  const Held::Ring &in = held.ring(TcpWay::in), &out = held.ring(TcpWay::out);
  const std::array both{blocks_of(in.at, in.bytes), blocks_of(out.at, out.bytes)};
  const std::span rings = std::span(both).first(program.who.linked ? 2 : 1);
  std::uint64_t bytes = 0;
  for (const auto& [first, end] : rings) {
    if (program.blocks.size() < static_cast<std::size_t>(end)) program.blocks.resize(static_cast<std::size_t>(end));
    const auto begin = program.blocks.begin();
    if (std::find(begin + first, begin + end, Program::Block::lent) != begin + end) return false;
    bytes += static_cast<std::uint64_t>(std::count(begin + first, begin + end, Program::Block::free)) *
             wire::tcp_ring_block_bytes;
  }
  if (bytes == 0) return true;
  if (!may_charge(program, bytes)) return false;
  for (const auto& [first, end] : rings)
    std::fill(program.blocks.begin() + first, program.blocks.begin() + end, Program::Block::kept);
  program.charged_bytes += bytes;
  return true;
}

// What a larger ring costs: on one machine, the pages of a ring for sending are the program's own.
std::uint64_t TcpService::cost_of(const Program& program, TcpWay way, const Held::Ring& ring) noexcept {
  return way == TcpWay::in || program.who.linked ? blocks_of(ring.at, ring.bytes).bytes() : 0;
}

// The program may use the memory for another flow once it is told.
void TcpService::return_ring(Program& program, TcpWay way, const Held::Ring& ring) noexcept {
  if (!ring.lent) return;
  const auto [first, end] = blocks_of(ring.at, ring.bytes);
  std::fill(program.blocks.begin() + first, program.blocks.begin() + end, Program::Block::free);
  program.charged_bytes -= cost_of(program, way, ring);
  const MutableBytes memory = program.area.memory();
  if (program.who.linked || memory.empty()) return;  // linked: the mirror gives its pages back, the program its own
  static_cast<void>(madvise(memory.data() + ring.at, ring.bytes, MADV_REMOVE));
}

// The flow is gone, and the program is about to be told.
void TcpService::return_rings(Program& program, Held& held) noexcept {
  for (const TcpWay way : both_ways) {
    if (held.is_moving(way)) end_move(program, held, way);
    return_ring(program, way, held.ring(way));
    held.ring(way) = {};
  }
}

// ---- growth

// Called when half of a ring has passed since the last call.
void TcpService::measure(Held& held, TcpWay way, TimeNs now) noexcept {
  Held::Move& move = held.moves[static_cast<std::size_t>(way)];
  const TimeNs took = now - std::exchange(move.marked_at, now);
  const Flow* const flow = stack_->flow(held.id);
  if (flow == nullptr || held.is_moving(way) || held.ring(way).bytes >= wire::tcp_grown_bytes_max ||
      now < move.advise_at || took > std::max(flow->rtt.smoothed_ns(), round_trip_min_ns))
    return;
  move.advised = true;
  move.advise_at = now + advise_again_ns;
  held.ring_events |= tcp_ring::of(way, tcp_ring::advised);
}

Status TcpService::grow(Program& program, Held& held, const wire::TcpCommand& command) {
  if (command.flags > static_cast<std::uint16_t>(TcpWay::in))
    return fail(Error::protocol, "handle {}: a larger ring for direction {}", command.handle, command.flags);
  const auto way = static_cast<TcpWay>(command.flags);
  Held::Move& move = held.moves[command.flags];
  if (!std::exchange(move.advised, false))
    return fail(Error::protocol, "handle {}: a larger ring that was not advised", command.handle);
  const Held::Ring ring{command.receive_at, command.receive_bytes, true}, before = held.ring(way);
  OFP_TRY(wire::check_tcp_ring(program.area.layout(), command.handle, ring.at, ring.bytes));
  if (ring.bytes <= before.bytes || ring.bytes > wire::tcp_grown_bytes_max || ring.at % wire::tcp_ring_block_bytes != 0)
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {} after one of {} bytes", command.handle,
                ring.bytes, ring.at, before.bytes);
  const auto [first, end] = blocks_of(ring.at, ring.bytes);
  if (program.blocks.size() < static_cast<std::size_t>(end)) program.blocks.resize(static_cast<std::size_t>(end));
  const auto begin = program.blocks.begin();
  if (std::count(begin + first, begin + end, Program::Block::free) != end - first)
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {}, where another one is", command.handle,
                ring.bytes, ring.at);
  OFP_TRY(check_begin(held, way, command));
  const auto answer = [&](std::uint32_t bit) -> Status {
    held.ring_events |= tcp_ring::of(way, bit);
    tell(program, command.handle, 0);
    return {};
  };
  const std::uint64_t cost = cost_of(program, way, ring);
  if (cost > 0 && !may_charge(program, cost)) {
    ++counters_.rings_refused;
    return answer(tcp_ring::refused);
  }
  std::fill(begin + first, begin + end, Program::Block::lent);
  program.charged_bytes += cost;
  ++counters_.rings_grown;
  move.from = command.position;
  move.before = before;
  move.advise_at = 0;
  held.ring(way) = ring;
  held.moving |= Held::bit(way);
  return answer(tcp_ring::taken);
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

void TcpService::end_move(Program& program, Held& held, TcpWay way) noexcept {
  held.moving &= static_cast<std::uint8_t>(~Held::bit(way));
  return_ring(program, way, held.moves[static_cast<std::size_t>(way)].before);
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
