// Resources that other processes send to this one: descriptors, and memory mapped from them. They are counted by user,
// and released on threads where a slow release delays nobody else.
//
// The last close of a descriptor can wait for another party: a FUSE file system's flush, a file server that is
// unreachable, a TCP socket that lingers. Unmapping the last view of a large memfd frees all of its pages, which takes
// 100 ms for a GiB. So a separate thread closes each Fd from here, unless it is memory of a few pages. One thread at a
// time closes for a user, and at most `threads_max` threads for all users: closes that hang delay only the same user's
// other closes. Nothing waits for these threads, not even the end of the process.
//
// The kernel closes descriptors too: those of a message for which recvmsg had no room, and those left in a socket's
// queue when the socket is closed. Therefore receive_with_descriptors has room for all descriptors of a message, and a
// socket over which descriptors arrive is own()ed.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace offpath {

// The limits are enforced by may_take() and take_mapping(). Descriptors that have already arrived in a message are
// always taken and counted.
struct ReceivedLimits {
  std::uint64_t descriptors_max = 1 << 20, user_descriptors_max = 1 << 20;
  std::uint64_t mappings_max = 1 << 20, user_mappings_max = 1 << 20;
};

class ReceivedFds : public std::enable_shared_from_this<ReceivedFds> {
 public:
  static constexpr unsigned threads_max = 16;

  class User final : public FdCloser, public std::enable_shared_from_this<User> {
   public:
    User(std::shared_ptr<ReceivedFds> all, uid_t user) : all_(std::move(all)), user_(user) {}
    ~User() override;
    [[nodiscard]] Fd own(int fd);
    [[nodiscard]] Fd own(Fd fd) { return own(fd.release()); }
    // Whether one more descriptor may be taken. Error::too_large.
    [[nodiscard]] Status may_take() const;
    // True if the user has exceeded the limit so far that its connection should be closed.
    [[nodiscard]] bool overdrawn() const noexcept;
    // Counts one more mapping, until unmap() or return_mapping(). Error::too_large.
    [[nodiscard]] Status take_mapping();
    void unmap(void* at, std::uint64_t length) noexcept;
    void return_mapping() noexcept;
    void close(int fd) noexcept override;
    void let_go(int fd) noexcept override;
    [[nodiscard]] std::uint64_t descriptors() const noexcept { return descriptors_; }
    [[nodiscard]] std::uint64_t mappings() const noexcept { return mappings_; }

   private:
    friend class ReceivedFds;
    struct Leaving {  // a descriptor, or memory
      int fd;
      void* at;
      std::uint64_t length;
    };

    void leave(const Leaving& leaving) noexcept;
    void add_spare();
    void drop_spare() noexcept;
    void take_turn() noexcept;

    std::shared_ptr<ReceivedFds> all_;
    uid_t user_;
    std::atomic<std::uint64_t> descriptors_ = 0, mappings_ = 0;
    // Guarded by all_->mutex_. Releasing must not allocate: `spares_` holds a list node for everything that is counted.
    std::list<Leaving> leaving_, spares_;
    std::list<std::shared_ptr<User>> turn_{
        1};                // this user's place in all_->turns_; held here while the user is not queued
    bool served_ = false;  // a thread is closing for this user
  };

  explicit ReceivedFds(const ReceivedLimits& limits = {}) : limits_(limits) {}
  // Thread-safe, as all functions here.
  [[nodiscard]] std::shared_ptr<User> of(uid_t user);
  // True if so many closes are queued that requests whose refusal closes another descriptor should not be accepted.
  [[nodiscard]] bool overrun() const noexcept { return waiting_ >= limits_.descriptors_max; }
  [[nodiscard]] std::uint64_t descriptors() const noexcept { return descriptors_; }
  [[nodiscard]] std::uint64_t mappings() const noexcept { return mappings_; }
  [[nodiscard]] std::uint64_t waiting() const noexcept { return waiting_; }

 private:
  void begin_thread() noexcept;
  void work() noexcept;

  const ReceivedLimits limits_;
  std::atomic<std::uint64_t> descriptors_ = 0, mappings_ = 0, waiting_ = 0;
  std::mutex mutex_;
  std::map<uid_t, std::weak_ptr<User>> users_;
  std::list<std::shared_ptr<User>> turns_;  // users with something to close and no thread that works for them
  unsigned threads_ = 0;
};

// As recvmsg. `said` receives the message's flags: MSG_CTRUNC means that this process had reached its limit of open
// descriptors. The descriptors are appended to `descriptors` and owned by `user` (null: closed as any other).
[[nodiscard]] ssize_t receive_with_descriptors(int socket, std::span<const iovec> to, int flags,
                                               const std::shared_ptr<ReceivedFds::User>& user,
                                               std::vector<Fd>& descriptors, int& said);

}  // namespace offpath
