// What other processes hand to this one: descriptors, and memory that is mapped from them. Counted by user, and let go
// of where that takes nobody else's time.
//
// The last close of a descriptor can wait for whoever serves the file: FUSE's flush, a file server that is gone, a TCP
// socket that lingers. The last view of a large memfd is gone when all of its pages are free, 100 ms for a GiB. So an
// Fd from here is closed by a thread of its own, unless it is memory of a few pages. One thread closes at a time for a
// user and `threads_max` for all, so a user whose closes hang holds up that user's other ones alone. Nobody waits for
// these threads, at the end of the process either.
//
// The kernel closes descriptors too: those of a message for which recvmsg was given no room, and those in a socket's
// queue when the socket is closed. receive_with_descriptors has room for all of them; a socket over which descriptors
// come is own()ed.
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

// The limits hold for what is checked by may_take() and take_mapping(): what came in one message has to be taken, and
// is counted.
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
    // One more descriptor. Error::too_large.
    [[nodiscard]] Status may_take() const;
    // What goes on sending all the same is to be ended.
    [[nodiscard]] bool overdrawn() const noexcept;
    // One more mapping, until unmap() or return_mapping(). Error::too_large.
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
    // Under all_->mutex_. What leaves must not need memory: there is a spare for everything that is counted.
    std::list<Leaving> leaving_, spares_;
    std::list<std::shared_ptr<User>> turn_{1};  // its place in all_->turns_, while it is not there
    bool served_ = false;                       // by a thread
  };

  explicit ReceivedFds(const ReceivedLimits& limits = {}) : limits_(limits) {}
  // Any thread, as everything here.
  [[nodiscard]] std::shared_ptr<User> of(uid_t user);
  // So many closes wait behind others that nothing should be taken whose refusal is one more.
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
  std::list<std::shared_ptr<User>> turns_;  // those for whom something waits and no thread works
  unsigned threads_ = 0;
};

// As recvmsg, whose flags of the message are `said`: MSG_CTRUNC stands for more descriptors than this process may open.
// They are appended to `descriptors`, owned by `user` (null: closed as any other).
[[nodiscard]] ssize_t receive_with_descriptors(int socket, std::span<const iovec> to, int flags,
                                               const std::shared_ptr<ReceivedFds::User>& user,
                                               std::vector<Fd>& descriptors, int& said);

}  // namespace offpath
