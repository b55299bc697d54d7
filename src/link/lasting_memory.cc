#include "link/lasting_memory.h"

#include <algorithm>

namespace offpath::link {

void LastingMemory::add(std::byte* begin, std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  stretches_.insert_or_assign(begin, Stretch{next_number_++, begin, length});
}

void LastingMemory::remove(std::byte* begin) {
  const std::lock_guard lock(mutex_);
  if (stretches_.erase(begin) > 0) removals_.fetch_add(1, std::memory_order_release);
}

std::optional<LastingMemory::Stretch> LastingMemory::find(const std::byte* memory) const {
  const std::lock_guard lock(mutex_);
  const auto after = stretches_.upper_bound(memory);
  if (after == stretches_.begin()) return std::nullopt;
  const Stretch& stretch = std::prev(after)->second;
  if (!stretch.holds(memory)) return std::nullopt;
  return stretch;
}

bool LastingMemory::has(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(stretches_, [number](const auto& each) { return each.second.number == number; });
}

}  // namespace offpath::link
