// Text that people and other programs write: trimming blanks, and parsing a number that fills the whole text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace offpath {

// `text` without blanks at its two ends.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Parses all of `text` as a number; nullopt if it is not a number or does not fit Number.
template <class Number>
[[nodiscard]] std::optional<Number> number_of(std::string_view text) noexcept {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

}  // namespace offpath
