#include "link/control/witness.h"

#include <atomic>

#include "link/control/authentication.h"
#include "wire/channel_layout.h"

namespace offpath::link {

Witness::Witness(MutableBytes channel, std::uint64_t there) noexcept
    : here_(reinterpret_cast<Value*>(channel.subspan(wire::ChannelLayout::witness_line, bytes).data())),
      there_(there + wire::ChannelLayout::witness_line) {}

void Witness::renew() {
  if (used_ == fresh_.size()) {
    fill_random(std::as_writable_bytes(std::span(fresh_)));
    used_ = 0;
  }
  stored_ = fresh_[used_++];
  seen_ = {};
  for (std::size_t i = 0; i < stored_.size(); ++i)
    std::atomic_ref((*here_)[i]).store(stored_[i], std::memory_order_relaxed);
}

}  // namespace offpath::link
