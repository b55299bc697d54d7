// Log output: standard error, formatted by spdlog. For systemd's journal lines have a priority and no time. As JSON,
// each line is an object with time, level, process and message.
//
// The reader of standard error may be slow or stuck. So lines go to a bounded queue, and a thread writes them. Lines
// that find no room are dropped, and a note after the queued lines gives their number. spdlog's own queue is not used,
// because its destructor waits for its thread without a bound.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "agent/recent_lines.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace spdlog {
class logger;
}

namespace offpath::agent {

enum class LogFormat : std::uint8_t { text, json };

struct AgentLogOptions {
  LogFormat format = LogFormat::text;
  std::string label{};  // what each line of text begins with, such as "core 1: "
  int fd = STDERR_FILENO;
  std::size_t waiting_bytes_max = 1 << 20;
  TimeNs end_within_ns = second_ns;  // at the end, the longest wait for lines to be written
};

class AgentLog {
 public:
  explicit AgentLog(LogLevel level, const AgentLogOptions& options = {});  // takes base/log.h over
  ~AgentLog();                                                             // gives it back
  AgentLog(const AgentLog&) = delete;
  AgentLog& operator=(const AgentLog&) = delete;

  // Until this call each line is written before log() returns. The thread has the privileges of its caller.
  [[nodiscard]] Status begin_thread();
  void set_level(LogLevel level) noexcept;  // of what is written
  // The newest lines, also those of level info that are not written.
  [[nodiscard]] std::vector<LogLine> newest_last() const { return recent_.newest_last(); }

 private:
  class Lines;
  static void write(LogLevel level, std::string_view line, void* self);
  AgentLogOptions options_;
  std::shared_ptr<Lines> lines_;
  std::shared_ptr<spdlog::logger> logger_;
  std::atomic<LogLevel> level_;
  bool journal_;  // and lines are text
  RecentLines recent_;
};

}  // namespace offpath::agent
