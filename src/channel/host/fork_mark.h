#pragma once

#include <unistd.h>

#include <cstdint>

namespace offpath::channel {

// A page that is zero in a forked child (MADV_WIPEONFORK): one load tells a child from its parent.
class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  [[nodiscard]] bool in_child() const noexcept { return mark_ != nullptr ? *mark_ == 0 : getpid() != pid_; }

 private:
  // null: no mapping was available, and getpid() is used
  volatile std::uint64_t* mark_ = nullptr;
  pid_t pid_ = getpid();
};

}  // namespace offpath::channel
