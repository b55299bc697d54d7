#include "base/log.h"

#include <atomic>
#include <cstdio>

namespace offpath {

namespace {

void to_standard_error(LogLevel level, std::string_view line, void*) {
  static constexpr const char* names[] = {"debug", "info", "warning", "error", ""};
  std::fprintf(stderr, "offpath: %s: %.*s\n", names[static_cast<int>(level)], static_cast<int>(line.size()), line.data());
}

struct Log {
  std::atomic<LogLevel> level = LogLevel::warning;
  LogSink sink = to_standard_error;
  void* context = nullptr;
} log_state;

}  // namespace

void set_log(LogLevel level, LogSink sink, void* context) noexcept {
  log_state.level.store(level, std::memory_order_relaxed);
  log_state.sink = sink != nullptr ? sink : to_standard_error;
  log_state.context = context;
}

void set_log_level(LogLevel level) noexcept { log_state.level.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) noexcept { return level >= log_state.level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view line) noexcept { log_state.sink(level, line, log_state.context); }

}  // namespace offpath
