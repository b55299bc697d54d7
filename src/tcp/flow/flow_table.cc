#include "tcp/flow/flow_table.h"

namespace offpath::tcp {

void FlowTable::place(const Slot& slot) noexcept {
  std::size_t at = home(slot.hash);
  while (slots_[at].flow != nobody) at = next(at);
  slots_[at] = slot;
}

void FlowTable::insert(const FlowKey& key, std::uint32_t flow) {
  OFP_ASSERT(flow != nobody);
  if (3 * (size_ + 1) > 2 * slots_.size()) grow();
  place({hash_of(key), flow});
  ++size_;
}

void FlowTable::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.flow != nobody) place(slot);
}

// Later entries move up, so removed slots need no marks.
bool FlowTable::erase(const FlowKey& key, std::uint32_t flow) noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t free = home(hash_of(key));
  while (slots_[free].flow != nobody && slots_[free].flow != flow) free = next(free);
  if (slots_[free].flow == nobody) return false;
  for (std::size_t at = next(free); slots_[at].flow != nobody; at = next(at)) {
    const std::size_t wanted = home(slots_[at].hash);
    if (((at - wanted) & mask) < ((at - free) & mask)) continue;  // it would be before its home
    slots_[free] = slots_[at];
    free = at;
  }
  slots_[free] = {};
  --size_;
  return true;
}

}  // namespace offpath::tcp
