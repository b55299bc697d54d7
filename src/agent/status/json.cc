#include "agent/status/json.h"

#include <cmath>

#include "base/text.h"

namespace offpath::agent {

Json& Json::value(std::string_view text) {
  separate();
  text_ += '"';
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (bytes == 0) {
      text_ += replacement_character;
    } else if (first == '"' || first == '\\') {
      text_ += '\\';
      text_ += static_cast<char>(first);
    } else if (first < 0x20 || first == 0x7F) {
      text_ += fmt::format("\\u{:04x}", first);
    } else {
      text_ += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  text_ += '"';
  return *this;
}

Json& Json::value(double number) { return std::isfinite(number) ? raw(fmt::format("{}", number)) : null(); }

}  // namespace offpath::agent
