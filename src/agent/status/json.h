// Writes JSON (RFC 8259) in one pass. Invalid UTF-8 is replaced, because names come from other programs.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace offpath::agent {

class Json {
 public:
  Json& begin_object() { return open('{'); }
  Json& end_object() { return close('}'); }
  Json& begin_list() { return open('['); }
  Json& end_list() { return close(']'); }
  Json& key(std::string_view name) {
    value(name);
    text_ += ':';
    comma_ = false;
    return *this;
  }

  Json& value(std::string_view text);
  Json& value(const char* text) { return value(std::string_view(text)); }
  Json& value(bool truth) { return raw(truth ? "true" : "false"); }
  Json& value(std::integral auto number) { return raw(fmt::format("{}", number)); }
  Json& value(double number);  // null if it is not finite
  Json& null() { return raw("null"); }
  template <class T>
  Json& member(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  Json& open(char bracket) {
    separate();
    text_ += bracket;
    comma_ = false;
    return *this;
  }
  Json& close(char bracket) {
    text_ += bracket;
    comma_ = true;
    return *this;
  }
  Json& raw(std::string_view text) {
    separate();
    text_ += text;
    return *this;
  }
  void separate() {
    if (comma_) text_ += ',';
    comma_ = true;
  }

  std::string text_;
  bool comma_ = false;
};

}  // namespace offpath::agent
