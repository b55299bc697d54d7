// Patterns over keys, as in a shell: * any characters, ? one, [abc] [a-z] [!abc] one of a set.
#pragma once

#include <string>
#include <string_view>

namespace offpath::pool {

// An empty pattern matches everything. Linear in pattern times text, whatever the pattern.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

// What every text that matches begins with. All of the pattern: nothing but that very text matches, unless it is empty.
[[nodiscard]] std::string_view glob_prefix(std::string_view pattern) noexcept;

// A pattern that this very text matches, and no other.
[[nodiscard]] std::string literal_glob(std::string_view text);

}  // namespace offpath::pool
