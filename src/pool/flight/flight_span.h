// A Flight call's span for OpenTelemetry: its times, its end, and the client's span from the header "traceparent" (W3C
// Trace Context).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace offpath::pool {

struct TraceContext {
  std::string trace, span;  // 32 and 16 hexadecimal digits
  bool sampled = false;

  // Empty if the header is not valid; the call then begins a trace of its own. Later versions may append fields.
  [[nodiscard]] static std::optional<TraceContext> parse(std::string_view header) {
    constexpr std::size_t length = 55;  // 00-TRACE-SPAN-FLAGS
    const auto is_hex = [](std::string_view text) {
      return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
    };
    const auto is_zero = [](std::string_view text) { return text.find_first_not_of('0') == text.npos; };
    if (header.size() < length || header[2] != '-' || header[35] != '-' || header[52] != '-') return {};
    const std::string_view version = header.substr(0, 2), trace = header.substr(3, 32), span = header.substr(36, 16),
                           flags = header.substr(53, 2);
    if (!is_hex(version) || !is_hex(trace) || !is_hex(span) || !is_hex(flags) || version == "ff" || is_zero(trace) ||
        is_zero(span))
      return {};
    if (header.size() > length && (version == "00" || header[length] != '-')) return {};
    const char low = flags[1];
    return TraceContext{std::string(trace), std::string(span), (low - (low <= '9' ? '0' : 'a' - 10)) % 2 != 0};
  }
};

struct FlightSpan {
  std::string method;
  std::optional<TraceContext> parent;
  std::int64_t begin_ns = 0, end_ns = 0;  // since 1970
  std::string error;                      // empty: it succeeded
};

}  // namespace offpath::pool
