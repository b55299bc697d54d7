#include "supervise/relay.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <span>
#include <utility>

#include "sockets/kernel_terms.h"
#include "sockets/left_to_kernel.h"
#include "supervise/options.h"

namespace offpath::supervise {

namespace {

constexpr std::size_t piece_bytes = 64 << 10;
constexpr int pieces_at_once = 8;  // of one socket, before the next one has its turn
constexpr std::size_t ended_max = 1024;
constexpr int events_at_once = 256;
constexpr TimeNs open_wait_ns = 10 * second_ns, leave_wait_ns = 5 * second_ns;

void watch(int epoll, int fd, std::uint32_t events, void* what) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = what;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Relay::Relay(const sockets::Policy& policy, std::string name, std::function<void(Supervised&)> changed)
    : policy_(policy),
      name_(std::move(name)),
      changed_(std::move(changed)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      buffer_(piece_bytes) {}

SocketArea* Relay::open() {
  if (lost_) return nullptr;
  if (std::exchange(tried_, true)) return connections_ ? &connections_->area() : nullptr;
  auto opened = channel::Sockets::connect(policy_.agent, name_, policy_.options(0), monotonic_ns() + open_wait_ns);
  if (!opened) {
    if (sockets::note_failure(opened.error().message))
      std::fprintf(stderr, "offpath sockets: no connections over %s: %s\n", policy_.agent.c_str(),
                   opened.error().message.c_str());
    return nullptr;
  }
  sockets::forget_failure();
  connections_ = std::move(*opened);
  by_handle_.assign(policy_.sockets, nullptr);
  watch(epoll_.get(), connections_->wake_fd(), EPOLLIN, nullptr);
  return &connections_->area();
}

void Relay::lose(const Failure& why) {
  lost_ = true;
  if (sockets::note_failure(why.message))
    std::fprintf(stderr, "offpath sockets: every connection is lost: %s\n", why.message.c_str());
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connections_->wake_fd(), nullptr);
  std::vector<Supervised*> all;
  for (Supervised* each : by_handle_)
    if (each != nullptr && std::ranges::find(all, each) == all.end()) all.push_back(each);
  for (Supervised* each : all) {
    if (each->is == Supervised::Is::connected)
      end(*each, ECONNRESET);
    else
      changed_(*each);
  }
}

// ---- sockets

Supervised& Relay::add(StreamPair::Made&& made, int family) {
  auto socket = std::make_unique<Supervised>();
  socket->inode = made.inode;
  socket->family = family;
  socket->pair = std::move(made.pair);
  Supervised& added = *socket;
  watch(epoll_.get(), added.pair.descriptor(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &added);
  if (Supervised* const before = find(added.inode)) forget(*before);  // its number was free again
  sockets_[added.inode] = std::move(socket);
  return added;
}

bool Relay::has_room() const noexcept { return sockets_.size() < 2 * std::size_t{policy_.sockets} + ended_max; }

Supervised* Relay::find(ino_t inode) noexcept {
  const auto found = sockets_.find(inode);
  return found == sockets_.end() ? nullptr : found->second.get();
}

void Relay::set_handle(Supervised& socket, SocketArea::Handle handle) {
  socket.handle = handle;
  by_handle_[handle] = &socket;
}

void Relay::set_port(Supervised& socket, SocketArea::Handle handle) {
  socket.port = handle;
  by_handle_[handle] = &socket;
}

void Relay::release_port(Supervised& socket) {
  const auto port = std::exchange(socket.port, std::nullopt);
  if (!port) return;
  by_handle_[*port] = nullptr;
  if (!lost_) area().close(*port);
}

void Relay::release(Supervised& socket) {
  const auto handle = std::exchange(socket.handle, std::nullopt);
  if (!handle) return;
  by_handle_[*handle] = nullptr;
  if (lost_) return;
  if (socket.is == Supervised::Is::connected && resets(socket))
    area().abort(*handle);
  else
    area().close(*handle);
  for (const SocketArea::Handle each : std::exchange(socket.accepted, {})) area().abort(each);
}

// Data that the program did not read is lost, and the peer has to know it, as in the kernel (RFC 1122, 4.2.2.13).
bool Relay::resets(const Supervised& socket) const noexcept {
  return (socket.pair.is_open() && socket.pair.was_left_unread()) ||
         (socket.kernels && resets_at_close(socket.kernels->get()));
}

void Relay::begin(Supervised& socket) {
  socket.is = Supervised::Is::connected;
  const auto look = area().known(*socket.handle);
  if (look) socket.local = look->local, socket.remote = look->remote;
  socket.pair.drain();
  be_busy(socket);
}

void Relay::end(Supervised& socket, int error) {
  release_port(socket);
  release(socket);
  socket.is = Supervised::Is::ended;
  socket.error = error;
  if (error != 0)
    socket.pair.reset();
  else
    socket.pair.close();
  socket.carried = {};
  if (socket.program_gone) socket.kernels.reset();
  ended_.push_back(socket.inode);
  if (ended_.size() <= ended_max) return;
  if (Supervised* const oldest = find(ended_.front()); oldest != nullptr && oldest->is == Supervised::Is::ended)
    forget(*oldest);
  ended_.pop_front();
}

void Relay::forget(Supervised& socket) {
  release_port(socket);
  release(socket);
  socket.is = Supervised::Is::ended;
  socket.pair.close();
  std::erase(busy_, &socket);
  std::erase(stalled_, &socket);
  const auto found = sockets_.find(socket.inode);
  if (found == sockets_.end() || found->second.get() != &socket) return;
  forgotten_.push_back(std::move(found->second));
  sockets_.erase(found);
}

// ---- bytes

void Relay::be_busy(Supervised& socket) {
  if (!std::exchange(socket.busy, true)) busy_.push_back(&socket);
}

// The order of the looks: an event first, then the bytes before it.
void Relay::on_pair(Supervised& socket, std::uint32_t events) {
  if (socket.is == Supervised::Is::ended) return;
  if ((events & (EPOLLRDHUP | EPOLLHUP)) != 0) socket.program_finished = true;
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) socket.program_gone = true;
  if (socket.is == Supervised::Is::connected) return be_busy(socket);
  if (!socket.program_gone) return;
  if (!socket.waiting.empty()) changed_(socket);  // threads that wait learn it
  forget(socket);
}

void Relay::pump(Supervised& socket) {
  if (socket.is != Supervised::Is::connected) return;
  const bool more_in = to_program(socket);
  if (socket.is != Supervised::Is::connected) return;
  const bool more_out = from_program(socket);
  if (socket.is == Supervised::Is::connected && (more_in || more_out)) be_busy(socket);
}

// True: there is more at once.
bool Relay::to_program(Supervised& socket) {
  for (int i = 0; i < pieces_at_once; ++i) {
    if (socket.program_gone) return false;  // unread bytes make its end a reset
    const auto got = area().receive(*socket.handle, buffer_, {.skip = 0, .peeks = true, .discards = false});
    if (!got) {
      if (got.error().code == Error::would_block) return false;
      const auto look = area().known(*socket.handle);
      end(socket, look && look->error != wire::TcpError::none ? sockets::errno_of(look->error) : ECONNRESET);
      return false;
    }
    if (*got == 0) {
      if (!std::exchange(socket.peer_finished, true)) socket.pair.end_stream();
      return false;
    }
    if (gives_back_at_ == never) gives_back_at_ = monotonic_ns() + second_ns;
    std::size_t passed = *got;
    if (socket.program_reads) {
      const StreamPair::Given given = socket.pair.give(Bytes(buffer_).first(*got));
      socket.program_reads = given.reads;
      if (!given.reads) return true;  // it shut its end, or closed it: the event for that comes first
      passed = given.bytes;
    }
    if (passed == 0) return false;
    static_cast<void>(area().receive(*socket.handle, MutableBytes(buffer_).first(passed),
                                     {.skip = 0, .peeks = false, .discards = true}));
  }
  return true;
}

// True: there is more at once.
bool Relay::from_program(Supervised& socket) {
  for (int i = 0; i < pieces_at_once; ++i) {
    if (socket.carried.empty()) {
      const std::size_t waiting = socket.pair.waiting();
      if (waiting == 0) {
        pass_end(socket);
        return false;
      }
      const auto look = area().look(*socket.handle);
      if (!look || (!look->writable && !look->closed)) return false;  // the agent sends an event when a third is free
      const std::uint64_t room = look->room;
      const std::size_t taken =
          socket.pair.take(MutableBytes(buffer_).first(std::min<std::uint64_t>({waiting, room, buffer_.size()})));
      if (taken == 0 && room > 0) {  // urgent data that the pair does not hand out
        pass_end(socket);
        return false;
      }
      socket.carried.assign(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(taken));
    }
    const auto sent = area().send(*socket.handle, socket.carried);
    if (!sent && sent.error().code == Error::would_block) {
      stalled_.push_back(&socket);  // with the next wake by the agent
      return false;
    }
    if (!sent) {
      const auto look = area().known(*socket.handle);
      end(socket, look && look->error != wire::TcpError::none ? sockets::errno_of(look->error) : ECONNRESET);
      return false;
    }
    socket.carried.erase(socket.carried.begin(), socket.carried.begin() + static_cast<std::ptrdiff_t>(*sent));
  }
  return true;
}

// Everything that the program wrote is in the ring.
void Relay::pass_end(Supervised& socket) {
  if (socket.program_gone) {
    end(socket, 0);  // after shutdown in both directions the program still has a descriptor
  } else if (socket.program_finished && !std::exchange(socket.finished, true)) {
    static_cast<void>(area().finish(*socket.handle));
  }
}

// ---- the loop

void Relay::take_in() {
  if (!connections_ || lost_) return;
  area().take_in();
  if (gives_back_at_ == never && area().has_memory()) gives_back_at_ = monotonic_ns() + second_ns;
  while (!lost_) {
    const auto handle = area().take_changed();
    if (!handle) return;
    Supervised* const socket = by_handle_[*handle];
    if (socket == nullptr) continue;
    if (socket->is == Supervised::Is::connected)
      be_busy(*socket);
    else
      changed_(*socket);
  }
}

bool Relay::work() {
  std::array<epoll_event, events_at_once> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events_at_once, 0);
  for (const epoll_event& event : std::span(events).first(static_cast<std::size_t>(std::max(count, 0)))) {
    if (event.data.ptr != nullptr)
      on_pair(*static_cast<Supervised*>(event.data.ptr), event.events);
    else if (const Status cleared = connections_->clear(); !cleared)
      lose(cleared.error());
  }
  take_in();
  for (Supervised* const socket : std::exchange(stalled_, {})) be_busy(*socket);
  const std::vector<Supervised*> busy = std::exchange(busy_, {});
  for (Supervised* const socket : busy) socket->busy = false;
  for (Supervised* const socket : busy) pump(*socket);
  take_in();
  if (gives_back_at_ <= monotonic_ns()) give_back();
  forgotten_.clear();
  return !busy_.empty() || count == events_at_once;
}

void Relay::give_back() {
  gives_back_at_ = never;
  if (connections_ && !lost_ && area().give_back(monotonic_ns())) gives_back_at_ = monotonic_ns() + second_ns;
}

bool Relay::fall_asleep() { return !connections_ || lost_ || (!area().has_changed() && area().fall_asleep()); }

void Relay::awake() {
  if (connections_ && !lost_) area().stay_awake();
}

void Relay::leave() {
  const TimeNs until = monotonic_ns() + leave_wait_ns;
  while (!busy_.empty() || connections_) {
    const bool more = work();
    if (!connections_ || lost_) return;
    const bool relays = std::ranges::any_of(
        by_handle_, [](const Supervised* each) { return each != nullptr && each->is == Supervised::Is::connected; });
    const TimeNs left = until - monotonic_ns();
    if ((!relays && !area().undelivered()) || left <= 0) return;
    if (more || !fall_asleep()) continue;
    pollfd ready{epoll_.get(), POLLIN, 0};
    const timespec limit{left / second_ns, left % second_ns};
    static_cast<void>(::ppoll(&ready, 1, &limit, nullptr));
    awake();
  }
}

}  // namespace offpath::supervise
