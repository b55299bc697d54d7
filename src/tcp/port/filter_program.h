// Writes classic BPF programs, whose conditional jumps go forward to labels.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"

namespace offpath::tcp {

// Ancillary data, which is not in the frame: SKF_AD_ + ….
inline constexpr auto filter_ancillary = static_cast<std::uint32_t>(SKF_AD_OFF);
// Offsets counted from the network header.
inline constexpr auto filter_network = static_cast<std::uint32_t>(SKF_NET_OFF);

class FilterProgram {
 public:
  class Label {
    friend class FilterProgram;
    std::vector<std::pair<std::size_t, bool>> from_{};  // jumps, and whether theirs is the one if equal
  };

  void add(int code, std::uint32_t k = 0) { steps_.push_back({static_cast<std::uint16_t>(code), 0, 0, k}); }
  void load(int size, std::uint32_t from) { add(BPF_LD | size | BPF_ABS, from); }  // into A
  void jump_if(std::uint32_t a, Label& to) { jump(a, &to, nullptr); }
  void jump_unless(std::uint32_t a, Label& to) { jump(a, nullptr, &to); }
  void jump(Label& to) { jump(0, &to, &to); }
  void place(const Label& label) {  // here
    for (const auto& [at, if_equal] : label.from_) {
      const std::size_t by = steps_.size() - at - 1;
      OFP_ASSERT(by <= 255);
      (if_equal ? steps_[at].jt : steps_[at].jf) = static_cast<std::uint8_t>(by);
    }
  }
  [[nodiscard]] std::vector<sock_filter> take() noexcept { return std::move(steps_); }

 private:
  void jump(std::uint32_t a, Label* if_equal, Label* otherwise) {
    if (if_equal != nullptr) if_equal->from_.emplace_back(steps_.size(), true);
    if (otherwise != nullptr) otherwise->from_.emplace_back(steps_.size(), false);
    add(BPF_JMP | BPF_JEQ | BPF_K, a);
  }
  std::vector<sock_filter> steps_;
};

}  // namespace offpath::tcp
