#include "connections/area/flow_rings.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;
namespace tcp_ring = wire::tcp_ring;

namespace {
constexpr std::uint32_t growth_factor = 4;
constexpr std::uint64_t shares = 16;  // a ring takes at most this part of the free pool, so that others grow, too

constexpr Owed owed_of(Way way) noexcept { return way == Way::out ? owed_larger_out : owed_larger_in; }
}  // namespace

void FlowRings::name(Handle handle, TcpCommand& command) const noexcept {
  command.handle = handle;
  command.send_at = records_.offset_of(present(handle, Way::out));
  command.receive_at = records_.offset_of(present(handle, Way::in));
  command.send_bytes = records_.first_bytes(Way::out);
  command.receive_bytes = records_.first_bytes(Way::in);
}

bool FlowRings::ask(Handle handle) noexcept {
  SocketCell& at = records_.cell(handle);
  for (const Way way : both_ways) {
    if ((at.owed & owed_of(way)) == 0) continue;
    if (!commands_.room(commands_.core_of(handle))) return false;
    at.owed &= static_cast<std::uint8_t>(~owed_of(way));
    ask(handle, way);
  }
  return true;
}

void FlowRings::ask(Handle handle, Way way) noexcept {
  SocketCell& at = records_.cell(handle);
  const std::uint64_t share = std::bit_floor(pool_.free_bytes() / shares);
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {std::max(growth_factor << at.log2(way), RingPool::unit_bytes), wire::tcp_ring_bytes_max, share}));
  if (way == Way::out) at.growths &= static_cast<std::uint8_t>(~SocketCell::postponed);
  if (at.is != SocketCell::Is::flow || at.gone || at.growth(way) != RingGrowth::none || at.bytes(way) >= bytes ||
      bytes < RingPool::unit_bytes || (way == Way::in && at.shutting))
    return;
  // Bytes that are being copied into the ring lie behind `offered`: readers would look for them in the larger one.
  if (way == Way::out && at.is_copied(Way::out)) {
    at.growths |= SocketCell::postponed;
    return;
  }
  SocketsShared::set(records_.shared().uses_pool, true);
  holders_.note(handle);
  const auto unit = pool_.take(bytes);
  if (!unit) return;  // the agent advises it again later
  holders_.stir(handle);
  RingStep& step = records_.step(handle, way);
  step.from = way == Way::out ? at.offered : at.allowed;
  step.posted = commands_.posted(commands_.core_of(handle));
  step.before = at.place(way);
  step.next = {*unit, static_cast<std::uint8_t>(std::countr_zero(bytes))};
  at.set_growth(way, RingGrowth::asked);
  ask_for(handle, way, step.next, step.from);
}

void FlowRings::ask_for(Handle handle, Way way, RingPlace next, std::uint64_t position) noexcept {
  TcpCommand command{};
  command.kind = TcpCommandKind::replace;
  command.handle = handle;
  command.flags = static_cast<std::uint16_t>(way);
  command.position = position;
  command.receive_at = records_.offset_of(ring_at(handle, way, next));
  command.receive_bytes = 1u << next.log2;
  records_.post(commands_, commands_.core_of(handle), command);
}

bool FlowRings::has_larger(Handle handle) const noexcept {
  const SocketCell& at = records_.cell(handle);
  const auto larger = [&](Way way) { return at.log2(way) != 0 && lies_in_pool(at.place(way), way); };
  return at.is == SocketCell::Is::flow && !at.gone && (larger(Way::out) || larger(Way::in));
}

// A stream may stand still before the bytes that go into its larger ring have come.
bool FlowRings::may_leave(Handle handle, Way way) const noexcept {
  const SocketCell& at = records_.cell(handle);
  if (!lies_in_pool(at.place(way), way)) return false;
  return at.growth(way) == RingGrowth::none ||
         (way == Way::in && at.growth(way) == RingGrowth::taken && at.received < records_.step(handle, way).from);
}

void FlowRings::leave(Handle handle, Way way) noexcept {
  SocketCell& at = records_.cell(handle);
  RingStep& step = records_.step(handle, way);
  const std::uint64_t position = way == Way::out ? at.offered : at.received;
  if (at.growth(way) == RingGrowth::none) {
    step.from = position;
    step.before = records_.first_place(way);
  }
  step.posted = commands_.posted(commands_.core_of(handle));
  step.next = at.place(way);
  at.set_growth(way, RingGrowth::leaving);
  ask_for(handle, way, records_.first_place(way), position);
}

// The growth to return to if the first ring does not come.
RingGrowth FlowRings::before_leaving(Handle handle, Way way) const noexcept {
  const bool moves = way == Way::in && records_.cell(handle).received < records_.step(handle, way).from;
  return moves ? RingGrowth::taken : RingGrowth::none;
}

