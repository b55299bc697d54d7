#include "link/link.h"

#include <sys/mman.h>

#include <utility>

namespace offpath::link {

SegmentMemory& SegmentMemory::operator=(SegmentMemory&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) munmap(data_, length_);
  data_ = std::exchange(other.data_, nullptr);
  length_ = std::exchange(other.length_, 0);
  fd_ = std::move(other.fd_);
  return *this;
}

SegmentMemory::~SegmentMemory() {
  if (data_ != nullptr) munmap(data_, length_);
}

}  // namespace offpath::link
