// Where log lines go: standard error, by spdlog. To systemd's journal without a time but with a priority.
#pragma once

#include <memory>

#include "base/log.h"

namespace spdlog {
class logger;
}

namespace offpath::agent {

class AgentLog {
 public:
  explicit AgentLog(LogLevel level);  // takes base/log.h over
  ~AgentLog();                        // gives it back
  AgentLog(const AgentLog&) = delete;
  AgentLog& operator=(const AgentLog&) = delete;

 private:
  static void write(LogLevel level, std::string_view line, void* self);
  std::shared_ptr<spdlog::logger> logger_;
  bool journal_;
};

}  // namespace offpath::agent
