// The rings of a flow's payload, and others in their place (TcpCommandKind::replace). Rings at first have their place
// by their handle; larger ones come from a pool that all flows share. A flow gets the next ring of a direction when the
// one before the present ring is free. socket_memory.cc says when it gets its first ones again.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>

#include "connections/socket_cells.h"

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;
namespace tcp_ring = wire::tcp_ring;

namespace {
constexpr std::uint32_t growth_factor = 4;
constexpr std::uint64_t shares = 16;  // a ring takes at most this part of the free pool, so that others grow, too
constexpr std::array both_ways{Way::out, Way::in};

constexpr Owed owed_of(Way way) noexcept { return way == Way::out ? owed_larger_out : owed_larger_in; }
}  // namespace

MutableBytes SocketArea::ring_at(Handle handle, Way way, Place place) const noexcept {
  const std::uint32_t bytes = 1u << place.log2;
  if (is_of_pool(place, way))
    return memory_.subspan(pool_at_ + place.unit * std::uint64_t{RingPool::unit_bytes}, bytes);
  return memory_.subspan(
      rings_at_ + handle * (std::uint64_t{send_bytes_} + receive_bytes_) + (way == Way::in ? send_bytes_ : 0), bytes);
}

SocketArea::Place SocketArea::first_place(Way way) const noexcept {
  return {0, static_cast<std::uint8_t>(std::countr_zero(first_bytes(way)))};
}

MutableBytes SocketArea::ring(Handle handle, Way way) const noexcept {
  const Cell& at = cell(handle);
  return ring_at(handle, way, at.place(way));
}

// Bytes that the flow has read up to `at` are in the ring before the present one; the rest of `count` is in this one.
std::uint64_t SocketArea::bytes_before(Handle handle, std::uint64_t at, std::uint64_t count) const noexcept {
  if (cell(handle).growth(Way::in) != Growth::taken) return 0;
  const Step& step = steps(handle)[static_cast<std::size_t>(Way::in)];
  return at < step.from ? std::min(count, step.from - at) : 0;
}

MutableBytes SocketArea::ring_before(Handle handle, Way way) const noexcept {
  return ring_at(handle, way, steps(handle)[static_cast<std::size_t>(way)].before);
}

// Asks for the rings that the agent has advised. False: there is no room for a command.
bool SocketArea::ask_for_rings(Handle handle) noexcept {
  Cell& at = cell(handle);
  for (const Way way : both_ways) {
    if ((at.owed & owed_of(way)) == 0) continue;
    if (!rings_.room(core_of(handle))) return false;
    at.owed &= static_cast<std::uint8_t>(~owed_of(way));
    ask_for_larger_ring(handle, way);
  }
  return true;
}

void SocketArea::ask_for_larger_ring(Handle handle, Way way) noexcept {
  Cell& at = cell(handle);
  const std::uint64_t share = std::bit_floor(pool_.free_bytes() / shares);
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {std::max(growth_factor << at.log2(way), RingPool::unit_bytes), wire::tcp_ring_bytes_max, share}));
  if (way == Way::out) at.growths &= static_cast<std::uint8_t>(~Cell::postponed);
  if (at.is != Cell::Is::flow || at.gone || at.growth(way) != Growth::none || at.bytes(way) >= bytes ||
      bytes < RingPool::unit_bytes || (way == Way::in && at.shutting))
    return;
  // What is being copied into the ring comes after `offered`: it would be looked for in the larger one.
  if (way == Way::out && (at.copying & 1u << static_cast<int>(Way::out)) != 0) {
    at.growths |= Cell::postponed;
    return;
  }
  std::atomic_ref<std::uint32_t>(shared_->uses_pool).store(1, std::memory_order_relaxed);
  const auto unit = pool_.take(bytes);
  if (!unit) return;  // the agent advises it again later
  rest(handle).since = 0;
  const std::uint32_t core = core_of(handle);
  Step& step = steps(handle)[static_cast<std::size_t>(way)];
  step.from = way == Way::out ? at.offered : at.allowed;
  step.posted = rings_.posted(core);
  step.before = at.place(way);
  step.next = {*unit, static_cast<std::uint8_t>(std::countr_zero(bytes))};
  at.set_growth(way, Growth::asked);
  name_ring(handle, way, step.next, step.from);
}

void SocketArea::name_ring(Handle handle, Way way, Place next, std::uint64_t position) noexcept {
  TcpCommand command{};
  command.kind = TcpCommandKind::replace;
  command.handle = handle;
  command.flags = static_cast<std::uint16_t>(way);
  command.position = position;
  command.receive_at = static_cast<std::uint64_t>(ring_at(handle, way, next).data() - memory_.data());
  command.receive_bytes = 1u << next.log2;
  post(core_of(handle), command);
}

// A larger ring that holds nothing. A stream may stand still before the bytes that go into it have come.
bool SocketArea::may_leave_ring(Handle handle, Way way) const noexcept {
  const Cell& at = cell(handle);
  if (!is_of_pool(at.place(way), way)) return false;
  const Step& step = steps(handle)[static_cast<std::size_t>(way)];
  return at.growth(way) == Growth::none ||
         (way == Way::in && at.growth(way) == Growth::taken && at.received < step.from);
}

