// Tasks from one thread to another one's loop, in their order, none of them lost: what the mailbox has no room for
// waits at the sender.
//
// What waits has no bound of its own, it is what senders have under way. Between cores (tcp_core.h): that a program
// begins and ends, and that a process of its comes or goes, for each of which core 0 reads a request or a datagram, at
// most 16 of a process in one look; a listener's beginning or end, of which each handle has one at a time; questions
// about the status, one after another; and an answer to each. What may be lost, as frames may, is posted only if there
// is room.
#pragma once

#include <deque>
#include <functional>

#include "base/clock.h"
#include "loop/loop.h"
#include "loop/mailbox.h"

namespace offpath::agent {

class Crossing {
 public:
  using Task = std::function<void(TimeNs now)>;  // on the loop's thread
  explicit Crossing(loop::Loop& to);
  [[nodiscard]] loop::Poller& mailbox() noexcept { return box_; }  // to be polled by the loop
  // ---- the sender's thread
  void post(Task task);
  bool post_if_room(Task task);  // false: dropped
  bool flush();                  // true: nothing waits

 private:
  loop::Mailbox<Task> box_;
  std::deque<Task> waiting_;
};

}  // namespace offpath::agent
