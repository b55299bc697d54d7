// The handles whose rings may have memory to give back, and how long their streams have stood still. A look,
// by any process, passes over a part of them, from where the last one has stopped.
#pragma once

#include "connections/area/socket_records.h"

namespace offpath::channel {

class MemoryHolders {
 public:
  using Handle = std::uint32_t;
  explicit MemoryHolders(const SocketRecords& records) noexcept
      : records_(records), set_(records.set(SocketRecords::Set::memory)) {}

  void note(Handle handle) noexcept {
    if (set_.has(handle)) return;
    set_.add(handle);
    SocketsShared::set(records_.shared().has_memory, true);
  }
  void remove(Handle handle) noexcept { set_.remove(handle); }
  // Without the lock: whether there may be any.
  [[nodiscard]] bool any() const noexcept { return SocketsShared::read(records_.shared().has_memory); }
  // Looks, and says so to calls without the lock.
  [[nodiscard]] bool find_any() noexcept {
    const bool there = !set_.empty();
    if (!there) SocketsShared::set(records_.shared().has_memory, false);
    return there;
  }
  [[nodiscard]] HandlePass pass() noexcept { return {set_, records_.shared().next_look}; }

  // How long the streams of the handle have stood still.
  [[nodiscard]] TimeNs rested(Handle handle, TimeNs now) noexcept {
    const SocketCell& at = records_.cell(handle);
    const std::uint64_t moved = at.offered + at.acknowledged + at.received + at.read;
    Rest& still = records_.rest(handle);
    if (still.since == 0 || still.moved != moved) still = {moved, now};
    return now - still.since;
  }
  // Its rest begins anew, although no stream has moved.
  void stir(Handle handle) noexcept { records_.rest(handle).since = 0; }

 private:
  const SocketRecords& records_;
  HandleSet set_;
};

}  // namespace offpath::channel
