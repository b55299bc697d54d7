// Notices that a relay owes the agent beyond the link: which processes of a program have joined and ended, in their
// order. They wait while the channel to that agent has no room.
//
// Their number is bounded though a program may let processes join and end as it likes: a process's number is free once
// the other processes have the event of its end, which that agent writes when it has the notice. So at most a join and
// an end are owed for each number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/status.h"
#include "wire/areas/tcp_area.h"
#include "wire/messages/tcp_messages.h"

namespace offpath::agent {

class OwedNotices {
 public:
  static constexpr std::size_t most = 2 * wire::tcp_processes_max;

  // The number is below tcp_processes_max, and no process has it now. Error: its last process's end is still owed.
  [[nodiscard]] Status joins(std::uint32_t process) {
    if (std::ranges::any_of(owed_, [process](const auto& owed) { return owed.process == process && owed.joins == 0; }))
      return fail(Error::protocol, "process {} joins, but nobody was told that the process of that number has ended",
                  process);
    add({process, 1});
    return {};
  }
  // The process has joined.
  void ends(std::uint32_t process) { add({process, 0}); }

  [[nodiscard]] bool empty() const noexcept { return owed_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return owed_.size(); }
  [[nodiscard]] const wire::TcpProcess& first() const noexcept { return owed_.front(); }
  void pop() { owed_.pop_front(); }

 private:
  void add(wire::TcpProcess notice) {
    owed_.push_back(notice);
    OFP_ASSERT(owed_.size() <= most);
  }

  std::deque<wire::TcpProcess> owed_;
};

}  // namespace offpath::agent
