// The newest lines of the agent's log, for its status page. Lines are noted by any thread, without allocating memory:
// a line about missing memory is noted, too.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace offpath::agent {

struct LogLine {
  LogLevel level;
  std::int64_t at_ns;  // by CLOCK_REALTIME
  std::string text;
};

class RecentLines {
 public:
  static constexpr std::size_t kept_max = 20, text_bytes_max = 500;

  void note(LogLevel level, std::int64_t at_ns, std::string_view text) noexcept {
    const std::lock_guard lock(mutex_);
    Line& line = lines_[count_++ % kept_max];
    line.level = level;
    line.at_ns = at_ns;
    line.bytes = text.copy(line.text.data(), text_bytes_max);
  }
  [[nodiscard]] std::vector<LogLine> newest_last() const {
    std::vector<LogLine> all;
    const std::lock_guard lock(mutex_);
    for (std::size_t i = count_ - std::min(count_, kept_max); i < count_; ++i) {
      const Line& line = lines_[i % kept_max];
      all.push_back({line.level, line.at_ns, {line.text.data(), line.bytes}});
    }
    return all;
  }

 private:
  struct Line {
    LogLevel level = LogLevel::off;
    std::int64_t at_ns = 0;
    std::size_t bytes = 0;
    std::array<char, text_bytes_max> text;
  };
  mutable std::mutex mutex_;
  std::array<Line, kept_max> lines_;
  std::size_t count_ = 0;
};

}  // namespace offpath::agent
