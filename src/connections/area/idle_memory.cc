#include "connections/area/idle_memory.h"

#include <algorithm>
#include <atomic>

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;
namespace event = wire::tcp_event;

namespace {
constexpr std::uint32_t kept_bytes_max = 64 << 10;                               // of a receive ring
constexpr std::uint32_t initial_window_segments = 10;                            // RFC 6928
constexpr TimeNs look_every_ns = 900 * millisecond_ns;                           // whichever process looks
constexpr TimeNs idle_ns = 10 * second_ns, idle_where_short_ns = 2 * second_ns;  // until a flow has its first rings
// A look is at an eighth of all handles, within these bounds.
constexpr std::uint32_t part_of_a_look = 8, handles_of_a_look_min = 1024, handles_of_a_look_max = 4096,
                        handles_of_a_piece = 64;
}  // namespace

bool IdleMemory::count_used(Handle handle, Way way) const noexcept {
  SocketCell& at = records_.cell(handle);
  const auto direction = static_cast<std::size_t>(way);
  const std::uint64_t position = way == Way::out ? at.offered : at.received;
  const std::uint32_t fresh = static_cast<std::uint32_t>(position) - at.counted[direction], size = at.bytes(way);
  at.used[direction] =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{at.used[direction]} + fresh, size));
  at.counted[direction] += fresh;
  return fresh == 0;
}

std::optional<IdleMemory::Look> IdleMemory::begin(TimeNs now) noexcept {
  TimeNs& looked_at = records_.shared().looked_at;
  if (now - looked_at < look_every_ns) return std::nullopt;
  looked_at = now;
  return Look{holders_.pass(),
              std::clamp(records_.flows() / part_of_a_look, handles_of_a_look_min, handles_of_a_look_max)};
}

bool IdleMemory::look(Look& look, TimeNs now) noexcept {
  rings_.note_unused_pool();
  const TimeNs idle = rings_.is_pool_short() ? idle_where_short_ns : idle_ns;
  for (std::uint32_t i = 0; look.left > 0 && i < handles_of_a_piece; ++i, --look.left) {
    const auto handle = look.pass.next();
    if (!handle) return false;
    if (!give_back(*handle, now, idle)) holders_.remove(*handle);
  }
  return look.left > 0;
}

// True: another look is due.
bool IdleMemory::give_back(Handle handle, TimeNs now, TimeNs idle) noexcept {
  const TimeNs rested = holders_.rested(handle, now);
  const bool has_larger = rings_.has_larger(handle);
  if (has_larger && rested >= idle) fall_back(handle, idle);
  const bool received = give_received_back(handle, rested), sent = give_sent_back(handle, rested);
  return has_larger || received || sent;
}

// True: to be tried again later.
bool IdleMemory::give_received_back(Handle handle, TimeNs rested) noexcept {
  SocketCell& at = records_.cell(handle);
  const bool is_idle = count_used(handle, Way::in);
  const std::uint32_t used = at.used[static_cast<std::size_t>(Way::in)];
  if (at.is == SocketCell::Is::free && used > 0 && (used > kept_bytes_max || rested >= idle_ns)) free_pages(handle);
  if (at.is == SocketCell::Is::free) return at.used[static_cast<std::size_t>(Way::in)] > 0;
  if (used <= kept_bytes_max) return false;
  // The peer sends no more, or the connection is over: nothing is stored.
  const bool is_over = (at.told & (event::finished | event::closed)) != 0 && at.read == at.received;
  if (at.is == SocketCell::Is::flow && is_over) {
    free_pages(handle);
    return false;
  }
  if (at.is != SocketCell::Is::flow) return at.is == SocketCell::Is::ending;
  const bool may = is_idle && at.read == at.received && !at.shutting && (at.owed & owed_allow) == 0 &&
                   at.growth(Way::in) == RingGrowth::none && (at.told & (event::connected | event::accepted)) != 0;
  if (may) shut(handle);
  return true;
}

// The first ring for outgoing bytes, while it holds nothing: nobody stores there but this program.
bool IdleMemory::give_sent_back(Handle handle, TimeNs rested) noexcept {
  SocketCell& at = records_.cell(handle);
  count_used(handle, Way::out);
  std::uint32_t& used = at.used[static_cast<std::size_t>(Way::out)];
  if (used == 0) return false;
  const bool is_over = at.is == SocketCell::Is::free || at.gone;
  const bool empty = is_over || rings_.lies_in_pool(at.place(Way::out), Way::out) || at.acknowledged == at.offered;
  if (rested < idle_ns || !empty || at.is_copied(Way::out) || (!is_over && at.growth(Way::out) != RingGrowth::none))
    return true;
  used = 0;
  rings_.remove_pages(records_.first_ring(handle, Way::out));
  return false;
}

void IdleMemory::fall_back(Handle handle, TimeNs idle) noexcept {
  SocketCell& at = records_.cell(handle);
  const std::uint32_t core = commands_.core_of(handle);
  if (at.acknowledged != at.offered || at.read != at.received || at.copying != 0) return;
  if (rings_.may_leave(handle, Way::out) && commands_.room(core)) rings_.leave(handle, Way::out);
  // Where the peer's segments are large, a small ring would lose some of the first ones after each pause.
  const bool is_enough = idle < idle_ns || initial_window_segments * at.mss <= records_.first_bytes(Way::in);
  if (is_enough && rings_.may_leave(handle, Way::in) && !at.shutting && (at.owed & owed_allow) == 0 &&
      commands_.room(core)) {
    at.set_falls_back(true);
    shut(handle);
  }
}

void IdleMemory::shut(Handle handle) noexcept {
  const std::uint32_t core = commands_.core_of(handle);
  if (!commands_.room(core)) return;
  TcpCommand command{};
  command.kind = TcpCommandKind::shut;
  command.handle = handle;
  records_.post(commands_, core, command);
  set_shutting(handle, true);  // if this process dies before, the answer opens the window
}

void IdleMemory::on_shut(const TcpEvent& told) noexcept {
  SocketCell& at = records_.cell(told.handle);
  // Asked by a process that died afterwards: the answer opens the window.
  if (at.shutting && at.growth(Way::in) == RingGrowth::leaving) return;
  const bool is_shut = at.shutting && told.shut == wire::tcp_shut::done && at.read == at.received;
  if (is_shut && at.is == SocketCell::Is::flow && at.falls_back() && rings_.may_leave(told.handle, Way::in) &&
      commands_.room(commands_.core_of(told.handle)))
    return rings_.leave(told.handle, Way::in);
  if (is_shut) free_pages(told.handle);
  if (at.shutting || at.is == SocketCell::Is::flow) at.owed |= owed_allow;
}

void IdleMemory::set_shutting(Handle handle, bool shutting) noexcept {
  SocketCell& at = records_.cell(handle);
  if (!shutting) at.set_falls_back(false);
  if (at.shutting == shutting) return;
  at.shutting = shutting;
  std::uint32_t& all = records_.shared().shutting;
  const std::uint32_t before = all, count = shutting ? before + 1 : before - (before > 0 ? 1 : 0);
  std::atomic_ref<std::uint32_t>(all).store(count, std::memory_order_relaxed);
}

void IdleMemory::free_pages(Handle handle) noexcept {
  records_.cell(handle).used[static_cast<std::size_t>(Way::in)] = 0;
  rings_.remove_pages(rings_.present(handle, Way::in));
}

}  // namespace offpath::channel
