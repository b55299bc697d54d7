#include "pool/glob.h"

#include <cstddef>

namespace offpath::pool {

namespace {

// Matches one character against the set at pattern[at] == '['; moves `at` past it. An unclosed set is a plain '['.
bool set_matches(std::string_view pattern, std::size_t& at, char character) noexcept {
  const std::size_t close = pattern.find(']', at + 2);
  if (close == std::string_view::npos) return pattern[at++] == character;
  std::size_t i = at + 1;
  const bool negated = pattern[i] == '!';
  if (negated) ++i;
  bool found = false;
  for (; i < close; ++i) {
    if (i + 2 < close && pattern[i + 1] == '-') {
      found |= pattern[i] <= character && character <= pattern[i + 2];
      i += 2;
    } else {
      found |= pattern[i] == character;
    }
  }
  at = close + 1;
  return found != negated;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
  if (pattern.empty()) return true;
  constexpr std::size_t nowhere = std::string_view::npos;
  std::size_t p = 0, t = 0, star = nowhere, resume = 0;
  while (t < text.size()) {
    std::size_t next = p;
    bool matched = false;
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = p++;
        resume = t;
        continue;
      }
      if (pattern[p] == '[') {
        matched = set_matches(pattern, next, text[t]);
      } else {
        matched = pattern[p] == '?' || pattern[p] == text[t];
        ++next;
      }
    }
    if (matched) {
      p = next;
      ++t;
    } else if (star != nowhere) {  // the last star takes one character more
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view glob_prefix(std::string_view pattern) noexcept { return pattern.substr(0, pattern.find_first_of("*?[")); }

std::string literal_glob(std::string_view text) {
  std::string made;
  for (const char each : text) {
    if (each == '*' || each == '?' || each == '[') made += {'[', each, ']'};
    else made += each;
  }
  return made;
}

}  // namespace offpath::pool
