// Tasks from one thread to another thread's loop, in order and without loss: tasks for which the mailbox has no room
// wait at the sender.
//
// The waiting tasks are bounded by the senders' own work in progress. Between cores (tcp_core.h) tasks are: the start
// and end of a program or one of its processes, for which core 0 reads at most 16 requests or datagrams of a process in
// one look; the start or end of a listener, one at a time for each handle; one status query at a time; and an answer to
// each. Tasks that may be lost, as frames may, are posted only if there is room.
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
  [[nodiscard]] loop::Poller& mailbox() noexcept { return box_; }  // the loop polls it
  // ---- the sender's thread
  void post(Task task);
  bool post_if_room(Task task);  // false: dropped
  bool flush();                  // true: nothing is waiting

 private:
  loop::Mailbox<Task> box_;
  std::deque<Task> waiting_;
};

}  // namespace offpath::agent
