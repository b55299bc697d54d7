// Whether this build is one of a sanitizer's, where simulations take about ten times as long.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace offpath {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
inline constexpr bool is_sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool is_sanitized = false;
#endif

// A quarter of these worlds, or of the members of one: the release build tries them all, so the program has a label
// that `./dev test` always runs there (such as sim). OFFPATH_LONG (./dev test --long) tries them all here, too.
[[nodiscard]] inline std::uint64_t fewer_if_sanitized(std::uint64_t worlds) {
  return is_sanitized && std::getenv("OFFPATH_LONG") == nullptr ? (worlds + 3) / 4 : worlds;
}

}  // namespace offpath
