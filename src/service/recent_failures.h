// The newest requests that failed, for people who look at an agent's status. Requests that only waited in vain are not
// among them (channel::is_miss).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::service {

struct FailedRequest {
  TimeNs at;
  std::uint64_t channel;
  std::string program;
  Failure why;
};

class RecentFailures {
 public:
  static constexpr std::size_t kept_max = 20, text_bytes_max = 500;

  void note(TimeNs now, std::uint64_t channel, const std::string& program, const Failure& why) {
    ++count_;
    if (newest_last_.size() == kept_max) newest_last_.pop_front();
    newest_last_.push_back({now, channel, program, {why.code, why.message.substr(0, text_bytes_max)}});
  }
  [[nodiscard]] const std::deque<FailedRequest>& newest_last() const noexcept { return newest_last_; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }  // of all there were

 private:
  std::uint64_t count_ = 0;
  std::deque<FailedRequest> newest_last_;
};

}  // namespace offpath::service
