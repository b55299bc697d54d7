// Threads that read the memory of other users' programs. A program can supply the pages of its memory itself
// (userfaultfd, a FUSE mount), or have a file server supply them: a read of such a page waits, and only its supplier or
// the end of this process ends the wait. So the agent's loop leaves these reads to threads, one for each user: it
// starts with the user's first read, and ends when the user's last link has ended.
//
// If a user's thread is in one call for longer than the patience, all reads of that user fail until the call returns,
// and the user gets no further thread. Nothing waits for these threads, not even the end of the process.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::link {

class UserReaders {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    virtual void run() = 0;  // on the user's thread; uses only its own memory
    [[nodiscard]] virtual std::uint64_t progress() const noexcept = 0;
    [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
    [[nodiscard]] bool ran_out_of_memory() const noexcept { return out_of_memory_; }  // after the work has ended
    void reset() noexcept {                                                           // before it is posted again
      out_of_memory_ = false;
      done_.store(false, std::memory_order_relaxed);
    }

   private:
    friend class UserReaders;
    bool out_of_memory_ = false;
    std::atomic<bool> done_ = false;
  };

 private:
  struct Queue;

 public:
  // The reader of one user, for all links of that user. Used by the loops that own these links.
  class User {
   public:
    explicit User(std::shared_ptr<Queue> queue) noexcept : queue_(std::move(queue)) {}
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    ~User();
    // Works are done in order. Error::no_memory if there is no thread.
    [[nodiscard]] Status post(std::shared_ptr<Work> work);
    void withdraw(const Work& work) noexcept;  // if it has not begun
    // Whether the thread is in one call for longer than the patience; call it as long as work is outstanding.
    [[nodiscard]] bool is_held(TimeNs now) noexcept;
    [[nodiscard]] bool is_at(const Work& work) const noexcept;
    [[nodiscard]] TimeNs patience_ns() const noexcept;

   private:
    std::shared_ptr<Queue> queue_;
  };

  // The loop itself reads programs of the agent's own user (null), unless `own_user`.
  explicit UserReaders(TimeNs patience_ns = 30 * second_ns, bool own_user = false);
  [[nodiscard]] std::shared_ptr<User> of(uid_t user);

 private:
  struct Known {
    std::weak_ptr<User> user;
    std::weak_ptr<Queue> queue;  // a blocked thread keeps it alive
  };
  struct Queue {
    std::mutex mutex;  // protects all members up to `posted`
    std::condition_variable changed;
    std::list<std::shared_ptr<Work>> waiting;
    std::shared_ptr<Work> current;
    std::uint64_t begun = 0;
    bool runs = false;
    unsigned users = 0;  // objects: more than one while the last link ends on another loop than the next one begins
    std::atomic<std::uint64_t> posted = 0;
    cpu_set_t cores;
    TimeNs patience_ns;
    // Used by the loop: works begun and the progress of the current one as last seen, and the time of the last change.
    std::pair<std::uint64_t, std::uint64_t> progress;
    TimeNs since = 0, looked = 0;
  };

  static void work(Queue& queue) noexcept;

  const TimeNs patience_ns_;
  const bool own_user_;
  cpu_set_t cores_{};  // where threads run: the loop's own thread may be pinned to one core later
  std::map<uid_t, Known> known_;
};

}  // namespace offpath::link
