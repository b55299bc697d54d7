// Gives pages of receive rings back.
//
// The agent may write arriving data to any allowed part of a ring. So pages are given back only where it stores none:
// of closed connections, or while their window is shut (TcpCommandKind::shut). A peer that sends meanwhile has to
// retransmit, so this is for idle connections, not for busy streams.
#include <algorithm>
#include <atomic>

#include "connections/socket_cells.h"

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
namespace event = wire::tcp_event;

namespace {
constexpr std::uint32_t kept_bytes_max = 64 << 10;      // of a ring
constexpr std::uint32_t handles_of_a_look = 1024;       // at a time
constexpr TimeNs look_every_ns = 900 * millisecond_ns;  // whichever process looks
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
  bool more = handles_of_a_look < layout_.flows;
  for (std::uint32_t i = 0; i < std::min(handles_of_a_look, layout_.flows); ++i) {
    more = give_back(Handle{shared_->next_look}) || more;
    shared_->next_look = (shared_->next_look + 1) % layout_.flows;
  }
  return more;
}

// True: to be tried again later.
bool SocketArea::give_back(Handle handle) noexcept {
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
  if (!may || !rings_.room(core_of(handle))) return true;
  set_shutting(handle, true);
  TcpCommand command{};
  command.kind = TcpCommandKind::shut;
  command.handle = handle;
  post(core_of(handle), command);
  return true;
}

bool SocketArea::is_giving_back() const noexcept {
  return std::atomic_ref<std::uint32_t>(shared_->shutting).load(std::memory_order_relaxed) != 0;
}

void SocketArea::set_shutting(Handle handle, bool shutting) noexcept {
  Cell& at = cell(handle);
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