// Owed commands are marked before the growth changes: after a death in between, the mark stays or is set again.
void FlowRings::take(const TcpEvent& told) noexcept {
  SocketCell& at = records_.cell(told.handle);
  const bool is_flow = at.is == SocketCell::Is::flow;
  for (const Way way : both_ways) {
    const RingStep& step = records_.step(told.handle, way);
    const auto says = [&](std::uint32_t bit) { return tcp_ring::says(told.rings, way, bit); };
    if (says(tcp_ring::taken | tcp_ring::refused))
      at.owed &= static_cast<std::uint8_t>(~owed_of(way));  // of an advice before
    if (at.growth(way) == RingGrowth::asked && says(tcp_ring::taken)) {
      at.set_place(way, step.next);
      if (way == Way::in && is_flow) at.owed |= owed_allow;
      at.set_growth(way, RingGrowth::taken);
    } else if (at.growth(way) == RingGrowth::asked && says(tcp_ring::refused)) {
      give(told.handle, way, step.next);
      at.set_growth(way, RingGrowth::none);
    } else if (at.growth(way) == RingGrowth::leaving && says(tcp_ring::taken | tcp_ring::refused)) {
      const bool left = says(tcp_ring::taken);
      if (left) {
        give(told.handle, way, step.before);
        give(told.handle, way, step.next);
        at.set_place(way, records_.first_place(way));
      }
      if (way == Way::in && is_flow) at.owed |= owed_allow;  // opens the window
      at.set_growth(way, left ? RingGrowth::none : before_leaving(told.handle, way));
    }
    if (at.growth(way) == RingGrowth::taken && says(tcp_ring::returned)) end_step(told.handle, way);
    if (says(tcp_ring::advised) && is_flow && !pool_.empty()) at.owed |= owed_of(way);
  }
}

// The ring before the present one holds nothing any more.
void FlowRings::end_step(Handle handle, Way way) noexcept {
  give(handle, way, records_.step(handle, way).before);
  records_.cell(handle).set_growth(way, RingGrowth::none);
}

void FlowRings::give(Handle handle, Way way, RingPlace place) noexcept {
  if (!lies_in_pool(place, way)) return;
  remove_pages(ring_at(handle, way, place));
  pool_.give(place.unit, 1u << place.log2);
}

void FlowRings::free(Handle handle) noexcept {
  const SocketCell& at = records_.cell(handle);
  for (const Way way : both_ways) {
    if (at.log2(way) == 0) continue;  // before its first use
    const RingStep& step = records_.step(handle, way);
    if (at.growth(way) == RingGrowth::taken || at.growth(way) == RingGrowth::leaving) give(handle, way, step.before);
    if (at.growth(way) == RingGrowth::asked) give(handle, way, step.next);
    give(handle, way, at.place(way));
  }
}

void FlowRings::recount() noexcept {
  if (pool_.empty()) return;
  pool_.clear();
  const auto keep = [&](Way way, RingPlace place) {
    if (lies_in_pool(place, way)) pool_.keep(place.unit, 1u << place.log2);
  };
  for (Handle handle = 0; handle < records_.flows(); ++handle) {
    SocketCell& at = records_.cell(handle);
    for (const Way way : both_ways) {
      if (at.log2(way) == 0) continue;
      const RingStep& step = records_.step(handle, way);
      const bool was_posted = commands_.posted(commands_.core_of(handle)) != step.posted;
      if (at.growth(way) == RingGrowth::asked && !was_posted) at.set_growth(way, RingGrowth::none);
      if (at.growth(way) == RingGrowth::leaving && !was_posted) at.set_growth(way, before_leaving(handle, way));
      keep(way, at.place(way));
      if (at.growth(way) != RingGrowth::none) keep(way, step.before);
      if (at.growth(way) == RingGrowth::asked || at.growth(way) == RingGrowth::leaving) keep(way, step.next);
    }
  }
}

void FlowRings::remove_pages(MutableBytes ring) const noexcept {
  if (commands_.keeps_pages() || keeps_pages_.load(std::memory_order_relaxed)) return;
  const auto first = align_up(reinterpret_cast<std::uintptr_t>(ring.data()), page_bytes),
             end = (reinterpret_cast<std::uintptr_t>(ring.data()) + ring.size()) / page_bytes * page_bytes;
  const int before = errno;
  if (first < end) static_cast<void>(madvise(reinterpret_cast<void*>(first), end - first, MADV_REMOVE));
  errno = before;
}

}  // namespace offpath::channel
