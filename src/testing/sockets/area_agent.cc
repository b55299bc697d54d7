#include "testing/sockets/area_agent.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "link/local/sealed_memory.h"

namespace offpath::sockets {

using wire::TcpError;
using wire::TcpNews;
using wire::TcpWish;
using wire::TcpWishKind;
namespace news = wire::tcp_news;

namespace {

constexpr std::uint32_t peers_address = 0x0a090001;
constexpr std::uint16_t first_port = 40'000, segment_bytes = 1448;

std::pair<Fd, Fd> pair_of_sockets() {
  int ends[2];
  OFP_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// A test fails, instead of waiting without end, when the program does not do what the test waits for.
void wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& served, std::string_view what,
              const auto& there) {
  if (!served.wait_for(lock, std::chrono::seconds(30), there))
    throw std::runtime_error(fmt::format("waited 30 s for {}", what));
}

}  // namespace

AreaAgent::AreaAgent(const channel::SocketOptions& options)
    : memory_(link::allocate_sealed(channel::SocketArea::layout_of(options).bytes).value()),
      area_(channel::SocketArea::layout_of(options)) {
  maker_ = std::make_unique<channel::SocketArea>(memory_.bytes(), options, [](std::uint32_t) {});
  OFP_ASSERT(area_.attach(memory_.bytes()));
  area_.introduce(1, 0);
  std::tie(wakes_[0], programs_wake_) = pair_of_sockets();
  notices_.emplace_back();
  std::tie(notices_.back(), programs_notices_) = pair_of_sockets();
  thread_ = std::thread([this] { run(); });
}

AreaAgent::~AreaAgent() {
  {
    const std::lock_guard lock(lock_);
    ends_ = true;
  }
  ::shutdown(wakes_[0].get(), SHUT_RD);
  thread_.join();
}

channel::Sockets::Newcomer AreaAgent::first_process() {
  return {0, std::move(programs_wake_), std::move(programs_notices_)};
}

void AreaAgent::run() {
  std::unique_lock lock(lock_);
  while (!ends_) {
    take_datagrams();
    serve();
    if (!area_.fall_asleep(false)) continue;
    std::vector<pollfd> wakes;
    for (const auto& [process, wake] : wakes_) wakes.push_back({wake.get(), POLLIN, 0});
    lock.unlock();
    static_cast<void>(::poll(wakes.data(), wakes.size(), -1));
    lock.lock();
    area_.wake_up();
  }
}

// Only the thread takes them: a datagram that another one took would not end its sleep.
void AreaAgent::take_datagrams() {
  std::map<std::uint32_t, Fd> joined;
  std::erase_if(wakes_, [&](const auto& each) { return !take_datagrams(each.second.get(), joined); });
  wakes_.merge(joined);
}

// Wakes, and processes that join. False: the process at the other end is gone.
bool AreaAgent::take_datagrams(int wake, std::map<std::uint32_t, Fd>& joined) {
  for (;;) {
    wire::TcpJoin join{};
    iovec part{&join, sizeof join};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(wake, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0) return got < 0;
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (got != sizeof join || join.kind != wire::TcpJoin::join || rights == nullptr) continue;
    int received[2];
    std::memcpy(received, CMSG_DATA(rights), sizeof received);
    joined[join.process] = Fd(received[0]);
    notices_.emplace_back(received[1]);
    processes_.push_back(join.process);
    served_.notify_all();
  }
}

void AreaAgent::serve() {
  TcpWish wish;
  for (auto there = area_.take(wish); there && *there; there = area_.take(wish)) take(wish);
  wake_program();
  served_.notify_all();
}

void AreaAgent::wake_program() {
  area_.take_sleepers(processes_, [&](std::uint32_t process) {
    if (const auto found = wakes_.find(process); found != wakes_.end())
      static_cast<void>(::send(found->second.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  });
}

void AreaAgent::tell(Handle handle, std::uint8_t what, TcpError error) {
  TcpNews told = flows_[handle].known;
  told.what = what;
  told.error = error;
  told.handle = handle;
  OFP_ASSERT(*area_.post(told, ~0ull));
}

void AreaAgent::take(const TcpWish& wish) {
  const Handle handle = wish.handle;
  if (wish.kind == TcpWishKind::listen || wish.kind == TcpWishKind::seat || wish.kind == TcpWishKind::connect)
    std::erase_if(wished_, [&](const auto& each) { return each.second == handle; });  // a handle that is used again
  wished_.emplace_back(wish.kind, handle);
  switch (wish.kind) {
    case TcpWishKind::listen:
      flows_[handle] = {};
      flows_[handle].known.port = wish.port;
      listeners_[wish.port] = handle;
      return tell(handle, news::listening);
    case TcpWishKind::seat:
      flows_[handle] = {};
      flows_[handle].rings = wish;
      seats_[wish.listener].push_back(handle);
      return;
    case TcpWishKind::connect: {
      flows_[handle] = {};
      flows_[handle].rings = wish;
      TcpNews& known = flows_[handle].known;
      known.local_address = address;
      known.port = wish.port != 0 ? wish.port : static_cast<std::uint16_t>(first_port + handle);
      known.remote_address = wish.remote_address;
      known.remote_port = wish.remote_port;
      known.mss = segment_bytes;
      last_connected_ = handle;
      const TcpError error = std::exchange(next_error_, TcpError::none);
      return error == TcpError::none ? tell(handle, news::connected) : tell(handle, news::closed | news::gone, error);
    }
    case TcpWishKind::offer:
      return take_offer(wish);
    case TcpWishKind::release:
    case TcpWishKind::abort:
      for (const Handle seat : std::exchange(seats_[handle], {})) tell(seat, news::gone);
      return tell(handle, news::gone);
    case TcpWishKind::shut:
      flows_[handle].known.shut = wire::tcp_shut::refused;
      tell(handle, news::received);
      flows_[handle].known.shut = 0;
      return;
    default:
      return;
  }
}

void AreaAgent::take_offer(const TcpWish& wish) {
  Flow& flow = flows_[wish.handle];
  for (; flow.offered < wish.position; ++flow.offered)
    flow.sent += static_cast<char>(memory_.data()[flow.rings.send_at + flow.offered % flow.rings.send_bytes]);
  if (!acknowledges_) return;
  flow.known.acknowledged = flow.offered;
  tell(wish.handle, news::acknowledged);
}

// ---- what the network does

void AreaAgent::fail_next_connection(TcpError error) {
  const std::lock_guard lock(lock_);
  next_error_ = error;
}

AreaAgent::Handle AreaAgent::connect_to(std::uint16_t port) {
  std::unique_lock lock(lock_);
  wait_for(lock, served_, fmt::format("a listener of port {}", port),
           [&] { return listeners_.contains(port) && !seats_[listeners_[port]].empty(); });
  const Handle listener = listeners_[port], handle = seats_[listener].front();
  seats_[listener].erase(seats_[listener].begin());
  TcpNews& known = flows_[handle].known;
  known.listener = listener;
  known.local_address = address;
  known.port = port;
  known.remote_address = peers_address;
  known.remote_port = static_cast<std::uint16_t>(first_port + handle);
  known.mss = segment_bytes;
  tell(handle, news::accepted);
  wake_program();
  return handle;
}

void AreaAgent::arrive(Handle handle, std::string_view bytes) {
  const std::lock_guard lock(lock_);
  Flow& flow = flows_[handle];
  for (const char byte : bytes)
    memory_.data()[flow.rings.receive_at + flow.known.received++ % flow.rings.receive_bytes] =
        static_cast<std::byte>(byte);
  tell(handle, news::received);
  wake_program();
}

void AreaAgent::end_stream(Handle handle) {
  const std::lock_guard lock(lock_);
  tell(handle, news::finished);
  wake_program();
}

void AreaAgent::fail(Handle handle, TcpError error) {
  const std::lock_guard lock(lock_);
  tell(handle, news::closed, error);
  wake_program();
}

void AreaAgent::acknowledge(bool at_once) {
  const std::lock_guard lock(lock_);
  serve();  // what was offered before
  acknowledges_ = at_once;
  if (!at_once) return;
  for (auto& [handle, flow] : flows_) {
    if (flow.known.acknowledged == flow.offered) continue;
    flow.known.acknowledged = flow.offered;
    tell(handle, news::acknowledged);
  }
  wake_program();
}

// ---- what the program wished

void AreaAgent::await(TcpWishKind kind, Handle handle) {
  std::unique_lock lock(lock_);
  wait_for(lock, served_, fmt::format("the program's wish {} for handle {}", static_cast<int>(kind), handle),
           [&] { return std::ranges::find(wished_, std::pair(kind, handle)) != wished_.end(); });
}

bool AreaAgent::has_wished(TcpWishKind kind, Handle handle) {
  const std::lock_guard lock(lock_);
  serve();
  return std::ranges::find(wished_, std::pair(kind, handle)) != wished_.end();
}

std::string AreaAgent::offered(Handle flow) {
  const std::lock_guard lock(lock_);
  serve();
  return flows_[flow].sent;
}

AreaAgent::Handle AreaAgent::last_connected() {
  const std::lock_guard lock(lock_);
  serve();
  return last_connected_;
}

void AreaAgent::await_processes(std::size_t count) {
  std::unique_lock lock(lock_);
  wait_for(lock, served_, fmt::format("{} processes", count), [&] { return processes_.size() == count; });
}

std::size_t AreaAgent::processes() {
  const std::lock_guard lock(lock_);
  return processes_.size();
}

}  // namespace offpath::sockets
