// Memory of a program that is mapped already, mapped once more: this view lasts as long as it is held, whatever becomes
// of the channel by which it came.
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

 private:
  explicit MappedAgain(MutableBytes bytes) noexcept : bytes_(bytes) {}
  MutableBytes bytes_;
};

}  // namespace offpath::agent
