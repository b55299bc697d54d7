// This process's connection to the agent: opened for the first offloaded socket, and kept until the process exits.
//
// Sleeping. A call that waits for one socket sleeps on a word of that socket in the area, by which the agent wakes it
// (SocketArea::sleep_word). Others sleep on a descriptor. One word for each process says that a thread of it does; the
// agent clears it and sends one datagram, which wakes all of them. A thread that returns from its sleep therefore takes
// in all events, and sets the word again if others still sleep: fall_asleep() and awake(). Threads that sleep in epoll
// do so themselves. A thread of this library sleeps on behalf of threads that sleep elsewhere in the kernel, and shows
// readiness at the descriptors. While no descriptor shows any, it waits only for the agent's end, and for events that
// fill their ring, because every thread waits for another socket than theirs.
//
// Several processes. A forked child is another process of the same area. Its sockets to the agent are made before the
// fork, so inherited connections never lose their last holder, and it has a waiting thread of its own. A program
// started by exec() continues with the sockets among its descriptors (executing.cc). A child that could not join may
// close inherited sockets; other calls on them fail with EOPNOTSUPP, and its new sockets are left to the kernel. A
// child of vfork() runs in its parent's memory, and changes nothing there.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/fd.h"
#include "sockets/descriptors.h"
#include "sockets/policy.h"
#include "sockets/thread_watch.h"

namespace offpath::sockets {

class Program {
 public:
  Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] const Policy& policy() const noexcept { return policy_; }
  [[nodiscard]] bool vforked() const noexcept;
  [[nodiscard]] bool left_out() const noexcept {
    return left_out_.load(std::memory_order_relaxed);
  }  // a forked child that could not join
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

  // Opens the connections at the first call. Null: this process has no agent.
  [[nodiscard]] SocketArea* open();
  // Only for callers that have a socket, so the area is open.
  [[nodiscard]] SocketArea& area() noexcept { return *area_.load(std::memory_order_acquire); }

  [[nodiscard]] Use make(SocketArea::Handle handle, bool listener);
  void end(Socket& socket);
  void show(Socket& socket);
  // Every call on the area may take in events of any socket: call this afterwards to show them.
  void show_changed();
  // The socket's newest state. Takes in and shows events of all sockets.
  [[nodiscard]] Result<SocketArea::Look> look(SocketArea::Handle handle);
  // From now on the socket's descriptor shows its readiness to the kernel's poll, select and epoll.
  void begin_showing(int fd, Socket& socket);

  // Takes in the agent's events and shows their changes.
  void take_in();
  // Call before a sleep on wake_fd(). False: there are events already; do not sleep.
  using Sleep = SocketArea::Sleep;
  [[nodiscard]] bool fall_asleep(Sleep until = Sleep::until_events);
  void awake(Sleep until = Sleep::until_events);  // after it
  [[nodiscard]] int wake_fd() const noexcept { return connections_->wake_fd(); }
  // Discards wake datagrams; other sleeping threads are still woken.
  void forget_wakes();

  // Data was read, or a connection has a larger ring: the library's thread may give memory back when it is idle.
  void note_memory() {
    if (!may_give_back_.load(std::memory_order_relaxed) && !may_give_back_.exchange(true)) wake_thread();
  }
  // Waits until the listener or connection is established or has failed; returns its state.
  [[nodiscard]] SocketArea::Look decided(SocketArea::Handle handle);
  // At exit: waits until sent data is delivered.
  void leave();

  [[nodiscard]] OwnPart& own(SocketArea::Handle handle) noexcept { return own_[handle]; }
  [[nodiscard]] Socket& socket(SocketArea::Handle handle) noexcept { return sockets_[handle]; }

