// Text that people and other programs write: blanks around it, and numbers that are all of it.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace offpath {

// Without the blanks at its two ends.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// The number that `text` is from its first byte to its last; nothing where it is none or does not fit Number.
template <class Number>
[[nodiscard]] std::optional<Number> number_of(std::string_view text) noexcept {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

}  // namespace offpath
