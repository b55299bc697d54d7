// Epoll over offloaded sockets, without the kernel: which set watches which socket, and what is to be told. Whoever
// takes events in puts the watches of that socket in their sets' queues; a wait looks there first, and sleeps in the
// kernel's epoll only when there is nothing: with the descriptors that are the kernel's, the one by which the agent
// wakes this program, and one of the set's own, by which other threads do.
//
// A set that is itself watched, by epoll, poll or select, is the kernel's from then on: its sockets show at their
// descriptors what can be done. Level and edge trigger, one-shot are as in the kernel; an edge is new data, room after
// a send that found none, or an end.
#pragma once

#include <signal.h>
#include <sys/epoll.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "sockets/descriptors.h"

namespace offpath::sockets {

class EpollSets {
 public:
  // A descriptor that epoll_create made: what is watched there is counted from the beginning.
  void note_made(int epoll) noexcept;
  void also_at(int made, int fd);  // dup
  void close(int fd);

  // epoll_ctl for an offloaded socket: 0, or -1 with errno.
  [[nodiscard]] int control(int epoll, int operation, int fd, Socket& socket, const epoll_event* event);
  // epoll_ctl for a descriptor of the kernel's, which goes there, too.
  void note_kernel_member(int epoll, int fd);
  // Somebody watches the set itself.
  void leave_to_kernel(int epoll);

  // epoll_wait and its kin; none: this set has no offloaded sockets.
  [[nodiscard]] std::optional<int> wait(int epoll, epoll_event* events, int room, TimeNs wait_ns, const sigset_t* mask);

  void on_change(const Socket& socket);
  void move(const Socket& from, Socket& to);  // whose descriptors are to be the other's
  void forget(const Socket& socket);          // its last descriptor was closed

  void before_fork() { lock_.lock(); }
  void after_fork() { lock_.unlock(); }
  // Sets are the parent's, too: this process has its own wakes for them.
  void in_child();

 private:
  struct Set;
  struct Watch {
    int fd;
    Socket* socket;
    Set* set;
    std::uint32_t events;
    epoll_data_t data;
    bool queued = false;
    bool off = false;  // one-shot, and told
    // What was told last, of an edge.
    std::uint32_t seen = 0, seen_full = 0;
    std::uint64_t seen_received = 0;
  };
  struct Set {
    explicit Set(int fd_) noexcept : fd(fd_) {}
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;
    ~Set();
    int fd;  // one of its descriptors
    std::vector<std::unique_ptr<Watch>> watches{};
    std::deque<Watch*> queue{};
    Fd wake{};
    std::uint32_t sleepers = 0, descriptors = 1;
    bool woken = false, by_kernel = false;
    std::atomic<TimeNs> looked_at = 0;  // when the kernel was asked last
    std::atomic<std::uint32_t> wakes = 0;
    std::atomic<int> short_waits = 0;
  };
  // Of every descriptor, so that most calls need no lock.
  struct Mark {
    static constexpr std::uint8_t made = 1, has_set = 2, has_kernel_members = 4, watched = 8;
  };

  [[nodiscard]] std::uint8_t mark(int fd) const noexcept;
  void set_mark(int fd, std::uint8_t bits) noexcept;
  [[nodiscard]] std::shared_ptr<Set> find(int epoll);
  [[nodiscard]] std::shared_ptr<Set> make(int epoll);
  [[nodiscard]] bool watch_wakes(int epoll, Set& set);
  [[nodiscard]] static Watch* find_watch(Set& set, int fd, const Socket& socket);
  [[nodiscard]] static bool may_be(const epoll_event& event, int operation, const Watch* watch) noexcept;
  void drop(Watch& watch);
  static void enqueue(Watch& watch);
  static void wake(Set& set);
  [[nodiscard]] static bool is_edge(Watch& watch, std::uint32_t now, const SocketArea::Look& look);
  [[nodiscard]] int collect(Set& set, epoll_event* events, int room);
  [[nodiscard]] int ask_kernel(Set& set, epoll_event* events, int room, TimeNs wait_ns, const sigset_t* mask);

  std::mutex lock_;
  std::map<int, std::shared_ptr<Set>> sets_;               // by each of their descriptors
  std::map<const Socket*, std::vector<Watch*>> watching_;  // a socket's watches
  std::atomic<std::uint8_t> marks_[Descriptors::numbers]{};
};

[[nodiscard]] EpollSets& epoll_sets() noexcept;

}  // namespace offpath::sockets
