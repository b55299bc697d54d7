// Puts that wait for members of their pool, and gets that wait for objects, for the status and the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/service.h"

namespace offpath::pool {

struct WaitingPut {
  std::string pool, row, column;     // the keys as errors show them
  std::vector<std::string> members;  // members that lack it; some of them
  TimeNs since;
  std::string why;  // the last answer of one of them
};

struct WaitingPuts {
  static constexpr std::size_t listed_max = 20, members_listed_max = 16;
  std::size_t count = 0;
  std::vector<WaitingPut> longest{};
};

struct ListedGet {
  std::string pool, row, column;  // the keys as errors show them
  service::ChannelNumber channel = 0;
  TimeNs since = 0;
  std::string what;  // waits for the object, the disk, or the computation over it
  std::string why;
};

// Gets and computations of programs and members that have waited for a second; a reader that follows a simulation waits
// for each step.
struct ListedGets {
  static constexpr std::size_t listed_max = 20;
  std::size_t count = 0;
  std::vector<ListedGet> longest{};  // first

  void add(ListedGets others);
};

// Which puts the log has reported: one line covers all that wait, and the next one later ones.
struct WaitsTold {
  static constexpr TimeNs silent_ns = second_ns;        // a put that waits longer is reported
  static constexpr TimeNs between_ns = 10 * second_ns;  // at least, from one line to the next
  std::uint64_t number = 0;                             // of the newest reported put
  TimeNs next_at = 0;
};

}  // namespace offpath::pool
