// A second mapping of a program's memory that is already mapped. It lasts as long as this object, even if the channel
// that brought the memory ends.
#pragma once

#include <utility>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::agent {

class MappedAgain {
 public:
  [[nodiscard]] static Result<MappedAgain> of(MutableBytes mapped);
  MappedAgain(MappedAgain&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedAgain& operator=(MappedAgain&&) = delete;
  ~MappedAgain();
  [[nodiscard]] MutableBytes bytes() const noexcept { return bytes_; }
  // The mapping is the caller's from now on.
  [[nodiscard]] MutableBytes release() noexcept { return std::exchange(bytes_, {}); }

 private:
  explicit MappedAgain(MutableBytes bytes) noexcept : bytes_(bytes) {}
  MutableBytes bytes_;
};

}  // namespace offpath::agent
