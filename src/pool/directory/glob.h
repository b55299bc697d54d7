// Patterns over keys, as in a shell: * any characters, ? one, [abc] [a-z] [!abc] one of a set.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace offpath::pool {

// An empty pattern matches everything. What is before the first * and behind the last takes time as the pattern is
// long; what is between, at most as pattern times text.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

// Of a pattern that somebody else chose: so that no object takes longer to match than some milliseconds.
inline constexpr std::size_t glob_middle_bytes_max = 255;
[[nodiscard]] Status check_glob(std::string_view pattern);

// The beginning that all matching texts share. All of the pattern: nothing but that very text matches, unless it is
// empty.
[[nodiscard]] std::string_view glob_prefix(std::string_view pattern) noexcept;

// A pattern that this very text matches, and no other.
[[nodiscard]] std::string literal_glob(std::string_view text);

}  // namespace offpath::pool
