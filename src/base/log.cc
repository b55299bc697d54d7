#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>
#include <string>

namespace offpath {

namespace {

void to_standard_error(LogLevel level, std::string_view line, void*) {
  static constexpr const char* names[] = {"debug", "info", "warning", "error", ""};
  std::fprintf(stderr, "offpath: %s: %.*s\n", names[static_cast<int>(level)], static_cast<int>(line.size()),
               line.data());
}

constexpr std::size_t line_bytes_max = 4096;

constexpr bool is_control(char byte) noexcept { return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f; }
constexpr bool may_begin_control(char byte) noexcept { return is_control(byte) || byte == '\xc2'; }

// Text from other processes (keys, names) must neither end a log line nor steer a terminal. Control characters of two
// bytes in UTF-8 are those of C1.
std::string one_line(std::string_view line) {
  std::string text;
  const std::string_view shown = line.substr(0, line_bytes_max);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const bool c1 = shown[i] == '\xc2' && i + 1 < shown.size() && static_cast<unsigned char>(shown[i + 1]) < 0xa0;
    if (c1)
      text += fmt::format("\\xc2\\x{:02x}", static_cast<unsigned char>(shown[++i]));
    else if (is_control(shown[i]))
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(shown[i]));
    else
      text += shown[i];
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
