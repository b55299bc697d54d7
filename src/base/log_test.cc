#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace offpath {
namespace {

struct Line {
  LogLevel level;
  std::string text;
  bool operator==(const Line&) const = default;
};

void keep(LogLevel level, std::string_view line, void* context) {
  static_cast<std::vector<Line>*>(context)->push_back({level, std::string(line)});
}

class Log : public testing::Test {
 protected:
  void TearDown() override { set_log(LogLevel::warning, nullptr, nullptr); }
  std::vector<Line> lines_;
};

TEST_F(Log, LinesReachTheSinkFormatted) {
  set_log(LogLevel::debug, keep, &lines_);
  log(LogLevel::info, "{} of {}", 1, "two");
  EXPECT_EQ(lines_, (std::vector<Line>{{LogLevel::info, "1 of two"}}));
}

TEST_F(Log, LinesBelowTheLevelDoNot) {
  set_log(LogLevel::warning, keep, &lines_);
  log(LogLevel::debug, "a");
  log(LogLevel::info, "b");
  log(LogLevel::warning, "c");
  log(LogLevel::error, "d");
  EXPECT_EQ(lines_, (std::vector<Line>{{LogLevel::warning, "c"}, {LogLevel::error, "d"}}));
  EXPECT_FALSE(log_enabled(LogLevel::info));
  EXPECT_TRUE(log_enabled(LogLevel::error));
}

// A line may contain text that other processes wrote: keys, names, errors.
TEST_F(Log, ALineIsOneLineOfBoundedLength) {
  set_log(LogLevel::info, keep, &lines_);
  log(LogLevel::info, "key {}",
      "a\n2026 error: forged\r\x1b[2J\x7f\xc2\x9b"
      "1m\tz\xc3\xa9");
  log(LogLevel::info, "{}", std::string(64 << 10, 'k'));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].text, "key a\\x0a2026 error: forged\\x0d\\x1b[2J\\x7f\\xc2\\x9b1m\\x09z\xc3\xa9");
  EXPECT_EQ(lines_[1].text, std::string(4096, 'k') + "... (65536 bytes)");
}

TEST_F(Log, OffIsSilent) {
  set_log(LogLevel::off, keep, &lines_);
  log(LogLevel::error, "a");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, WithoutASinkItIsStandardError) {
  set_log(LogLevel::info, nullptr, nullptr);
  testing::internal::CaptureStderr();
  log(LogLevel::error, "lost {}", 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "offpath: error: lost 3\n");
}

}  // namespace
}  // namespace offpath
