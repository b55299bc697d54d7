#include "telemetry/host_sampler/pattern.h"

#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

int ofs_pattern_captures(const char* pattern) {
  int captures = 0;
  for (; *pattern != '\0'; ++pattern) {
    if (*pattern == '\\') {
      if (*++pattern == '\0') return -1;
    } else if (*pattern == '{') {
      if (*++pattern != '}' || ++captures > OFS_CAPTURES_MAX) return -1;
    } else if (*pattern == '}') {
      return -1;
    }
  }
  return captures;
}

// Skips a word that should be a number but is not, so that later numbers are still found.
static const char* word_end(const char* at, const char* end) {
  while (at < end && !is_blank(*at)) ++at;
  return at;
}

bool ofs_match(const char* pattern, const char* line, const char* end, const struct ofs_capture* captures,
               uint64_t* bits, bool* present) {
  // Stored only after the whole line has matched: a line that only begins like it must not change values.
  uint64_t found[OFS_CAPTURES_MAX];
  bool is_number[OFS_CAPTURES_MAX];
  const char* at = line;
  int count = 0;
  for (const char* p = pattern; *p != '\0'; ++p) {
    switch (*p) {
      case ' ':
        if (p != pattern && (at >= end || !is_blank(*at))) return false;
        while (at < end && is_blank(*at)) ++at;
        break;
      case '*':
        // Up to the next character of the pattern, or the end of the word.
        for (const char next = p[1] == '\\' ? p[2] : p[1]; at < end && !is_blank(*at); ++at)
          if (*at == next && next != '{') break;
        break;
      case '{': {
        const struct ofs_capture* how = &captures[count];
        const char* behind = ofs_read_number(at, end, how->type, how->factor, how->scale, &found[count]);
        is_number[count++] = behind != NULL;
        at = behind != NULL ? behind : word_end(at, end);
        ++p;
        break;
      }
      case '\\':
        ++p;
        __attribute__((fallthrough));
      default:
        if (at >= end || *at != *p) return false;
        ++at;
    }
  }
  for (int i = 0; i < count; ++i) {
    present[i] = is_number[i];
    bits[i] = is_number[i] ? found[i] : 0;
  }
  return true;
}

bool ofs_search(const char* pattern, const char* line, const char* end, const struct ofs_capture* captures,
                uint64_t* bits, bool* present) {
  const char first = *pattern == '\\' ? pattern[1] : *pattern;
  const bool literal = first != '{' && first != '*' && first != ' ' && first != '\0';
  for (const char* at = line; at < end; ++at) {
    if (literal && (at = (const char*)memchr(at, first, (size_t)(end - at))) == NULL) return false;
    if (ofs_match(pattern, at, end, captures, bits, present)) return true;
  }
  return false;
}
