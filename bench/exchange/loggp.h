// The constants of the LogGP model (Alexandrov, Ionescu, Schauser and Scheiman, 1995).
#pragma once

namespace offpath::bench {

struct LogGP {
  double latency = 600;    // L, ns
  double overhead = 200;   // o, ns of a message's processor time on either side
  double gap = 200;        // g, ns between messages of one sender
  double byte_gap = 0.04;  // G, ns of each byte
};

}  // namespace offpath::bench
