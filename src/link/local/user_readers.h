// Threads that read the memory of other users' programs. A program supplies the pages of its memory itself if it likes
// (userfaultfd, a FUSE mount), or has a file server supply them: a read of such a page waits, and nothing but its
// supplier or the end of this process ends it. So the agent's loop leaves these reads to a thread, of which each user
// has one: it begins with the user's first read, and ends when the user's last link has gone.
//
// A user whose thread is in one call for longer than the patience has all reads fail until the call returns, and gets
// no further thread. Nobody waits for these threads, at the end of the process either.
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
    virtual void run() = 0;  // on the user's thread; touches only what it owns
    [[nodiscard]] virtual std::uint64_t progress() const noexcept = 0;
    [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
    [[nodiscard]] bool ran_out_of_memory() const noexcept { return out_of_memory_; }  // of one that is done
    void reset() noexcept {                                                           // to be posted again
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
  // One user's, for the links of that user. Used by the loop's thread, as everything here.
  class User {
   public:
    explicit User(std::shared_ptr<Queue> queue) noexcept : queue_(std::move(queue)) {}
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    ~User();
    // Works are done in order. Error::no_memory without a thread.
    [[nodiscard]] Status post(std::shared_ptr<Work> work);
    void withdraw(const Work& work) noexcept;  // if it was not begun
    // Whether the thread is in one call for longer than the patience; to be asked as long as work is outstanding.
    [[nodiscard]] bool is_held(TimeNs now) noexcept;
    [[nodiscard]] bool is_at(const Work& work) const noexcept;
    [[nodiscard]] TimeNs patience_ns() const noexcept;

   private:
    std::shared_ptr<Queue> queue_;
  };

  // The agent's own user is read by the loop (null), unless `own_user` says otherwise.
  explicit UserReaders(TimeNs patience_ns = 30 * second_ns, bool own_user = false);
  [[nodiscard]] std::shared_ptr<User> of(uid_t user);

 private:
  struct Known {
    std::weak_ptr<User> user;
    std::weak_ptr<Queue> queue;  // a thread that is held keeps it
  };
  struct Queue {
    std::mutex mutex;  // of all up to `posted`
    std::condition_variable changed;
    std::list<std::shared_ptr<Work>> waiting;
    std::shared_ptr<Work> current;
    std::uint64_t begun = 0;
    bool runs = false, stops = false;
    std::atomic<std::uint64_t> posted = 0;
    cpu_set_t cores;
    TimeNs patience_ns;
    // The loop's: works begun and the progress of the current one, as last seen, and unchanged since then.
    std::pair<std::uint64_t, std::uint64_t> progress;
    TimeNs since = 0, looked = 0;
  };

  static void work(Queue& queue) noexcept;

  const TimeNs patience_ns_;
  const bool own_user_;
  cpu_set_t cores_{};  // the loop's own may be pinned to one core later
  std::map<uid_t, Known> known_;
};

}  // namespace offpath::link
