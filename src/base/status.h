// Errors as values. Every function that can fail because of a peer, an input or the machine
// returns Result<T>; our own bugs stop the program with OFP_ASSERT, in release builds too.
//
// The numbers are the ones of the C interface (include/offpath/offpath.h): src/host asserts that
// they agree. New errors go at the end of the table, never in between.
//
// Read this first in src/base, then bytes.h, clock.h and fd.h, which most code needs. The other files are independent
// of each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <tl/expected.hpp>

namespace offpath {

// name, number, meaning
// clang-format off: a list
#define OFFPATH_ERRORS(X)                                                         \
  X(would_block, 1, "would block: no room or no credit right now")                \
  X(timeout, 2, "the deadline passed")                                            \
  X(invalid, 3, "invalid argument")                                               \
  X(not_found, 4, "not found")                                                    \
  X(exists, 5, "exists already")                                                  \
  X(schema, 6, "the data does not fit the schema")                                \
  X(too_large, 7, "larger than the limit")                                        \
  X(stale, 8, "the announced memory was withdrawn or announced again")             \
  X(unannounced, 9, "the memory was never announced")                             \
  X(unreadable, 10, "the announced memory cannot be read")                        \
  X(denied, 11, "permission denied")                                              \
  X(version, 12, "the two sides speak different versions")                        \
  X(peer_lost, 13, "the other side is gone")                                      \
  X(protocol, 14, "the other side sent invalid bytes")                            \
  X(forked, 15, "a channel of the parent process was used in a forked child")     \
  X(no_memory, 16, "out of memory")                                               \
  X(no_space, 17, "no space left on the device")                                  \
  X(io, 18, "input/output error")                                                 \
  X(unsupported, 19, "not supported here")                                        \
  X(closed, 20, "closed")                                                         \
  X(cancelled, 21, "cancelled")                                                   \
  X(function_failed, 22, "a function of a plug-in failed")
// clang-format on

enum class Error : std::int32_t {
#define X(name, number, text) name = number,
  OFFPATH_ERRORS(X)
#undef X
};

[[nodiscard]] std::string_view error_name(Error code) noexcept;
[[nodiscard]] std::string_view error_text(Error code) noexcept;

struct Failure {
  Error code;
  std::string message;  // names the field and both values; never empty
};

template <class T>
using Result = tl::expected<T, Failure>;
using Status = Result<void>;

// Out of line and cold: there are a thousand callers.
[[nodiscard, gnu::cold]] tl::unexpected<Failure> fail_formatted(Error code, fmt::string_view format,
                                                                fmt::format_args args);
template <class... Args>
[[nodiscard]] tl::unexpected<Failure> fail(Error code, fmt::format_string<Args...> format, Args&&... args) {
  return fail_formatted(code, format, fmt::make_format_args(args...));
}

// A failed system call: maps errno once, and names the call.
[[nodiscard]] tl::unexpected<Failure> fail_errno(int error_number, std::string_view call);

// A text from another process, such as a key, shortened for messages: the beginning of a long text, and its length.
[[nodiscard]] std::string brief(std::string_view text);

// Pass a failure on: OFP_TRY(call());   OFP_ASSIGN(auto value, call());
#define OFP_CONCAT_(a, b) a##b
#define OFP_CONCAT(a, b) OFP_CONCAT_(a, b)
#define OFP_TRY(expression)                                                      \
  do {                                                                           \
    if (auto ofp_result_ = (expression); !ofp_result_) [[unlikely]]              \
      return tl::unexpected<::offpath::Failure>(std::move(ofp_result_).error()); \
  } while (false)
#define OFP_ASSIGN_(result, target, expression)                           \
  auto result = (expression);                                             \
  if (!result) [[unlikely]]                                               \
    return tl::unexpected<::offpath::Failure>(std::move(result).error()); \
  target = std::move(*result)
#define OFP_ASSIGN(target, expression) OFP_ASSIGN_(OFP_CONCAT(ofp_result_, __LINE__), target, expression)

[[noreturn]] void assertion_failed(const char* expression, const char* file, unsigned line) noexcept;
#define OFP_ASSERT(expression) \
  (static_cast<bool>(expression) ? void(0) : ::offpath::assertion_failed(#expression, __FILE__, __LINE__))

}  // namespace offpath
