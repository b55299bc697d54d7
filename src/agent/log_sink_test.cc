#include "agent/log_sink.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "base/fd.h"

namespace offpath::agent {
namespace {

// Replaces standard error.
struct Pipe {
  Fd reading, writing;
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    reading = Fd(ends[0]);
    writing = Fd(ends[1]);
  }
  // The next line without its prefix; empty at the end.
  [[nodiscard]] std::string read_line() {
    std::array<char, 65536> bytes;
    for (;;) {
      if (const std::size_t end = kept.find('\n'); end != std::string::npos) {
        const std::string line = kept.substr(0, end);
        kept.erase(0, end + 1);
        return line.substr(std::min(line.find(' ', line.find(' ') + 1) + 1, line.size()));
      }
      const ssize_t got = read(reading.get(), bytes.data(), bytes.size());
      if (got <= 0) return {};
      kept.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  std::string kept;
};

TEST(AgentLog, WithoutAThreadLinesAreThereAtOnce) {
  Pipe pipe;
  const AgentLog agent_log(LogLevel::info, {.fd = pipe.writing.get()});
  log(LogLevel::warning, "first {}", 1);
  EXPECT_EQ(pipe.read_line(), "first 1");
}

TEST(AgentLog, AsJsonALineIsAnObject) {
  Pipe pipe;
  const AgentLog agent_log(LogLevel::info, {.format = LogFormat::json, .fd = pipe.writing.get()});
  log(LogLevel::warning, "a \"name\"\nand more");
  std::array<char, 1024> bytes{};
  const ssize_t got = read(pipe.reading.get(), bytes.data(), bytes.size());
  ASSERT_GT(got, 0);
  const std::string line(bytes.data(), static_cast<std::size_t>(got));
  EXPECT_TRUE(line.starts_with(R"({"time":"20)")) << line;
  const std::string end =
      fmt::format(R"(,"level":"warning","process":{},"message":"a \"name\"\\x0aand more"}})", getpid()) + "\n";
  EXPECT_TRUE(line.ends_with(end)) << line;
}

TEST(AgentLog, WhatNobodyReadsHoldsUpNobodyAndIsCounted) {
  constexpr int count = 20'000;
  Pipe pipe;
  AgentLog agent_log(LogLevel::info, {.fd = pipe.writing.get(), .waiting_bytes_max = 100'000});
  ASSERT_TRUE(agent_log.begin_thread());
  for (int i = 0; i < count; ++i) log(LogLevel::info, "line {}", i);  // would block without the queue
  int next = 0, dropped = 0;
  while (next < count) {
    const std::string line = pipe.read_line();
    if (line.starts_with("line ")) {
      ASSERT_EQ(line, fmt::format("line {}", next)) << "those that were dropped are counted where they were";
      ++next;
      continue;
    }
    int some = 0;
    std::from_chars(line.data(), line.data() + line.size(), some);
    ASSERT_EQ(line, fmt::format("{} lines were dropped: standard error was not read", some));
    ASSERT_GT(some, 0);
    dropped += some;
    next += some;
  }
  EXPECT_EQ(next, count);
  EXPECT_GT(dropped, 0);
  log(LogLevel::info, "there is room again");
  EXPECT_EQ(pipe.read_line(), "there is room again");
}

TEST(AgentLog, RemembersTheNewestLinesAlsoThoseThatAreNotWritten) {
  Pipe pipe;
  AgentLog agent_log(LogLevel::warning, {.fd = pipe.writing.get()});
  for (int i = 0; i < 100; ++i) log(LogLevel::info, "line {}", i);
  log(LogLevel::debug, "details");
  log(LogLevel::warning, "{}", std::string(2 * RecentLines::text_bytes_max, 'x'));
  EXPECT_TRUE(pipe.read_line().starts_with("xx"));
  const std::vector<LogLine> lines = agent_log.newest_last();
  ASSERT_EQ(lines.size(), RecentLines::kept_max);
  EXPECT_EQ(lines.front().text, "line 81");
  EXPECT_EQ(lines[RecentLines::kept_max - 2].text, "line 99");
  EXPECT_EQ(lines.back().text, std::string(RecentLines::text_bytes_max, 'x'));
  EXPECT_EQ(lines.back().level, LogLevel::warning);
  agent_log.set_level(LogLevel::info);
  log(LogLevel::info, "now it is written");
  EXPECT_EQ(pipe.read_line(), "now it is written");
}

TEST(AgentLog, EndsThoughNobodyReads) {
  Pipe pipe;
  {
    AgentLog agent_log(LogLevel::info, {.fd = pipe.writing.get(), .end_within_ns = millisecond_ns});
    ASSERT_TRUE(agent_log.begin_thread());
    for (int i = 0; i < 10'000; ++i) log(LogLevel::info, "line {}", i);
  }
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(pipe.read_line(), fmt::format("line {}", i));
}

TEST(AgentLog, WhatWaitsIsWrittenBeforeTheEnd) {
  Pipe pipe;
  {
    AgentLog agent_log(LogLevel::info, {.fd = pipe.writing.get(), .end_within_ns = 60 * second_ns});
    ASSERT_TRUE(agent_log.begin_thread());
    for (int i = 0; i < 100; ++i) log(LogLevel::info, "line {}", i);
  }
  ASSERT_EQ(fcntl(pipe.reading.get(), F_SETFL, O_NONBLOCK), 0);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(pipe.read_line(), fmt::format("line {}", i));
}

TEST(AgentLogDeathTest, LinesBeforeAnAssertionAreWritten) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto die = [] {
    AgentLog agent_log(LogLevel::info);
    OFP_ASSERT(agent_log.begin_thread());
    for (int i = 0; i < 1000; ++i) log(LogLevel::info, "line {}", i);
    OFP_ASSERT(1 + 1 == 3);
  };
  EXPECT_DEATH(die(), "line 999\n");
}

}  // namespace
}  // namespace offpath::agent
