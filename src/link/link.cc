#include "link/link.h"

#include <sys/mman.h>

#include <utility>

namespace offpath::link {

// The default for links between machines: descriptors do not travel.
Status AgentLink::hand_over(std::uint64_t, int) {
  return fail(Error::unsupported, "a file cannot be handed over to a program on another machine");
}

Result<Fd> HostLink::take_descriptor(std::uint64_t, TimeNs) {
  return fail(Error::unsupported, "an agent on another machine cannot hand over a file");
}

Status HostLink::offer(std::uint64_t, int) {
  return fail(Error::unsupported, "a file cannot be offered to an agent on another machine");
}

SegmentMemory& SegmentMemory::operator=(SegmentMemory&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  data_ = std::exchange(other.data_, nullptr);
  length_ = std::exchange(other.length_, 0);
  fd_ = std::move(other.fd_);
  user_ = std::move(other.user_);
  return *this;
}

void SegmentMemory::unmap() noexcept {
  if (data_ != nullptr && user_)
    user_->unmap(data_, length_);
  else if (data_ != nullptr)
    munmap(data_, length_);
}

}  // namespace offpath::link
