#include "sockets/socket.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <new>
#include <utility>

#include "sockets/kernel.h"
#include "sockets/own_descriptors.h"
#include "sockets/program.h"

namespace offpath::sockets {

namespace {

// More than a Unix socket with the smallest buffer takes before it is full.
constexpr std::size_t filling_bytes = 4096;
constexpr int smallest_buffer = 1;  // the kernel rounds up

// Bytes of a pair, without waiting: see Program::confine().
void put(int fd, const char* bytes, std::size_t count) {
  if (program().confined())
    kernel::write(fd, static_cast<const void*>(bytes), count);
  else
    kernel::send(fd, static_cast<const void*>(bytes), count, MSG_DONTWAIT | MSG_NOSIGNAL);
}
ssize_t take_away(int fd, char* bytes, std::size_t room) {
  if (program().confined()) return kernel::read(fd, static_cast<void*>(bytes), room);
  return kernel::recv(fd, static_cast<void*>(bytes), room, static_cast<int>(MSG_DONTWAIT));
}

}  // namespace

std::optional<Ends> Ends::make(int flags) {
  int ends[2];
  const auto turn = own_descriptors().library_makes();
  if (socketpair(AF_UNIX, SOCK_STREAM | flags, 0, ends) != 0) return std::nullopt;
  const int buffer = smallest_buffer;
  kernel::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, static_cast<const void*>(&buffer),
                     static_cast<socklen_t>(sizeof buffer));
  const int own = move_up(ends[1]);
  if (own < 0) {
    for (const int fd : ends) kernel::close(fd);
    errno = EMFILE;
    return std::nullopt;
  }
  return Ends(ends[0], own, flags);
}

Ends::~Ends() {
  const int before = errno;
  if (own_ >= 0) own_descriptors().give_back(own_, [](int fd) { kernel::close(fd); });
  if (programs_ >= 0) kernel::close(programs_);
  errno = before;
}

void Socket::make_all(MutableBytes memory) noexcept {
  auto* const sockets = reinterpret_cast<Socket*>(memory.data());
  for (SocketArea::Handle handle = 0; handle < memory.size() / sizeof(Socket); ++handle) {
    Socket& made = *new (sockets + handle) Socket;
    made.showing_.init();
    made.handle = handle;
  }
}

int Socket::take(Ends ends) {
  const std::lock_guard lock(showing_);  // a thread that takes in events may already show the socket
  own().signal = std::exchange(ends.own_, -1);
  shown_ = false;
  readable_ = full_ = finished_ = closed_ = false;
  non_blocking = (ends.flags_ & SOCK_NONBLOCK) != 0;
  struct stat status{};
  inode = ::fstat(ends.programs_, &status) == 0 ? status.st_ino : 0;
  return std::exchange(ends.programs_, -1);
}

bool Socket::make_way(int number) {
  const std::lock_guard lock(showing_);
  OwnPart& mine = own();
  if (mine.signal != number) return false;
  rlimit limit{};
  const int from = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<int>(limit.rlim_cur / 2) : 0;
  const auto turn = own_descriptors().library_makes();
  const int moved = kernel::fcntl(number, F_DUPFD_CLOEXEC, from);
  if (moved < 0) return false;
  own_descriptors().add(moved);
  own_descriptors().remove(number);
  mine.signal = moved;
  return true;
}

int Socket::take_place(int fd, int flags) {
  auto ends = Ends::make(flags);
  if (!ends || kernel::dup3(ends->programs_, fd, (flags & SOCK_CLOEXEC) != 0 ? O_CLOEXEC : 0) < 0) return -1;
  kernel::close(std::exchange(ends->programs_, fd));
  return take(std::move(*ends));
}

void Socket::begin_showing(int fd, SocketArea& area) {
  OwnPart& mine = own();
  if (mine.shows.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(showing_);
  if (mine.signal < 0 || mine.shows.exchange(true)) return;
  const bool began = !shown_.exchange(true);
  const auto look = area.known(handle);
  if (began && look && !look->writable && !listener) fill(fd);
  if (look) show_locked(*look);
}

void Socket::show(SocketArea& area, bool lost) {
  if (!shown_) return;
  const std::lock_guard lock(showing_);
  if (!shown_) return;  // it was that of the handle's socket before
  auto look = area.known(handle);
  if (!look) return;
  if (lost) look->closed = !listener, look->readable = look->writable = true;
  show_locked(*look);
}

void Socket::show_locked(const SocketArea::Look& look) {
  const int signal_end = own().signal;
  if (signal_end < 0) return;
  if (is_readable(look) && !readable_) {
    put(signal_end, "", 1);
    readable_ = true;
  }
  if (look.writable && full_) {
    char bytes[filling_bytes];
    while (take_away(signal_end, bytes, sizeof bytes) > 0) {
    }
    full_ = false;
  }
  const bool ends = (look.finished && !finished_) || (look.closed && !closed_);
  if (ends && program().leaves_ends_to_own_thread()) return;
  if (look.finished && !finished_) {
    kernel::shutdown(signal_end, static_cast<int>(SHUT_WR));
    finished_ = true;
  }
  if (look.closed && !closed_) {
    kernel::shutdown(signal_end, static_cast<int>(SHUT_RDWR));
    closed_ = true;
  }
}

void Socket::hide_readable(int fd, SocketArea& area) {
  if (!shown_) return;
  const std::lock_guard lock(showing_);
  if (!readable_) return;
  const auto look = area.known(handle);
  if (!look || is_readable(*look)) return;
  char bytes[16];                      // one byte; more if a process died after it had written another
  take_away(fd, bytes, sizeof bytes);  // it does not wait: there is a byte
  readable_ = false;
}

void Socket::hide_writable(int fd, SocketArea& area) {
  if (!shown_) return;
  const std::lock_guard lock(showing_);
  if (full_) return;
  const auto look = area.known(handle);
  if (!look || look->writable) return;
  fill(fd);
}

void Socket::fill(int fd) {
  if (program().confined() && !non_blocking.load(std::memory_order_relaxed)) return;  // to fill it would wait
  const char bytes[filling_bytes]{};
  full_ = true;  // first: a process that dies in between must not leave a full end that no one empties
  put(fd, bytes, sizeof bytes);
}

void Socket::end_signal() {
  const std::lock_guard lock(showing_);
  OwnPart& mine = own();
  const int ended = mine.signal.exchange(-1);  // before close: afterwards another socket may get the number
  if (ended >= 0) own_descriptors().give_back(ended, [](int fd) { kernel::close(fd); });
  mine.shows = false;
}

}  // namespace offpath::sockets
