#include "connections/area/process_table.h"

#include <algorithm>

namespace offpath::channel {

Result<std::uint32_t> ProcessTable::add() noexcept {
  std::uint32_t number = 0;
  while (number < count() && (*this)[number].is != Process::Is::free) ++number;
  if (number == wire::tcp_processes_max)
    return fail(Error::no_space, "{} processes share these connections, which is the limit", number);
  *count_ = std::max(count(), number + 1);
  (*this)[number].is = Process::Is::alive;
  (*this)[number].slept.flags = 0;
  return number;
}

void ProcessTable::remove(std::uint32_t number) noexcept {
  for (Handle first = 0; first < flows_; first += 64) changed(number, first) = 0;
  (*this)[number].changed = 0;
  (*this)[number].is = Process::Is::free;
}

bool ProcessTable::is_any_alive() const noexcept {
  for (std::uint32_t each = 0; each < count(); ++each)
    if ((*this)[each].is == Process::Is::alive) return true;
  return false;
}

void ProcessTable::set_changed(std::uint32_t number, Handle handle, std::uint32_t by) const noexcept {
  changed(number, handle) |= bit(handle);
  std::uint64_t& any = (*this)[number].changed;
  const std::uint64_t group = 1ull << handle / group_of_handles();
  if ((any & group) == 0) std::atomic_ref<std::uint64_t>(any).store(any | group, std::memory_order_relaxed);
  if (number != by) std::atomic_ref<std::uint32_t>((*this)[number].told).store(1, std::memory_order_relaxed);
}

std::optional<ProcessTable::Handle> ProcessTable::take_changed(std::uint32_t number) const noexcept {
  Process& own = (*this)[number];
  const std::uint32_t group = group_of_handles();
  while (own.changed != 0) {
    const auto at = static_cast<std::uint32_t>(std::countr_zero(own.changed));
    for (Handle handle = at * group; handle < std::min((at + 1) * group, flows_); handle += 64) {
      std::uint64_t& all = changed(number, handle);
      if (all == 0) continue;
      const Handle found = handle + static_cast<std::uint32_t>(std::countr_zero(all));
      all &= all - 1;
      return found;
    }
    std::atomic_ref<std::uint64_t>(own.changed).store(own.changed & (own.changed - 1), std::memory_order_relaxed);
  }
  return std::nullopt;
}

}  // namespace offpath::channel
