#include "sockets/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <thread>

#include "base/sleep_flag.h"
#include "sockets/epoll_sets.h"
#include "sockets/kernel.h"
#include "sockets/left_to_kernel.h"
#include "sockets/own_descriptors.h"

namespace offpath::sockets {

namespace {

constexpr TimeNs open_wait_ns = 10 * second_ns;
constexpr TimeNs leave_wait_ns = 5 * second_ns;

void say(std::string_view what, const Failure& why) {
  if (!note_failure(why.message)) return;
  std::fprintf(stderr, "offpath sockets: %.*s: %s\n", static_cast<int>(what.size()), what.data(), why.message.c_str());
}

[[gnu::destructor]] void at_exit() {
  if (program().to_hand_over() != nullptr) std::fflush(nullptr);  // streams may be sockets
  program().leave();
  if (!program().policy().agent.empty() && is_to_report())
    std::fprintf(stderr, "offpath sockets: %s\n", report().c_str());
}

std::atomic<bool> is_made = false;

}  // namespace

// Never destroyed: other threads may be in a call while the program exits.
Program& program() noexcept {
  static Program* const only = [] {
    auto* const made = new Program;
    is_made.store(true);
    return made;
  }();
  return *only;
}

bool program_is_made() noexcept { return is_made.load(); }

Program::Program() : pid_(getpid()) {
  auto policy = read_policy_of_environment();
  if (policy)
    policy_ = std::move(*policy);
  else
    say("nothing is offloaded", policy.error());
  pthread_atfork([] { program().before_fork(); }, [] { program().in_parent(); }, [] { program().in_child(); });
}

channel::SocketOptions Program::options() const noexcept { return policy_.options(policy_.sockets * sizeof(Socket)); }

OwnPart& Socket::own() const noexcept { return program().own(handle); }

bool Program::vforked() const noexcept { return getpid() != pid_; }

SocketArea* Program::open() {
  if (lost() || left_out()) return nullptr;
  const std::lock_guard lock(opening_);
  if (std::exchange(tried_, true)) return area_.load();
  const OwnSockets none_of_the_programs;
  auto opened =
      channel::Sockets::connect(policy_.agent, program_invocation_short_name, options(), monotonic_ns() + open_wait_ns);
  if (!opened) {
    say("no connections over " + policy_.agent, opened.error());
    return nullptr;
  }
  forget_failure();
  Socket::make_all((*opened)->area().kept());
  begin(std::move(*opened));
  return area_.load();
}

void Program::begin(std::unique_ptr<channel::Sockets> connections) {
  connections_ = std::move(connections);
  sockets_ = std::launder(reinterpret_cast<Socket*>(connections_->area().kept().data()));
  own_ = std::make_unique<OwnPart[]>(options().flows);
  connections_->renumber(out_of_the_way);
  connections_->renumber_doorbells(out_of_the_way);
  memory_fd_ = out_of_the_way(
      kernel::fcntl(connections_->memory_fd(), F_DUPFD_CLOEXEC, 0));  // the channel needs its own no more
  area_.store(&connections_->area(), std::memory_order_release);
  start_listening();
}

void Program::start_listening() {
  changes_ = Fd(out_of_the_way(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  sigset_t all, before;  // signals are for the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { listen_to_agent(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// ---- sleep

void Program::take_in() {
  area().take_in();
  show_changed();
}

bool Program::fall_asleep(Sleep until) {
  {
    const std::lock_guard lock(sleeping_);
    std::uint32_t& sleepers = until == Sleep::until_full ? full_sleepers_ : sleepers_;
    ++sleepers;
    if (area().fall_asleep(common_sleep())) return true;
    --sleepers;
  }
  keep_others_asleep();
  return false;
}

void Program::awake(Sleep until) {
  {
    const std::lock_guard lock(sleeping_);
    std::uint32_t& sleepers = until == Sleep::until_full ? full_sleepers_ : sleepers_;
    OFP_ASSERT(sleepers > 0);
    --sleepers;
    if (sleepers_ + full_sleepers_ == 0) return area().stay_awake();
  }
  keep_others_asleep();
}

// The agent has cleared the word, which all sleeping threads share. Takes in events until it can be set again.
void Program::keep_others_asleep() {
  const std::lock_guard lock(sleeping_);
  while (sleepers_ + full_sleepers_ > 0 && !area().fall_asleep(common_sleep())) take_in();
}

void Program::begin_blocking(Socket& socket) {
  blocked_.fetch_add(1);
  if (!area().has_sleep_words()) return listen_for(socket);
  if (!blocks_.load() && !blocks_.exchange(true)) wake_thread();
}

// The area's word is read without its lock, so there is a fence between each side's store and its look at the other's
// (base/sleep_flag.h): here and in rest().
void Program::note_unsettled() {
  if (!area().is_unsettled()) return;
  fence_before_look();
  if (!settles_.load() && !settles_.exchange(true)) wake_thread();
}

void Program::forget_wakes() {
  std::array<mmsghdr, 32> messages{};
  std::array<char, 32> bytes{};
  std::array<iovec, 32> parts{};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    parts[i] = {&bytes[i], 1};
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int before = errno;
  static_cast<void>(::recvmmsg(wake_fd(), messages.data(), messages.size(), MSG_DONTWAIT, nullptr));
  keep_others_asleep();
  errno = before;
}

// ---- the library's own thread

void Program::add_listeners(int count) {
  if (listeners_.fetch_add(count) == 0) wake_thread();
}

void Program::wake_thread() {
  constexpr std::uint64_t one = 1;
  static_cast<void>(kernel::write(changes_.get(), static_cast<const void*>(&one), sizeof one));
}

void Program::begin_showing(int fd, Socket& socket) {
  if (left_out()) return;
  listen_for(socket);
  socket.begin_showing(fd, area());
}

void Program::listen_for(Socket& socket) {
  if (!socket.own().listens.load(std::memory_order_relaxed) && !socket.own().listens.exchange(true)) add_listeners(1);
}

void Program::listen_to_agent() {
  own_thread_.store(pthread_self());
  pthread_setname_np(pthread_self(), "offpath-sockets");
  while (!lost()) rest();
}

// Gives memory of idle rings back: once a second, until none is left.
void Program::give_back() {
  const TimeNs now = monotonic_ns();
  if (now - gave_back_at_ < second_ns) return;
  gave_back_at_ = now;
  may_give_back_.store(false);
  if (area().give_back(now)) may_give_back_.store(true);
  show_changed();
  told();
}

void Program::rest() {
  if (may_give_back_.load()) give_back();
  if (owes_ends_.exchange(false)) show_all();
  blocks_.store(false);
  if (blocked_.load() > 0) blocks_.store(true);
  settles_.store(false);
  fence_before_look();
  if (area().is_unsettled()) settles_.store(true);
  const bool listens = listeners_.load() > 0 || area().is_giving_back() || settles_.load();
  const bool looks = listens || blocks_.load();
  const Sleep until = listens ? Sleep::until_events : Sleep::until_full;
  bool sleeps = true;
  if (looks) {
    take_in();
    told();
    sleeps = fall_asleep(until);
  }
  pollfd descriptors[] = {{wake_fd(), static_cast<short>(looks ? POLLIN : 0), 0},
                          {changes_.get(), POLLIN, 0},
                          {connections_->notice_fd(), POLLIN, 0}};
  // An agent that ended may leave events that keep everybody awake: its end shows here.
  const timespec at_once{0, 0}, look{1, 0};
  const bool looks_again = may_give_back_.load() || main_thread_.watches();
  const timespec* const limit = !sleeps ? &at_once : looks_again ? &look : nullptr;
  const int ready = kernel::ppoll(&descriptors[0], nfds_t{3}, limit, static_cast<const sigset_t*>(nullptr));
  if (main_thread_.was_killed()) end_with_main_thread();
  if (ready < 0 && errno != EINTR) {
    // Below three allowed descriptors (RLIMIT_NOFILE) the kernel refuses the call. Reading them does not block. Wakes
    // of other threads stay.
    const timespec pause{0, 10 * millisecond_ns};
    ::nanosleep(&pause, nullptr);
    char byte;
    const bool gone = ::recv(wake_fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    descriptors[0].revents = looks || gone ? POLLIN : 0;
    descriptors[1].revents = descriptors[2].revents = POLLIN;
  }
  // First: some discarded datagrams may have been for other threads, which are served then.
  const Status cleared = descriptors[0].revents != 0 ? connections_->clear() : Status{};
  if (looks) sleeps ? awake(until) : keep_others_asleep();
  std::uint64_t ignored;
  if (descriptors[1].revents != 0)
    static_cast<void>(kernel::read(changes_.get(), static_cast<void*>(&ignored), sizeof ignored));
  if ((descriptors[2].revents & POLLIN) != 0) {
    connections_->clear_notices();
    take_in();
    told();
  }
  if (!cleared) lose(cleared.error());
}

void Program::confine() noexcept {
  if (area_.load() == nullptr || left_out() || vforked() || confined_.exchange(true)) return;
  // A write to a descriptor whose other end is closed would kill the program; its own sends still do (transfer.cc).
  struct sigaction action{};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
  for (SocketArea::Handle handle = 0; handle < options().flows; ++handle)
    if (const int own = own_[handle].signal.load(); own >= 0)
      kernel::fcntl(own, F_SETFL, kernel::fcntl(own, F_GETFL) | O_NONBLOCK);
  connections_->write_wakes();
  area().keep_pages();
  main_thread_.begin();
  wake_thread();
}

bool Program::leaves_ends_to_own_thread() noexcept {
  if (!confined() || pthread_equal(pthread_self(), own_thread_.load()) != 0) return false;
  owes_ends_.store(true);
  wake_thread();
  return true;
}

// As the kernel ends a process whose only thread a filter kills.
void Program::end_with_main_thread() noexcept {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGSYS);
  ::signal(SIGSYS, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(SIGSYS);
}

void Program::lose(const Failure& why) {
  say("every connection is lost", why);
  lost_ = true;
  show_all();
  told();
}

void Program::told() {
  const std::lock_guard lock(telling_);
  ++tellings_;
  told_->notify_all();
}

Use Program::make(SocketArea::Handle handle, bool listener) {
  Socket& socket = sockets_[handle];
  socket.listener = listener;
  static_cast<Settings&>(socket) = {};
  socket.error_told = false;
  socket.unconnected = socket.reads_ended = false;
  socket.times_full = 0;
  socket.bound = {};
  socket.inode = 0;
  socket.send_buffer = static_cast<int>(policy_.send_bytes());
  socket.receive_buffer = static_cast<int>(policy_.ring_bytes);
  socket.own().users = 1;
  return Use(&socket);
}

void Program::end(Socket& socket) {
  epoll_sets().forget(socket);
  socket.end_signal();
  if (socket.own().listens.exchange(false)) listeners_.fetch_sub(1);
  if (left_out()) return;
  if (socket.resets())
    area().abort(socket.handle);
  else
    area().close(socket.handle);
  note_unsettled();
}

bool Program::make_way(int number) {
  if (!own_descriptors().has(number)) return true;
  if (vforked() || area_.load() == nullptr) return false;
  for (SocketArea::Handle handle = 0; handle < options().flows; ++handle)
    if (own_[handle].signal == number) return sockets_[handle].make_way(number);
  return false;
}

Result<SocketArea::Look> Program::look(SocketArea::Handle handle) {
  auto found = area().look(handle);
  if (!left_out()) show_changed();
  return found;
}

void Program::show(Socket& socket) {
  socket.show(area(), lost());
  if (area().has_memory()) note_memory();
  area().wake_sleepers(socket.handle);
  epoll_sets().on_change(socket);
}

void Program::show_if_used(Socket& socket) {
  socket.own().showings.fetch_add(1);
  if (const Use use = Use::of(socket)) show(*use);
  socket.own().showings.fetch_sub(1);
}

void Program::show_all() {
  for (SocketArea::Handle handle = 0; handle < options().flows; ++handle) show_if_used(sockets_[handle]);
}

void Program::show_changed() {
  note_unsettled();
  if (!area().has_changed()) return;
  while (const auto handle = area().take_changed()) show_if_used(sockets_[*handle]);  // or its creator shows it
  if (awaited_.load() > 0) told();
}

SocketArea::Look Program::decided(SocketArea::Handle handle) {
  const Listening here(*this);
  for (;;) {
    std::unique_lock lock(telling_);
    const std::uint64_t before = tellings_;
    lock.unlock();
    const auto found = look(handle);
    OFP_ASSERT(found);
    if (found->connected || found->closed) return *found;
    if (lost()) {
      SocketArea::Look gone = *found;
      gone.closed = true;
      gone.error = wire::TcpError::reset;
      return gone;
    }
    lock.lock();
    told_->wait(lock, [&] { return tellings_ != before; });
  }
}

void Program::leave() {
  if (area_.load() == nullptr || left_out() || lost()) return;
  if (!area().depart()) return;  // other processes still have the connections and deliver their data
  const Listening here(*this);
  const TimeNs deadline = monotonic_ns() + leave_wait_ns;
  for (;;) {
    std::unique_lock lock(telling_);
    const std::uint64_t before = tellings_;
    lock.unlock();
    if (lost() || !area().undelivered() || monotonic_ns() >= deadline) return;
    lock.lock();
    told_->wait_for(lock, std::chrono::nanoseconds(deadline - monotonic_ns()), [&] { return tellings_ != before; });
  }
}

}  // namespace offpath::sockets
