// Messages of functions that this program runs itself: only to its own lane.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace offpath::host {

class MessagesHere {
 public:
  explicit MessagesHere(bool has_team) : has_team_(has_team) {}

  [[nodiscard]] Status send(std::uint32_t own, std::uint32_t lanes, std::uint32_t lane, std::uint32_t tag,
                            Bytes message);
  // As ofp_context.receive; another thread of the function may send until the deadline.
  [[nodiscard]] Status receive(std::uint32_t own, std::uint32_t lanes, std::uint32_t lane, std::uint32_t tag,
                               MutableBytes into, TimeNs deadline, std::uint64_t& bytes);

 private:
  [[nodiscard]] Status check(std::uint32_t own, std::uint32_t lanes, std::uint32_t lane) const;

  bool has_team_;
  std::mutex mutex_;
  std::condition_variable sent_;
  std::map<std::uint32_t, std::deque<std::vector<std::byte>>> messages_;  // by tag
};

}  // namespace offpath::host
