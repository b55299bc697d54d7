// A program that is measured together with others of its kind: each says that it is ready and begins when all are, so
// that they run at the same time whatever their starts took.
#pragma once

#include <cstdio>

#include "base/clock.h"

namespace offpath::bench {

// Returns when a line, or the end, of standard input comes.
inline void wait_for_others() {
  std::puts("ready");
  std::fflush(stdout);
  for (int read = 0; read != '\n' && read != EOF;) read = std::getchar();
}

// The clock is the machine's, so that spans of several programs can be compared.
inline void say_span(double work, TimeNs began, TimeNs ended) {
  std::printf("%.0f %lld %lld\n", work, static_cast<long long>(began), static_cast<long long>(ended));
}

}  // namespace offpath::bench
