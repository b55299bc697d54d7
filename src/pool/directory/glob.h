// Patterns over keys, as in a shell: * any characters, ? one, [abc] [a-z] [!abc] one of a set.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace offpath::pool {

// An empty pattern matches everything. The parts before the first * and behind the last take time proportional to the
// pattern; the part between, at most to pattern times text.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

// A bound on patterns of other processes: matching one object takes some milliseconds at most.
inline constexpr std::size_t glob_middle_bytes_max = 255;
[[nodiscard]] Status check_glob(std::string_view pattern);

// The prefix of all matching texts. If it is the whole pattern and not empty, only that text matches.
[[nodiscard]] std::string_view glob_prefix(std::string_view pattern) noexcept;

// A pattern that matches exactly this text.
[[nodiscard]] std::string literal_glob(std::string_view text);

}  // namespace offpath::pool
