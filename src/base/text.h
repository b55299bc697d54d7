// Text that people and other programs write: trimming blanks, parsing a number that fills the whole text, and making
// text of any bytes safe to print.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
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

// A control character of ASCII.
[[nodiscard]] constexpr bool is_control(char byte) noexcept {
  return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F;
}

// Bytes of the control character at the beginning of `text`: 1 in ASCII, 2 for those of C1 in UTF-8; otherwise 0.
[[nodiscard]] constexpr std::size_t control_bytes(std::string_view text) noexcept {
  if (text.empty()) return 0;
  if (is_control(text[0])) return 1;
  return text.size() > 1 && text[0] == '\xC2' && static_cast<unsigned char>(text[1]) < 0xA0 ? 2 : 0;
}

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the well-formed UTF-8 character at the beginning of `text`, or 0.
[[nodiscard]] std::size_t character_bytes(std::string_view text) noexcept;

// The whole text is well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

// The text, with control characters and bytes outside well-formed UTF-8 replaced. At most three times as long.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace offpath
