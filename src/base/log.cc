#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>
#include <string>

#include "base/text.h"

namespace offpath {

namespace {

void to_standard_error(LogLevel level, std::string_view line, void*) {
  static constexpr const char* names[] = {"debug", "info", "warning", "error", ""};
  std::fprintf(stderr, "offpath: %s: %.*s\n", names[static_cast<int>(level)], static_cast<int>(line.size()),
               line.data());
}

constexpr std::size_t line_bytes_max = 4096;

constexpr bool may_begin_control(char byte) noexcept { return is_control(byte) || byte == '\xc2'; }

// Text from other processes (keys, names) must neither end a log line nor steer a terminal.
std::string one_line(std::string_view line) {
  std::string text;
  const std::string_view shown = line.substr(0, line_bytes_max);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const std::size_t control = control_bytes(shown.substr(i));
    if (control == 0) text += shown[i];
    for (std::size_t byte = 0; byte < control; ++byte)
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(shown[i + byte]));
    i += control > 1;
  }
  if (shown.size() < line.size()) text += fmt::format("... ({} bytes)", line.size());
  return text;
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

void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args) {
  log_line(level, fmt::vformat(format, args));
}

void log_line(LogLevel level, std::string_view line) noexcept {
  if (line.size() <= line_bytes_max && std::ranges::none_of(line, may_begin_control))
    return log_state.sink(level, line, log_state.context);
  try {
    log_state.sink(level, one_line(line), log_state.context);
  } catch (const std::bad_alloc&) {
    log_state.sink(level, "a line that is too long for the memory there is", log_state.context);
  }
}

}  // namespace offpath
