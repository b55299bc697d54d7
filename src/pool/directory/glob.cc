#include "pool/directory/glob.h"

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

constexpr std::size_t nowhere = std::string_view::npos;

// A pattern's part from its first to its last star, inclusive, and the parts before and behind it. Each element of the
// outer parts (a character, ?, a set) matches one character at the beginning or the end of a text.
struct Parts {
  std::string_view head, middle, tail;
  std::size_t tail_elements = 0;
};

Parts parts_of(std::string_view pattern) noexcept {
  const std::size_t last_close = pattern.rfind(']');
  std::size_t first = nowhere, last = nowhere, elements = 0;
  for (std::size_t at = 0; at < pattern.size(); ++elements) {
    if (pattern[at] == '*') {
      if (first == nowhere) first = at;
      last = at;
      elements = nowhere;  // 0 at the next one
    }
    const bool is_set = pattern[at] == '[' && last_close != nowhere && last_close >= at + 2;
    at = is_set ? pattern.find(']', at + 2) + 1 : at + 1;
  }
  if (first == nowhere) return {pattern, {}, {}, 0};
  return {pattern.substr(0, first), pattern.substr(first, last + 1 - first), pattern.substr(last + 1), elements};
}

bool element_matches(std::string_view pattern, std::size_t& at, char character) noexcept {
  if (pattern[at] == '[') return set_matches(pattern, at, character);
  const bool matched = pattern[at] == '?' || pattern[at] == character;
  ++at;
  return matched;
}

// Elements without stars: the number of characters of the text that they match, or `nowhere`.
std::size_t match_elements(std::string_view pattern, std::string_view text) noexcept {
  std::size_t t = 0;
  for (std::size_t p = 0; p < pattern.size(); ++t)
    if (t == text.size() || !element_matches(pattern, p, text[t])) return nowhere;
  return t;
}

// Matches a pattern that ends with a star.
bool match_stars(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0, t = 0, star = nowhere, resume = 0;
  while (t < text.size()) {
    if (pattern[p] == '*') {
      star = p++;
      resume = t;
      if (p == pattern.size()) return true;
      continue;
    }
    std::size_t next = p;
    if (element_matches(pattern, next, text[t])) {
      p = next;
      ++t;
    } else {  // the last star takes one more character
      p = star + 1;
      t = ++resume;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool is_special(char character) noexcept { return character == '*' || character == '?' || character == '['; }

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
  if (pattern.empty()) return true;
  std::size_t same = 0;
  while (same < pattern.size() && !is_special(pattern[same])) {
    if (same == text.size() || pattern[same] != text[same]) return false;
    ++same;
  }
  if (same == pattern.size()) return same == text.size();
  text.remove_prefix(same);
  const Parts parts = parts_of(pattern.substr(same));
  const std::size_t taken = match_elements(parts.head, text);
  if (taken == nowhere) return false;
  text.remove_prefix(taken);
  if (parts.middle.empty()) return text.empty();
  if (text.size() < parts.tail_elements) return false;
  if (match_elements(parts.tail, text.substr(text.size() - parts.tail_elements)) == nowhere) return false;
  return match_stars(parts.middle, text.substr(0, text.size() - parts.tail_elements));
}

Status check_glob(std::string_view pattern) {
  if (const std::size_t bytes = parts_of(pattern).middle.size(); bytes > glob_middle_bytes_max)
    return fail(Error::too_large, "a pattern has {} bytes from its first * to its last, at most {} are allowed", bytes,
                glob_middle_bytes_max);
  return {};
}

std::string_view glob_prefix(std::string_view pattern) noexcept {
  return pattern.substr(0, pattern.find_first_of("*?["));
}

std::string literal_glob(std::string_view text) {
  std::string made;
  for (const char each : text) {
    if (is_special(each))
      made += {'[', each, ']'};
    else
      made += each;
  }
  return made;
}

}  // namespace offpath::pool
