// Work of more than 100 us, off the loop: a few threads, a bounded queue to them, results back by mailbox.
//
//   loop: start -> waiting (unbounded by nature: each job holds memory that is accounted for elsewhere)
//               -> queue, at most `queue_max` -> a worker runs it -> mailbox -> loop: done(status)
//
// So neither side blocks on the other, and no result is lost: the mailbox has room for everything that has left
// `waiting`.
//
// A job may have to wait for another process (a write to a file whose lock a program holds); JobPatience bounds that.
// Threads share what they touch, which outlives the pool, so the pool can end while a thread is held.
#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "base/status.h"
#include "loop/mailbox.h"

namespace offpath::loop {

// For jobs that own everything they touch. JobPool::note_progress reports progress.
struct JobPatience {
  TimeNs stand_in_after_ns = never;  // a thread whose job makes no progress for so long has a stand-in
  unsigned stand_ins_max = 0;
  TimeNs give_up_after_ns = never;  // such a job fails with Error::timeout; its thread is left to it
  TimeNs end_within_ns = never;     // the pool's destructor waits that long for running jobs
};

struct JobPoolOptions {
  unsigned threads = 2;
  std::size_t queue_max = 64;
  JobPatience patience = {};
  // Other than never: threads are started when there are jobs for them, and end when they have had none for so long.
  TimeNs idle_end_ns = never;
};

struct JobPoolCounters {
  std::uint64_t started = 0, finished = 0, failed = 0;
  std::uint64_t waiting = 0, waiting_most = 0;  // in the loop, for a place in the queue
  std::uint64_t given_up = 0;                   // jobs that failed that way
};

// For work without a caller that takes exceptions: when memory has run out, the work fails and the process continues.
// The message is so short that it allocates nothing.
template <class Work>
[[nodiscard]] Status guarded(const Work& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return tl::unexpected(Failure{Error::no_memory, "out of memory"});
  } catch (const std::exception& error) {
    return fail(Error::io, "a job failed: {}", error.what());
  }
}

class JobPool {
 public:
  using Run = std::function<Status()>;                   // on a worker; uses only its captures
  using Done = std::function<void(Status, TimeNs now)>;  // on the loop's thread

  // Adds its mailbox to the loop as a poller. Belongs to the loop's thread. Threads that cannot be started now are
  // started when there is a job for them; without any, jobs fail with Error::no_memory.
  JobPool(Loop& loop, const JobPoolOptions& options);
  // Waits for running jobs as long as its patience allows. Queued jobs are dropped, and no `done` is called any more.
  // With such a patience a worker drops them, because destroying their captures may also wait for another process.
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  void start(Run run, Done done);
  // Called within a job: it makes progress. No effect elsewhere.
  static void note_progress() noexcept;

  [[nodiscard]] const JobPoolCounters& counters() const noexcept { return counters_; }

 private:
  struct Job {
    Run run;
    Done done;
  };
  struct Finished {
    Done done;
    Status status;
  };
  // One thread. Shared::mutex protects all members but `progress`.
  struct Slot {
    std::atomic<std::uint64_t> progress = 0;
    bool is_busy = false, is_held = false, is_given_up = false, has_ended = false;
    Done done;  // of the thread's job
  };
  struct Shared {
    Shared(Loop& loop, const JobPoolOptions& options, JobPool& pool);
    unsigned threads;
    Mailbox<Finished> results;
    std::mutex mutex;
    std::condition_variable queued, ended;
    TimeNs idle_end_ns;
    std::list<Job> queue;  // these are under the mutex; jobs move between lists, which takes no memory
    unsigned alive = 0, held = 0;
    bool stopping = false;
    bool filling = false;  // jobs are about to be queued: no thread ends
  };
  struct Worker {
    std::shared_ptr<Slot> slot;
    std::thread thread;
    std::uint64_t progress = 0;  // as last seen by the loop,
    TimeNs since = 0;            // time of its last change
  };

  static void work(Shared& shared, Slot& slot);
  static void drop_queue(Shared& shared, std::unique_lock<std::mutex>& lock);
  void begin_threads();
  void fill_queue();
  void take(Finished finished, TimeNs now);
  void look_at_workers(TimeNs now);
  void look_later(TimeNs now);

  Loop& loop_;
  JobPoolOptions options_;
  std::shared_ptr<Shared> shared_;
  std::list<Job> waiting_;
  std::size_t away_ = 0;  // jobs that have left waiting_ and have not come back
  JobPoolCounters counters_;
  std::list<Worker> workers_;
  cpu_set_t cores_{};  // where threads run: the loop's own thread may be pinned to one core later
  Timers::Id look_ = 0;
  bool looks_ = false;
};

}  // namespace offpath::loop
