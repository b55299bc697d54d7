// Selects the numbers of a line that are values.
//
//   {}      a number that is taken
//   *       any characters that are not blank, also none
//   blank   one or more blanks or tabs; at the beginning of a pattern, also none
//   \c      c itself; any other character likewise
//
// "MemFree: {}" takes the number of such a line; "* eth0: {} {} *" the first two. The rest of the line does not
// matter.
#pragma once

#include <stdbool.h>

#include "telemetry/host_sampler/number.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OFS_CAPTURES_MAX = 32 };  // of one pattern

// How to read a captured number, and the result.
struct ofs_capture {
  enum ofs_type type;
  uint64_t factor;
  double scale;
};

// The number of captures in a pattern; -1 if it is invalid: an unclosed brace, a name between braces, too many
// captures.
int ofs_pattern_captures(const char* pattern);

// True if the line matches apart from its numbers; present[i] is false for a capture that is not a number.
bool ofs_match(const char* pattern, const char* line, const char* end, const struct ofs_capture* captures,
               uint64_t* bits, bool* present);
// The same at any place in the line.
bool ofs_search(const char* pattern, const char* line, const char* end, const struct ofs_capture* captures,
                uint64_t* bits, bool* present);

#ifdef __cplusplus
}
#endif
