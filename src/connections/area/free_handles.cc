#include "connections/area/free_handles.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace offpath::channel {

void FreeHandles::spread() noexcept {
  records_.shared().first_free.fill(no_handle);
  for (Handle handle = records_.flows(); handle-- > 0;) give(handle);
}

std::uint32_t FreeHandles::next_core() noexcept {
  const std::uint32_t cores = commands_.cores();
  std::uint32_t& turn = records_.shared().turn;
  for (std::uint32_t i = 0; i < cores - 1; ++i) {
    const std::uint32_t core = turn++ % cores;
    if (has_any(core)) return core;
  }
  return cores == 1 ? 0 : turn++ % cores;
}

std::optional<FreeHandles::Handle> FreeHandles::take(std::uint32_t core) noexcept {
  const Handle handle = records_.shared().first_free[core];
  if (handle == no_handle) return std::nullopt;
  SocketCell& cell = records_.cell(handle);
  records_.shared().first_free[core] = cell.next;
  clear(handle);
  processes_.let_all_go(handle);
  if (!cell.has_turns)
    for (const Way way : both_ways) (new (&records_.turn_lock(handle, way)) TurnLock)->init();
  cell.has_turns = true;
  cell.allowed = records_.first_bytes(Way::in);
  records_.set_read(handle, 0);
  cell.next = no_handle;
  return handle;
}

void FreeHandles::give(Handle handle) noexcept {
  clear(handle);
  records_.cell(handle).next = std::exchange(records_.shared().first_free[commands_.core_of(handle)], handle);
}

void FreeHandles::clear(Handle handle) noexcept {
  SocketCell& cell = records_.cell(handle);
  for (const Way way : both_ways) memory_.count_used(handle, way);
  memory_.open_window(handle);
  const auto used = std::to_array(cell.used);
  const bool has_turns = cell.has_turns;
  rings_.free(handle);
  cell = SocketCell{};
  for (const Way way : both_ways) cell.logs[static_cast<int>(way)] = records_.first_place(way).log2;
  std::ranges::copy(used, cell.used);
  cell.has_turns = has_turns;
  cell.woken = every_process;
  if (used[0] > 0 || used[1] > 0) holders_.note(handle);
}

}  // namespace offpath::channel
