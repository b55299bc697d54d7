// Work of more than 100 us, off the loop: a few threads, a bounded queue to them, results back by mailbox.
//
//   loop: start -> waiting (unbounded by nature: each job holds memory that is accounted for elsewhere)
//               -> queue, at most `queue_max` -> a worker runs it -> mailbox -> loop: done(status)
//
// So neither side ever blocks on the other, and no result can be lost: the mailbox has room for everything that
// has left `waiting`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/status.h"
#include "loop/mailbox.h"

namespace offpath::loop {

struct JobPoolOptions {
  unsigned threads = 2;
  std::size_t queue_max = 64;
};

struct JobPoolCounters {
  std::uint64_t started = 0, finished = 0, failed = 0;
  std::uint64_t waiting = 0, waiting_most = 0;  // in the loop, for a place in the queue
};

// Where nobody above would take an exception: memory that has run out is the work's error, not the process's end.
template <class Work>
[[nodiscard]] Status guarded(const Work& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(Error::no_memory, "a job ran out of memory");
  } catch (const std::exception& error) {
    return fail(Error::io, "a job failed: {}", error.what());
  }
}

class JobPool {
 public:
  using Run = std::function<Status()>;                   // on a worker; touches nothing but what it captured
  using Done = std::function<void(Status, TimeNs now)>;  // on the loop's thread

  // Adds its mailbox to the loop as a poller. Belongs to the loop's thread.
  JobPool(Loop& loop, const JobPoolOptions& options);
  // Waits for jobs that run; those that have not begun are dropped, and no `done` is called any more.
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  void start(Run run, Done done);
  [[nodiscard]] const JobPoolCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] unsigned threads() const noexcept { return static_cast<unsigned>(workers_.size()); }

 private:
  struct Job {
    Run run;
    Done done;
  };
  struct Finished {
    Done done;
    Status status;
  };
  void work();
  void fill_queue();
  void take(Finished finished, TimeNs now);

  Loop& loop_;
  JobPoolOptions options_;
  Mailbox<Finished> results_;
  std::deque<Job> waiting_;
  std::size_t away_ = 0;  // jobs that have left waiting_ and have not come back
  JobPoolCounters counters_;

  std::mutex mutex_;
  std::condition_variable queued_;
  std::deque<Job> queue_;  // under mutex_
  bool stopping_ = false;  // under mutex_
  std::vector<std::thread> workers_;
};

}  // namespace offpath::loop
