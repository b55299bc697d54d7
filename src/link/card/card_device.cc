#include "link/card/card_device.h"

#include <algorithm>

namespace offpath::link {

CardFigures CardDevices::figures() const {
  CardFigures sum;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, known] : devices_) {
    const std::shared_ptr<CardDevice> device = known.lock();
    if (!device) continue;
    const CardCounters& counters = device->counters();
    ++sum.devices;
    sum.regions += counters.regions.load(std::memory_order_relaxed);
    sum.frame_bytes += device->kept().bytes();
    sum.pinned_bytes += counters.pinned_bytes.load(std::memory_order_relaxed);
  }
  return sum;
}

void CardDevices::rest(TimeNs now) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, known] : devices_)
    if (const std::shared_ptr<CardDevice> device = known.lock()) device->bounce().rest(now);
}

TimeNs CardDevices::next_rest() const {
  TimeNs next = never;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, known] : devices_)
    if (const std::shared_ptr<CardDevice> device = known.lock()) next = std::min(next, device->bounce().next_rest());
  return next;
}

}  // namespace offpath::link
