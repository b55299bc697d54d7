#include "md/files/text_lines.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

namespace md {

TextLines::TextLines(const std::string& path) : path_(path) {
  std::ifstream file(path, std::ios::binary);
  text_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) throw BadInput(path + ": cannot be read");
}

std::optional<std::string_view> TextLines::next() {
  ++number_;
  if (at_ >= text_.size()) return std::nullopt;
  const std::size_t end = text_.find('\n', at_);
  std::string_view line = std::string_view(text_).substr(at_, end == std::string::npos ? end : end - at_);
  at_ = end == std::string::npos ? text_.size() : end + 1;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

void TextLines::fail(const std::string& what) const {
  throw BadInput(path_ + ":" + std::to_string(number_) + ": " + what);
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::optional<double> number_of(std::string_view word) {
  std::string text(word);
  for (char& letter : text) {
    if (letter == 'D' || letter == 'd') letter = 'e';
  }
  const char* first = text.data();
  if (text.starts_with('+')) ++first;
  double value = 0;
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> whole_number_of(std::string_view word) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace md
