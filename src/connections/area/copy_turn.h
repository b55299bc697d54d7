// A call's turn to copy in one direction of a flow. A short copy is made under the area's lock. For a longer one the
// call gives that lock up and takes the direction's, so only calls in the same direction of the same flow wait for it.
// A process that dies in between has published nothing. Order of locks: out, in, the area's.
#pragma once

#include <cstddef>

#include "connections/area/socket_records.h"

namespace offpath::channel {

class CopyTurn {
 public:
  using Handle = std::uint32_t;
  static constexpr std::size_t short_bytes = 1024;  // a copy that takes about as long as the locks that it would need

  CopyTurn(const SocketRecords& records, Handle handle, Way way) noexcept
      : records_(records), handle_(handle), way_(way) {}
  ~CopyTurn() {
    if (own_ != nullptr) own_->unlock();
  }
  CopyTurn(const CopyTurn&) = delete;
  CopyTurn& operator=(const CopyTurn&) = delete;

  // Gets the turn for a copy of that many bytes of a valid handle. `lock`: the area's, which is held. True: it was
  // given up meanwhile, so the caller looks again.
  template <class Lock>
  bool wait(Lock& lock, std::size_t bytes) noexcept {
    if (own_ != nullptr || (bytes <= short_bytes && !records_.cell(handle_).is_copied(way_))) return false;
    lock.unlock();
    own_ = &records_.turn_lock(handle_, way_);
    own_->lock();
    lock.lock();
    set_copied(false);  // the bit may be that of a process that died
    return true;
  }
  // True: the area's lock was given up meanwhile. The flow may have ended, but its handle is still this flow's.
  template <class Lock, class Copy>
  bool copy(Lock& lock, const Copy& bytes) noexcept {
    if (own_ == nullptr) return bytes(), false;
    set_copied(true);
    lock.unlock();
    bytes();
    lock.lock();
    set_copied(false);
    return true;
  }

 private:
  void set_copied(bool is) const noexcept {
    std::uint8_t& copying = records_.cell(handle_).copying;
    const std::uint8_t bit = SocketCell::bit(way_);
    copying = static_cast<std::uint8_t>(is ? copying | bit : copying & ~bit);
  }
  const SocketRecords& records_;
  const Handle handle_;
  const Way way_;
  TurnLock* own_ = nullptr;
};

}  // namespace offpath::channel