// Asks for the first ring in place of an empty one. There is room for a command, and for `in`, the window is shut.
void SocketArea::leave_ring(Handle handle, Way way) noexcept {
  Cell& at = cell(handle);
  Step& step = steps(handle)[static_cast<std::size_t>(way)];
  const std::uint64_t position = way == Way::out ? at.offered : at.received;
  if (at.growth(way) == Growth::none) {
    step.from = position;
    step.before = first_place(way);
  }
  step.posted = rings_.posted(core_of(handle));
  step.next = at.place(way);
  at.set_growth(way, Growth::leaving);
  name_ring(handle, way, first_place(way), position);
}

// What it was, if the first ring does not come.
SocketArea::Growth SocketArea::before_leaving(Handle handle, Way way) const noexcept {
  const bool moves = way == Way::in && cell(handle).received < steps(handle)[static_cast<std::size_t>(way)].from;
  return moves ? Growth::taken : Growth::none;
}

// All is done in an order in which a process that dies in between has another one repeat it with the same event.
void SocketArea::take_rings(const TcpEvent& told) noexcept {
  Cell& at = cell(told.handle);
  for (const Way way : both_ways) {
    const Step& step = steps(told.handle)[static_cast<std::size_t>(way)];
    const auto says = [&](std::uint32_t bit) { return tcp_ring::says(told.rings, way, bit); };
    if (says(tcp_ring::taken | tcp_ring::refused)) forgive(told.handle, owed_of(way));  // of an advice before
    if (at.growth(way) == Growth::asked && says(tcp_ring::taken)) {
      at.set_place(way, step.next);
      if (way == Way::in && at.is == Cell::Is::flow) owe(told.handle, owed_allow);
      at.set_growth(way, Growth::taken);
    } else if (at.growth(way) == Growth::asked && says(tcp_ring::refused)) {
      free_ring(told.handle, way, step.next);
      at.set_growth(way, Growth::none);
    } else if (at.growth(way) == Growth::leaving && says(tcp_ring::taken | tcp_ring::refused)) {
      const bool left = says(tcp_ring::taken);
      if (left) {
        free_ring(told.handle, way, step.before);
        free_ring(told.handle, way, step.next);
        at.set_place(way, first_place(way));
      }
      if (way == Way::in && at.is == Cell::Is::flow) owe(told.handle, owed_allow);  // opens the window
      at.set_growth(way, left ? Growth::none : before_leaving(told.handle, way));
    }
    if (at.growth(way) == Growth::taken && says(tcp_ring::returned)) end_step(told.handle, way);
    if (says(tcp_ring::advised) && at.is == Cell::Is::flow && !pool_.empty()) owe(told.handle, owed_of(way));
  }
}

// The ring before the present one holds nothing any more.
void SocketArea::end_step(Handle handle, Way way) noexcept {
  free_ring(handle, way, steps(handle)[static_cast<std::size_t>(way)].before);
  cell(handle).set_growth(way, Growth::none);
}

void SocketArea::free_ring(Handle handle, Way way, Place place) noexcept {
  if (!is_of_pool(place, way)) return;
  remove_pages(ring_at(handle, way, place));
  pool_.give(place.unit, 1u << place.log2);
}

// The flow has ended, and its handle gets its first rings again.
void SocketArea::free_rings(Handle handle) noexcept {
  Cell& at = cell(handle);
  for (const Way way : both_ways) {
    if (at.log2(way) == 0) continue;  // before its first use
    const Step& step = steps(handle)[static_cast<std::size_t>(way)];
    if (at.growth(way) == Growth::taken || at.growth(way) == Growth::leaving) free_ring(handle, way, step.before);
    if (at.growth(way) == Growth::asked) free_ring(handle, way, step.next);
    free_ring(handle, way, at.place(way));
  }
}

// After the death of a process under the lock: which memory the rings have. A command that was not posted is none.
void SocketArea::count_rings() const noexcept {
  if (pool_.empty()) return;
  RingPool pool = pool_;
  pool.clear();
  const auto keep = [&](Way way, Place place) {
    if (is_of_pool(place, way)) pool.keep(place.unit, 1u << place.log2);
  };
  for (Handle handle = 0; handle < layout_.flows; ++handle) {
    Cell& at = cell(handle);
    for (const Way way : both_ways) {
      if (at.log2(way) == 0) continue;
      const Step& step = steps(handle)[static_cast<std::size_t>(way)];
      if (at.growth(way) == Growth::asked && rings_.posted(core_of(handle)) == step.posted)
        at.set_growth(way, Growth::none);
      if (at.growth(way) == Growth::leaving && rings_.posted(core_of(handle)) == step.posted)
        at.set_growth(way, before_leaving(handle, way));
      keep(way, at.place(way));
      if (at.growth(way) != Growth::none) keep(way, step.before);
      if (at.growth(way) == Growth::asked || at.growth(way) == Growth::leaving) keep(way, step.next);
    }
  }
}

void SocketArea::remove_pages(MutableBytes ring) const noexcept {
  if (rings_.keeps_pages()) return;
  const auto first = align_up(reinterpret_cast<std::uintptr_t>(ring.data()), page_bytes),
             end = (reinterpret_cast<std::uintptr_t>(ring.data()) + ring.size()) / page_bytes * page_bytes;
  const int before = errno;
  if (first < end) static_cast<void>(madvise(reinterpret_cast<void*>(first), end - first, MADV_REMOVE));
  errno = before;
}

}  // namespace offpath::channel
