// What this process has with the agent: opened with the first socket that is to be offloaded, and there until it exits.
//
// Sleeping. One word in the area says that somebody here sleeps; who finds it set clears it and sends one datagram,
// which wakes all who sleep. So whoever comes back takes in what there is, for all, and sets the word again if others
// still sleep: fall_asleep() and awake(). Threads that sleep in epoll do that themselves. A thread of this library's
// own sleeps for those who sleep elsewhere in the kernel, and shows at the descriptors what can be done; as long as
// there is nobody to be shown anything it waits for the agent's end alone.
//
// Several processes. A forked child is one more process of the same area: what it needs is made before the fork, so
// that nothing ends that it inherits, and it has a waiting thread of its own. A program that takes the place of one by
// exec() goes on with those sockets that it finds among its descriptors (executing.cc). A child that could not join may
// close what it inherited; anything else fails with EOPNOTSUPP, and sockets of its own are the kernel's. A child of
// vfork() lives in its parent's memory, and changes nothing there.
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
  }  // a child that did not join
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

  // Opens the connections at the first call. Null: there is no agent for this process.
  [[nodiscard]] SocketArea* open();
  // For who has a socket, so that they are open.
  [[nodiscard]] SocketArea& area() noexcept { return *area_.load(std::memory_order_acquire); }

  [[nodiscard]] Use make(SocketArea::Handle handle, bool listener);
  void end(Socket& socket);
  void show(Socket& socket);
  // Whoever asked the area for anything may have taken in events about any socket, and is the only one who knows.
  void show_changed();
  // The newest, and what else the agent has told is shown.
  [[nodiscard]] Result<SocketArea::Look> look(SocketArea::Handle handle);
  // From now on what can be done with the socket is shown at its descriptor, for who asks the kernel.
  void begin_showing(int fd, Socket& socket);

  // What the agent has told, and what that changed.
  void take_in();
  // Before a sleep on wake_fd(). False: there is something already, and there was no sleep.
  [[nodiscard]] bool fall_asleep();
  void awake();  // after it
  [[nodiscard]] int wake_fd() const noexcept { return connections_->wake_fd(); }
  // Takes datagrams away, and sees to it that others who sleep are none the worse.
  void forget_wakes();

  // Something was read: memory may be given back when there is nothing else to do.
  void note_read() {
    if (!may_give_back_.load(std::memory_order_relaxed) && !may_give_back_.exchange(true)) wake_thread();
  }
  // Waits until the listener or connection is there, or is not to be. The look then.
  [[nodiscard]] SocketArea::Look decided(SocketArea::Handle handle);
  // At exit: what was sent goes out first.
  void leave();

  [[nodiscard]] OwnPart& own(SocketArea::Handle handle) noexcept { return own_[handle]; }
  [[nodiscard]] Socket& socket(SocketArea::Handle handle) noexcept { return sockets_[handle]; }

  // Around a fork: nothing of this library is half done in the child.
  void before_fork();
  void in_parent() noexcept;
  void in_child() noexcept;
  // Null: there are no connections that exec() could keep.
  [[nodiscard]] channel::Sockets* to_hand_over() noexcept {
    return lost() || left_out() ? nullptr : area_.load() != nullptr ? connections_.get() : nullptr;
  }
  // Connections that came with exec(), and of their sockets those that this process has descriptors for.
  void take_up(std::unique_ptr<channel::Sockets> connections);
  void take_up(SocketArea::Handle handle, int signal, std::span<const int> descriptors);
  void drop_what_was_not_taken_up();
  [[nodiscard]] channel::SocketOptions options() const noexcept;
  [[nodiscard]] int memory_fd() const noexcept { return memory_fd_; }  // of the area
  // While exec() keeps descriptors: one thread at a time, and no fork.
  [[nodiscard]] std::mutex& executing() noexcept { return executing_; }
  // The program is about to put a descriptor of its own at this number. False: this library needs it.
  [[nodiscard]] bool make_way(int number);

  // From now on what the agent tells about it is taken in even while nobody calls.
  void listen_for(Socket& socket);

 private:
  void begin(std::unique_ptr<channel::Sockets> connections);
  void start_listening();
  void listen_to_agent();
  void rest();
  void lose(const Failure& why);
  void told();
  // While a thread waits for told_.
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
  void wake_thread();
  void give_back();
  void keep_others_asleep();

  Policy policy_;
  std::atomic<bool> left_out_ = false;
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
  std::uint32_t sleepers_ = 0;
  std::atomic<int> listeners_ = 0;  // sockets that somebody waits for, threads that wait for told_
  std::atomic<int> awaited_ = 0;    // the latter
  std::atomic<bool> may_give_back_ = false;
  TimeNs gave_back_at_ = 0;  // the library's own thread's
  Fd changes_;               // an eventfd: that listeners_ or may_give_back_ has changed
  std::mutex telling_;
  std::optional<std::condition_variable> told_{std::in_place};
  std::uint64_t tellings_ = 0;
};

[[nodiscard]] Program& program() noexcept;

}  // namespace offpath::sockets