  // Around a fork: hold all locks, so the child finds consistent state.
  void before_fork();
  void in_parent() noexcept;
  void in_child() noexcept;
  // The connections that exec() can keep, or null.
  [[nodiscard]] channel::Sockets* to_hand_over() noexcept {
    return lost() || left_out() ? nullptr : area_.load() != nullptr ? connections_.get() : nullptr;
  }
  // Connections inherited over exec(), and those of their sockets that this process has descriptors for.
  void take_up(std::unique_ptr<channel::Sockets> connections);
  void take_up(SocketArea::Handle handle, int signal, std::span<const int> descriptors);
  void drop_what_was_not_taken_up();
  [[nodiscard]] channel::SocketOptions options() const noexcept;
  [[nodiscard]] int memory_fd() const noexcept { return memory_fd_; }  // of the area
  // Held while exec() keeps descriptors open: one thread at a time, and no fork.
  [[nodiscard]] std::mutex& executing() noexcept { return executing_; }
  // The program puts a descriptor of its own at this number. False: this library needs the number.
  [[nodiscard]] bool make_way(int number);

  // The program is about to set a seccomp filter, which allows read and write, futex and ppoll at least. This library's
  // own descriptors need no other calls afterwards.
  void confine() noexcept;
  [[nodiscard]] bool confined() const noexcept { return confined_.load(std::memory_order_relaxed); }
  // True: a filter may kill this thread for calls that show the end of a stream; the library's own thread makes them.
  [[nodiscard]] bool leaves_ends_to_own_thread() noexcept;

  // From now on events of this socket are taken in even while no call waits.
  void listen_for(Socket& socket);
  // Before a thread sleeps on the socket's word: events that nobody waits for are taken in before they fill their ring.
  void begin_blocking(Socket& socket);
  void end_blocking() noexcept { blocked_.fetch_sub(1); }

 private:
  void unlock_after_fork() noexcept;
  void begin(std::unique_ptr<channel::Sockets> connections);
  void start_listening();
  void listen_to_agent();
  void rest();
  void end_with_main_thread() noexcept;
  void lose(const Failure& why);
  void told();
  // Exists while a thread waits for told_.
  struct Listening {
    explicit Listening(Program& here) : program(here) {
      program.awaited_.fetch_add(1);
      program.add_listeners(1);
    }
    ~Listening() {
      program.listeners_.fetch_sub(1);
      program.awaited_.fetch_sub(1);
    }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    Program& program;
  };
  void add_listeners(int count);
  void show_if_used(Socket& socket);
  void show_all();
  void wake_thread();
  void give_back();
  void keep_others_asleep();
  void note_unsettled();
  [[nodiscard]] Sleep common_sleep() const noexcept { return sleepers_ > 0 ? Sleep::until_events : Sleep::until_full; }

  Policy policy_;
  std::atomic<bool> left_out_ = false, confined_ = false;
  ThreadWatch main_thread_;                             // once it is confined
  std::optional<channel::Sockets::Newcomer> newcomer_;  // between before_fork and its end
  std::mutex executing_;
  std::mutex forking_;
  pid_t pid_;
  std::mutex opening_;
  bool tried_ = false;
  std::unique_ptr<channel::Sockets> connections_;
  int memory_fd_ = -1;
  std::atomic<SocketArea*> area_ = nullptr;
  std::atomic<bool> lost_ = false;
  Socket* sockets_ = nullptr;  // by handle, of all processes
  std::unique_ptr<OwnPart[]> own_;
  std::mutex sleeping_;
  std::uint32_t sleepers_ = 0, full_sleepers_ = 0;  // by kind of sleep
  std::atomic<int> listeners_ = 0;                  // awaited sockets, and threads that wait for told_
  std::atomic<int> awaited_ = 0;                    // threads that wait for told_
  std::atomic<int> blocked_ = 0;                    // threads that sleep on words of sockets
  // As the library's thread has seen it last: threads do; commands or accept slots wait for the agent.
  std::atomic<bool> blocks_ = false, settles_ = false;
  std::atomic<bool> may_give_back_ = false;
  std::atomic<bool> owes_ends_ = false;  // that threads with a filter could not show
  std::atomic<pthread_t> own_thread_ = 0;
  TimeNs gave_back_at_ = 0;  // of the library's own thread
  Fd changes_;               // an eventfd: listeners_ or may_give_back_ has changed
  std::mutex telling_;
  std::optional<std::condition_variable> told_{std::in_place};
  std::uint64_t tellings_ = 0;
};

[[nodiscard]] Program& program() noexcept;
// Before the first program() no descriptor is offloaded. The first one allocates memory.
[[nodiscard]] bool program_is_made() noexcept;

}  // namespace offpath::sockets
