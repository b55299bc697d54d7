// One owner for one file descriptor: sockets, memfds, pidfds, eventfds, files.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace offpath {

// Takes descriptors instead of close(2), for those whose close may wait for another process; see received_fds.h.
class FdCloser {
 public:
  virtual ~FdCloser() = default;
  virtual void close(int fd) noexcept = 0;
  virtual void let_go(int fd) noexcept = 0;  // this object closes it from here on
};

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(int fd, std::shared_ptr<FdCloser> closer) noexcept : fd_(fd), closer_(std::move(closer)) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), closer_(std::move(other.closer_)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      closer_ = std::move(other.closer_);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept {
    if (const auto closer = std::move(closer_); closer && fd_ >= 0) closer->let_go(fd_);
    return std::exchange(fd_, -1);
  }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept {
    const auto closer = std::move(closer_);
    if (fd_ >= 0 && closer)
      closer->close(fd_);
    else if (fd_ >= 0)
      ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
  std::shared_ptr<FdCloser> closer_;
};

}  // namespace offpath
