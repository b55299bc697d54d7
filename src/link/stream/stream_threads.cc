#include "link/stream/stream_threads.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/fd.h"
#include "link/stream/stream_server.h"

namespace offpath::link {

namespace {

constexpr std::size_t stream_stack_bytes = 256 * 1024;
constexpr unsigned waiting_max = 2;  // more threads that have nothing to do for a while end
constexpr int idle_ms = 1000;
constexpr std::uint64_t stop_number = 0;

}  // namespace

Result<pthread_t> begin_stream_thread(void* (*run)(void* argument), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stream_stack_bytes);
  pthread_t thread{};
  const int error_number = pthread_create(&thread, &attributes, run, argument);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error_number != 0) return fail_errno(error_number, "pthread_create");
  return thread;
}

struct StreamThreads::Shared {
  struct Served {
    StreamServer* server;
    Sockets sockets;
    bool busy = false;   // a thread serves it
    bool again = false;  // look at it once more before it is idle
    bool ended = false;
  };

  [[nodiscard]] Status begin_thread(const std::shared_ptr<Shared>& self);
  void work(const std::shared_ptr<Shared>& self);
  void serve(std::uint64_t number, const std::shared_ptr<Shared>& self);
  void await(std::uint64_t number, const Served& served, bool room) const noexcept;

  Fd epoll, stop;
  std::mutex mutex;
  std::condition_variable idle, ended;  // a server is no longer served; a thread has ended
  std::map<std::uint64_t, Served> all;
  std::uint64_t next = stop_number + 1;
  unsigned alive = 0, starting = 0, waiting = 0;
  bool stopping = false;
};

Result<std::shared_ptr<StreamThreads>> StreamThreads::create() {
  auto shared = std::make_shared<Shared>();
  shared->epoll = Fd(epoll_create1(EPOLL_CLOEXEC));
  shared->stop = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = stop_number;
  if (!shared->epoll || !shared->stop || epoll_ctl(shared->epoll.get(), EPOLL_CTL_ADD, shared->stop.get(), &event) != 0)
    return fail_errno(errno, "epoll of streams");
  return std::shared_ptr<StreamThreads>(new StreamThreads(std::move(shared)));
}

StreamThreads::~StreamThreads() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  (void)eventfd_write(shared_->stop.get(), 1);
  shared_->ended.wait(lock, [this] { return shared_->alive == 0; });
}

// Under the mutex.
Status StreamThreads::Shared::begin_thread(const std::shared_ptr<Shared>& self) {
  auto given = std::make_unique<std::shared_ptr<Shared>>(self);
  const auto run = [](void* argument) -> void* {
    const std::unique_ptr<std::shared_ptr<Shared>> shared(static_cast<std::shared_ptr<Shared>*>(argument));
    pthread_setname_np(pthread_self(), "offpath-tcp");
    (*shared)->work(*shared);
    return nullptr;
  };
  OFP_ASSIGN(const pthread_t thread, begin_stream_thread(run, given.get()));
  static_cast<void>(given.release());  // the thread's now
  pthread_detach(thread);
  ++alive;
  ++starting;
  return {};
}

Result<std::uint64_t> StreamThreads::add(StreamServer& server, Sockets sockets) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->alive == 0) OFP_TRY(shared_->begin_thread(shared_));
  const std::uint64_t number = shared_->next++;
  epoll_event event{};
  // The first event comes at once: frames may have arrived together with the last one of the handshake.
  event.events = EPOLLIN | EPOLLOUT | EPOLLONESHOT;
  event.data.u64 = number;
  shared_->all.emplace(number, Shared::Served{&server, sockets});
  epoll_event silence{EPOLLIN | EPOLLET, {.u64 = number}};  // of each expiry once; the socket stays as it is
  if (epoll_ctl(shared_->epoll.get(), EPOLL_CTL_ADD, sockets.silence, &silence) == 0) {
    if (epoll_ctl(shared_->epoll.get(), EPOLL_CTL_ADD, sockets.stream, &event) == 0) return number;
    epoll_ctl(shared_->epoll.get(), EPOLL_CTL_DEL, sockets.silence, nullptr);
  }
  shared_->all.erase(number);
  return fail_errno(errno, "epoll_ctl(add) of a stream");
}

void StreamThreads::remove(std::uint64_t number) {
  std::unique_lock lock(shared_->mutex);
  const auto at = shared_->all.find(number);
  if (at == shared_->all.end()) return;
  at->second.ended = true;
  shared_->idle.wait(lock, [&] { return !at->second.busy; });
  epoll_ctl(shared_->epoll.get(), EPOLL_CTL_DEL, at->second.sockets.stream, nullptr);
  epoll_ctl(shared_->epoll.get(), EPOLL_CTL_DEL, at->second.sockets.silence, nullptr);
  shared_->all.erase(at);
}

void StreamThreads::look_at(std::uint64_t number) {
  const std::lock_guard lock(shared_->mutex);
  const auto at = shared_->all.find(number);
  if (at == shared_->all.end() || at->second.ended) return;
  if (at->second.busy)
    at->second.again = true;
  else
    shared_->await(number, at->second, true);
}

unsigned StreamThreads::alive() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->alive;
}

// Under the mutex. `room`: also for output, which is so most of the time.
void StreamThreads::Shared::await(std::uint64_t number, const Served& served, bool room) const noexcept {
  epoll_event event{};
  event.events = (room ? EPOLLIN | EPOLLOUT : EPOLLIN) | EPOLLONESHOT;
  event.data.u64 = number;
  epoll_ctl(epoll.get(), EPOLL_CTL_MOD, served.sockets.stream, &event);
}

void StreamThreads::Shared::work(const std::shared_ptr<Shared>& self) {
  std::unique_lock lock(mutex);
  --starting;
  while (!stopping) {
    ++waiting;
    const int patience = waiting > waiting_max ? idle_ms : -1;
    lock.unlock();
    epoll_event event{};
    const int ready = epoll_wait(epoll.get(), &event, 1, patience);
    const std::uint64_t number = event.data.u64;  // a copy: the kernel's struct is packed
    lock.lock();
    --waiting;
    if (ready == 0 && waiting >= waiting_max) break;
    if (ready != 1 || number == stop_number) continue;
    serve(number, self);
  }
  --alive;
  ended.notify_all();
}

// Under the mutex, which is released while the server is served.
void StreamThreads::Shared::serve(std::uint64_t number, const std::shared_ptr<Shared>& self) {
  const auto at = all.find(number);
  if (at == all.end() || at->second.ended) return;
  Served& served = at->second;
  if (served.busy) {  // silence may be due that its thread has just not seen yet
    served.again = true;
    return;
  }
  served.busy = true;
  // If none can be started, the other streams wait for this one.
  if (waiting + starting == 0 && alive < all.size()) (void)begin_thread(self);
  StreamServer::Served state{};
  do {
    served.again = false;
    mutex.unlock();
    state = served.server->serve_waiting();
    mutex.lock();
  } while (served.again && state != StreamServer::Served::ended);
  served.busy = false;
  if (state == StreamServer::Served::ended) served.ended = true;
  if (!served.ended) await(number, served, state == StreamServer::Served::needs_room);
  idle.notify_all();
}

}  // namespace offpath::link
