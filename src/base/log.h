// One logger: a level and a sink, set once by the program's main. The library and the agent write
// the same lines; the agent's sink is spdlog, the host library's is standard error or the user's.
#pragma once

#include <string_view>

#include <fmt/core.h>

namespace offpath {

enum class LogLevel : int { debug, info, warning, error, off };

using LogSink = void (*)(LogLevel level, std::string_view line, void* context);

void set_log(LogLevel level, LogSink sink, void* context) noexcept;  // before threads start
void set_log_level(LogLevel level) noexcept;                         // at any time
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
void log_line(LogLevel level, std::string_view line) noexcept;

[[gnu::cold]] void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args);
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_formatted(level, format, fmt::make_format_args(args...));
}

}  // namespace offpath
