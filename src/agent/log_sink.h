// Where log lines go: standard error, formatted by spdlog. To systemd's journal without a time but with a priority.
//
// Whoever reads standard error may be slow, or stuck. So lines go to a bounded queue, and a thread writes them; lines
// that find no room are dropped, and the line behind those that were there says how many. spdlog's own queue would not
// do: its end waits for its thread without a bound.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace spdlog {
class logger;
}

namespace offpath::agent {

struct AgentLogOptions {
  int fd = STDERR_FILENO;
  std::size_t waiting_bytes_max = 1 << 20;
  TimeNs end_within_ns = second_ns;  // the end waits so long for lines to be written
};

class AgentLog {
 public:
  explicit AgentLog(LogLevel level, const AgentLogOptions& options = {});  // takes base/log.h over
  ~AgentLog();                                                             // gives it back
  AgentLog(const AgentLog&) = delete;
  AgentLog& operator=(const AgentLog&) = delete;

  // Until then each line is written before the call returns. The thread has the rights of its caller.
  [[nodiscard]] Status begin_thread();

 private:
  class Lines;
  static void write(LogLevel level, std::string_view line, void* self);
  AgentLogOptions options_;
  std::shared_ptr<Lines> lines_;
  std::shared_ptr<spdlog::logger> logger_;
  bool journal_;
};

}  // namespace offpath::agent
