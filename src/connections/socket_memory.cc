// Gives memory of idle connections back: pages of receive rings to the machine, and larger rings to the program's pool.
//
// The agent may write arriving data to any allowed part of a ring. So pages are given back only where it stores none:
// of closed connections, or while their window is shut (TcpCommandKind::shut). A peer that sends meanwhile has to
// retransmit, so this is for idle connections, not for busy streams.
//
// A flow gets its first rings again when its streams have stood still for ten seconds, with nothing in either ring; or
// for two, while less than a quarter of the pool is free. Both are longer than a retransmission timeout, after which a
// sender begins with its initial window (RFC 5681, 4.1): the first ring has room for ten segments of 1,460 bytes. Flows
// with larger segments keep their ring while the pool is not short.
#include <algorithm>
#include <atomic>

#include "connections/socket_cells.h"

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;
namespace event = wire::tcp_event;

namespace {
constexpr std::uint32_t kept_bytes_max = 64 << 10;                               // of a ring
constexpr std::uint32_t handles_of_a_look = 1024;                                // at a time
constexpr std::uint32_t initial_window_segments = 10;                            // RFC 6928
constexpr TimeNs look_every_ns = 900 * millisecond_ns;                           // whichever process looks
constexpr TimeNs idle_ns = 10 * second_ns, idle_where_short_ns = 2 * second_ns;  // until a flow has its first rings
}  // namespace

// True: nothing has arrived since the last count.
bool SocketArea::count_used(Handle handle) const noexcept {
  Cell& at = cell(handle);
  const std::uint32_t fresh = static_cast<std::uint32_t>(at.received) - at.counted, size = at.bytes(Way::in);
  at.used = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{at.used} + fresh, size));
  at.counted += fresh;
  return fresh == 0;
}

bool SocketArea::give_back(TimeNs now) {
  const Lock lock(*this);
  if (now - shared_->looked_at < look_every_ns) return true;
  shared_->looked_at = now;
  take_all();
  if (pool_.is_unused()) std::atomic_ref<std::uint32_t>(shared_->uses_pool).store(0, std::memory_order_relaxed);
  const TimeNs idle = pool_.free_bytes() < pool_.bytes() / 4 ? idle_where_short_ns : idle_ns;
  bool more = handles_of_a_look < layout_.flows;
  for (std::uint32_t i = 0; i < std::min(handles_of_a_look, layout_.flows); ++i) {
    const Handle handle = shared_->next_look;
    more = fall_back(handle, now, idle) || more;
    more = give_pages_back(handle) || more;
    shared_->next_look = (shared_->next_look + 1) % layout_.flows;
  }
  return more;
}

bool SocketArea::uses_pool() const noexcept {
  return std::atomic_ref<std::uint32_t>(shared_->uses_pool).load(std::memory_order_relaxed) != 0;
}

// True: to be tried again later.
bool SocketArea::give_pages_back(Handle handle) noexcept {
  Cell& at = cell(handle);
  const bool is_idle = count_used(handle);
  if (at.used <= kept_bytes_max) return false;
  // The peer sends no more, or the connection is over: nothing is stored.
  const bool is_over = (at.told & (event::finished | event::closed)) != 0 && at.read == at.received;
  if (at.is == Cell::Is::free || (at.is == Cell::Is::flow && is_over)) {
    free_pages(handle);
    return false;
  }
  if (at.is != Cell::Is::flow) return at.is == Cell::Is::ending;
  const bool may = is_idle && at.read == at.received && !at.shutting && (at.owed & owed_allow) == 0 &&
                   at.growth(Way::in) == Growth::none && (at.told & (event::connected | event::accepted)) != 0;
  if (may) shut(handle);
  return true;
}

void SocketArea::shut(Handle handle) noexcept {
  if (!rings_.room(core_of(handle))) return;
  TcpCommand command{};
  command.kind = TcpCommandKind::shut;
  command.handle = handle;
  post(core_of(handle), command);
  set_shutting(handle, true);  // if this process dies before, the answer opens the window
}

// The agent stores nothing until more is allowed, or has refused that.
void SocketArea::on_shut(const TcpEvent& told) noexcept {
  const Cell& at = cell(told.handle);
  // Asked by a process that died afterwards: the answer opens the window.
  if (at.shutting && at.growth(Way::in) == Growth::leaving) return;
  const bool is_shut = at.shutting && told.shut == wire::tcp_shut::done && at.read == at.received;
  if (is_shut && at.is == Cell::Is::flow && at.falls_back() && may_leave_ring(told.handle, Way::in) &&
      rings_.room(core_of(told.handle)))
    return leave_ring(told.handle, Way::in);
  if (is_shut) free_pages(told.handle);
  if (at.shutting || at.is == Cell::Is::flow) owe(told.handle, owed_allow);
}

// ---- first rings again

// True: the flow has a ring of the pool, so another look is due.
bool SocketArea::fall_back(Handle handle, TimeNs now, TimeNs idle) noexcept {
  Cell& at = cell(handle);
  const auto larger = [&](Way way) { return at.log2(way) != 0 && is_of_pool(at.place(way), way); };
  if (at.is != Cell::Is::flow || at.gone || (!larger(Way::out) && !larger(Way::in))) return false;
  const std::uint64_t moved = at.offered + at.acknowledged + at.received + at.read;
  Rest& still = rest(handle);
  if (still.since == 0 || still.moved != moved) still = {moved, now};
  if (now - still.since < idle || at.acknowledged != at.offered || at.read != at.received || at.copying != 0)
    return true;
  if (may_leave_ring(handle, Way::out) && rings_.room(core_of(handle))) leave_ring(handle, Way::out);
  // Where the peer's segments are large, a small ring would lose some of the first ones after each pause.
  const bool is_enough = idle < idle_ns || initial_window_segments * at.mss <= first_bytes(Way::in);
  if (is_enough && may_leave_ring(handle, Way::in) && !at.shutting && (at.owed & owed_allow) == 0 &&
      rings_.room(core_of(handle))) {
    at.set_falls_back(true);
    shut(handle);
  }
  return true;
}

bool SocketArea::is_giving_back() const noexcept {
  return std::atomic_ref<std::uint32_t>(shared_->shutting).load(std::memory_order_relaxed) != 0;
}

void SocketArea::set_shutting(Handle handle, bool shutting) noexcept {
  Cell& at = cell(handle);
  if (!shutting) at.set_falls_back(false);
  if (at.shutting == shutting) return;
  at.shutting = shutting;
  const std::uint32_t before = shared_->shutting, count = shutting ? before + 1 : before - (before > 0 ? 1 : 0);
  std::atomic_ref<std::uint32_t>(shared_->shutting).store(count, std::memory_order_relaxed);
}

void SocketArea::free_pages(Handle handle) noexcept {
  cell(handle).used = 0;
  remove_pages(ring(handle, Way::in));
}

}  // namespace offpath::channel
