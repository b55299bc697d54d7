// Epoll over offloaded sockets, without the kernel: the watches of each set, and the events to report. The thread that
// takes in an event puts the watches of its socket into their sets' queues. A wait looks there first, and sleeps in the
// kernel's epoll only if the queue is empty. The kernel's set holds the program's other descriptors, the one by which
// the agent wakes this program, and one of the set's own, by which other threads wake it. To add, change, report or
// remove a watch costs the same for any number of watches.
//
// A set that is itself watched, by epoll, poll or select, is left to the kernel from then on: its sockets show their
// readiness at their descriptors. Level trigger, edge trigger and one-shot are as in the kernel; an edge is new data,
// room after a send that found none, or an end.
#pragma once

#include <signal.h>
#include <sys/epoll.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/fd.h"
#include "sockets/descriptors.h"
#include "sockets/short_waits.h"

namespace offpath::sockets {

// A doubly linked ring through its members: one of them is the head and stands for the list. Insertion and removal take
// constant time and no memory. A type that is in several rings has a base of this template for each, by its tag.
template <class Tag>
class Linked {
 public:
  Linked() = default;
  Linked(const Linked&) = delete;
  Linked& operator=(const Linked&) = delete;
  ~Linked() { unlink(); }

  [[nodiscard]] bool alone() const noexcept { return next_ == this; }
  [[nodiscard]] Linked& next() const noexcept { return *next_; }
  // At the end of the ring of `head`.
  void link(Linked& head) noexcept {
    unlink();
    next_ = &head;
    previous_ = std::exchange(head.previous_, this);
    previous_->next_ = this;
  }
  void unlink() noexcept {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = this;
  }

 private:
  Linked *next_ = this, *previous_ = this;
};

class EpollSets {
 public:
  // Epoll created this descriptor: the set's members are known from the beginning.
  static void note_made(int epoll) noexcept;
  void also_at(int made, int fd);  // dup
  void close(int fd);

  // epoll_ctl for an offloaded socket: 0, or -1 with errno.
  [[nodiscard]] int control(int epoll, int operation, int fd, Socket& socket, const epoll_event* event);
  // epoll_ctl added a descriptor that is not offloaded; the kernel has it, too.
  void note_kernel_member(int epoll, int fd);
  // The set itself is watched.
  void leave_to_kernel(int epoll);

  // epoll_wait and its variants. `by_kernel`: the kernel's, for a set without offloaded sockets.
  template <class ByKernel>
  [[nodiscard]] int wait(int epoll, epoll_event* events, int room, TimeNs wait_ns, const sigset_t* mask,
                         const ByKernel& by_kernel) {
    if (const auto done = wait_here(epoll, events, room, wait_ns, mask)) return *done;
    const TimeNs deadline = wait_ns == never ? never : deadline_after(monotonic_ns(), wait_ns);
    const int ready = by_kernel();
    if (ready <= 0 || (mark(epoll) & Mark::has_set) == 0) return ready;
    return go_on(epoll, events, ready, room, deadline, mask);
  }

  void on_change(const Socket& socket);
  void move(const Socket& from, Socket& to);  // `from`'s descriptors will name `to`
  void forget(const Socket& socket);          // its last descriptor was closed

  void before_fork() { lock_.lock(); }
  void after_fork() { lock_.unlock(); }
  // The sets are shared with the parent: this process adds wake descriptors of its own to them.
  void in_child();

 private:
  struct Set;
  using OfSocket = Linked<struct OfSocketTag>;
  using Queued = Linked<struct QueuedTag>;
  // As in the kernel, a set has a watch for each pair of a descriptor and the socket that it named when it was added.
  struct Key {
    int fd;
    const Socket* socket;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HashOfKey {
    std::size_t operator()(const Key& key) const noexcept {
      return static_cast<std::size_t>(key.fd) ^ std::hash<const Socket*>{}(key.socket) / alignof(std::max_align_t);
    }
  };
  struct Watch : OfSocket, Queued {
    int fd;
    Socket* socket;
    Set* set;
    std::uint32_t events = 0;
    epoll_data_t data{};
    bool off = false;  // one-shot, and already reported
    Watch(int fd_, Socket& socket_, Set& set_) noexcept : fd(fd_), socket(&socket_), set(&set_) {}
    [[nodiscard]] Key key() const noexcept { return {fd, socket}; }
    // For edge trigger: the events that were reported last.
    std::uint32_t seen = 0, seen_full = 0;
    std::uint64_t seen_received = 0;
  };
  struct Set {
    explicit Set(int fd_) noexcept : fd(fd_) {}
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;
    ~Set();
    int fd;          // any of its descriptors
    Queued queue{};  // of `queued` watches
    std::size_t queued = 0;
    std::unordered_map<Key, Watch, HashOfKey> watches{};
    Fd wake{};
    std::uint32_t sleepers = 0, descriptors = 1;
    bool woken = false, by_kernel = false;
    std::atomic<TimeNs> looked_at = 0;  // time of the last call to the kernel
    std::atomic<std::uint32_t> wakes = 0;
    ShortWaits short_waits{};
  };
  // Bits for every descriptor, so that most calls need no lock.
  struct Mark {
    static constexpr std::uint8_t made = 1, has_set = 2, has_kernel_members = 4, watched = 8;
  };

  [[nodiscard]] static std::uint8_t mark(int fd) noexcept;
  static void set_mark(int fd, std::uint8_t bits) noexcept;
  [[nodiscard]] std::shared_ptr<Set> find(int epoll);
  [[nodiscard]] std::shared_ptr<Set> make(int epoll);
  [[nodiscard]] bool watch_wakes(int epoll, Set& set);
  [[nodiscard]] static bool may_be(const epoll_event& event, int operation, const Watch* watch) noexcept;
  // nullopt: this set has no offloaded sockets.
  [[nodiscard]] std::optional<int> wait_here(int epoll, epoll_event* events, int room, TimeNs wait_ns,
                                             const sigset_t* mask);
  // Of a wait in the kernel that began before the set had an offloaded socket.
  [[nodiscard]] int go_on(int epoll, epoll_event* events, int ready, int room, TimeNs deadline, const sigset_t* mask);
  static void end_wait_in_kernel(const Set& set);
  void drop(Watch& watch);
  static void enqueue(Watch& watch);
  static void unqueue(Watch& watch);
  static void wake(Set& set);
  [[nodiscard]] static bool is_edge(Watch& watch, std::uint32_t now, const SocketArea::Look& look);
  [[nodiscard]] int collect(Set& set, epoll_event* events, int room);
  [[nodiscard]] int ask_kernel(Set& set, epoll_event* events, int room, TimeNs wait_ns, const sigset_t* mask);

  std::mutex lock_;
  std::map<int, std::shared_ptr<Set>> sets_;              // by each of their descriptors
  std::unordered_map<const Socket*, OfSocket> watching_;  // a socket's watches
};

[[nodiscard]] EpollSets& epoll_sets() noexcept;

}  // namespace offpath::sockets
