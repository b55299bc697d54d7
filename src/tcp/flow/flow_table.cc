#include "tcp/flow/flow_table.h"

#include "base/status.h"

namespace offpath::tcp {

std::size_t FlowTable::place(const FlowKey& key) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = home(key);
  while (slots_[at].flow != nobody && slots_[at].key != key) at = (at + 1) & mask;
  return at;
}

std::uint32_t FlowTable::find(const FlowKey& key) const noexcept { return slots_[place(key)].flow; }

void FlowTable::insert(const FlowKey& key, std::uint32_t flow) {
  if (3 * (size_ + 1) > 2 * slots_.size()) grow();
  Slot& slot = slots_[place(key)];
  OFP_ASSERT(slot.flow == nobody && flow != nobody);
  slot = {key, flow};
  ++size_;
}

void FlowTable::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.flow != nobody) slots_[place(slot.key)] = slot;
}

// Later entries move up, so no slot has to be marked as once taken.
bool FlowTable::erase(const FlowKey& key) noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t free = place(key);
  if (slots_[free].flow == nobody) return false;
  for (std::size_t at = (free + 1) & mask; slots_[at].flow != nobody; at = (at + 1) & mask) {
    const std::size_t wanted = home(slots_[at].key);
    if (((at - wanted) & mask) < ((at - free) & mask)) continue;  // it would be before its home
    slots_[free] = slots_[at];
    free = at;
  }
  slots_[free] = {};
  --size_;
  return true;
}

}  // namespace offpath::tcp
