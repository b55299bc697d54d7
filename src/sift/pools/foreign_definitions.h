// Definitions of pools that other members have sent, by their references (definition.h).
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace offpath::sift {

// Until there are too many: the newest are kept.
class ForeignDefinitions {
 public:
  static constexpr std::size_t kept_max = 64;
  static constexpr TimeNs sent_within_ns = 2 * second_ns;

  [[nodiscard]] const std::string* find(std::string_view reference) const {
    const auto found = texts_.find(reference);
    return found == texts_.end() ? nullptr : &found->second;
  }
  void add(std::string reference, std::string text) {
    wanted_.erase(reference);
    if (!texts_.emplace(reference, std::move(text)).second) return;
    order_.push_back(std::move(reference));
    if (order_.size() <= kept_max) return;
    texts_.erase(order_.front());
    order_.pop_front();
  }
  // Whether to ask a member that names the definition to send it; one member at a time.
  [[nodiscard]] bool want(std::string_view reference, TimeNs now) {
    std::erase_if(wanted_, [&](const auto& each) { return each.second <= now; });
    return wanted_.size() < kept_max && wanted_.emplace(reference, now + sent_within_ns).second;
  }

 private:
  std::map<std::string, std::string, std::less<>> texts_;
  std::deque<std::string> order_;
  std::map<std::string, TimeNs, std::less<>> wanted_;  // the deadline for its arrival
};

}  // namespace offpath::sift
