#include "testing/sockets/area_agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "link/local/sealed_memory.h"

namespace offpath::sockets {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpError;
using wire::TcpEvent;
namespace event = wire::tcp_event;

namespace {

constexpr std::uint16_t first_port = 40'000, segment_bytes = 1448;

std::pair<Fd, Fd> pair_of_sockets() {
  int ends[2];
  OFP_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// A test fails, instead of waiting endlessly, if the expected event does not come.
void wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& served, std::string_view what,
              const auto& there) {
  if (!served.wait_for(lock, std::chrono::seconds(60), there))
    throw std::runtime_error(fmt::format("waited 60 s for {}", what));
}

}  // namespace

FakeAreaAgent::FakeAreaAgent(const channel::SocketOptions& options)
    : memory_(link::allocate_sealed(channel::SocketArea::layout_of(options).bytes).value()),
      area_(channel::SocketArea::layout_of(options)) {
  maker_ = std::make_unique<channel::SocketArea>(memory_.bytes(), options, [](std::uint32_t) {});
  const char* const link = std::getenv("OFFPATH_TEST_LINK");
  if (link != nullptr && std::string_view(link) == "late") {
    link_ = std::make_unique<AreaLink>(memory_.bytes(), channel::SocketArea::layout_of(options), wire::ipv4(address),
                                       address6);
    maker_->spread();
  }
  OFP_ASSERT(area_.attach(rings()));
  area_.introduce(1, wire::ipv4(address), address6);
  kick_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::tie(wakes_[0], programs_wake_) = pair_of_sockets();
  notices_.emplace_back();
  std::tie(notices_.back(), programs_notices_) = pair_of_sockets();
  thread_ = std::thread([this] { run(); });
}

FakeAreaAgent::~FakeAreaAgent() {
  {
    const std::lock_guard lock(lock_);
    ends_ = true;
  }
  ::shutdown(wakes_[0].get(), SHUT_RD);
  thread_.join();
}

channel::Sockets::Newcomer FakeAreaAgent::first_process() {
  return {0, std::move(programs_wake_), std::move(programs_notices_)};
}

void FakeAreaAgent::run() {
  Lock lock(lock_);
  while (!ends_) {
    take_datagrams();
    static_cast<void>(serve());
    if (link_ != nullptr) {
      do poll_link();
      while (serve());
      if (link_->is_quiet() || link_->next_deadline() > monotonic_ns()) rest(lock);
    } else if (area_.fall_asleep(false)) {
      rest(lock);
      area_.wake_up();
    }
  }
}

void FakeAreaAgent::rest(Lock& lock) {
  std::vector<pollfd> wakes{{kick_.get(), POLLIN, 0}};
  for (const auto& [process, wake] : wakes_) wakes.push_back({wake.get(), POLLIN, 0});
  const TimeNs until = link_ != nullptr ? link_->next_deadline() : never;
  lock.unlock();
  const TimeNs wait = std::max<TimeNs>(until - monotonic_ns(), 0);
  const timespec limit{wait / second_ns, wait % second_ns};
  static_cast<void>(::ppoll(wakes.data(), wakes.size(), until == never ? nullptr : &limit, nullptr));
  lock.lock();
  std::uint64_t kicks = 0;
  static_cast<void>(::read(kick_.get(), &kicks, sizeof kicks));
}

void FakeAreaAgent::poll_link() {
  link_->poll(monotonic_ns(), [this] {
    for (const auto& [process, wake] : wakes_)
      if (const std::uint64_t woken = link_->woken(process); std::exchange(woken_[process], woken) != woken)
        static_cast<void>(::send(wake.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  });
}

// Over a link: waits until written data has arrived; `looks`: and until the program's commands so far were read.
void FakeAreaAgent::settle(Lock& lock, bool looks) {
  if (link_ == nullptr) {
    if (looks) static_cast<void>(serve());
    return;
  }
  if (looks) link_->look(monotonic_ns());
  poll_link();
  constexpr std::uint64_t kick = 1;
  static_cast<void>(::write(kick_.get(), &kick, sizeof kick));
  wait_for(lock, served_, "the link", [this] { return link_->is_quiet(); });
}

// Only the thread takes them: a datagram that another one took would not end its sleep.
void FakeAreaAgent::take_datagrams() {
  std::map<std::uint32_t, Fd> joined;
  std::erase_if(wakes_, [&](const auto& each) {
    if (take_datagrams(each.second.get(), joined)) return false;
    TcpEvent ended{};
    ended.handle = wire::tcp_no_handle;
    ended.listener = each.first;
    OFP_ASSERT(*area_.post(ended, ~0ull));
    return true;
  });
  wakes_.merge(joined);
}

// Wakes, and processes that join. False: the process at the other end is gone.
bool FakeAreaAgent::take_datagrams(int wake, std::map<std::uint32_t, Fd>& joined) {
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
    if (link_ != nullptr) link_->look(monotonic_ns());
    if (got != sizeof join || join.kind != wire::TcpJoin::join || rights == nullptr) continue;
    int received[2];
    std::memcpy(received, CMSG_DATA(rights), sizeof received);
    joined[join.process] = Fd(received[0]);
    notices_.emplace_back(received[1]);
    processes_.push_back(join.process);
    if (link_ != nullptr) link_->wake(join.process);  // its sleep may have come before
    served_.notify_all();
  }
}

bool FakeAreaAgent::serve() {
  bool served = false;
  TcpCommand command;
  for (auto there = area_.take(command); there && *there; there = area_.take(command), served = true) take(command);
  wake_program();
  served_.notify_all();
  return served;
}

void FakeAreaAgent::wake_program() {
  const auto wake = [&](std::uint32_t process) {
    if (link_ != nullptr)
      link_->wake(process);
    else if (const auto found = wakes_.find(process); found != wakes_.end())
      static_cast<void>(::send(found->second.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  };
  area_.take_sleepers(processes_, wake,
                      [&](std::uint32_t handle, const auto& taken) { area_.sleep_word(handle).wake(taken); });
}

void FakeAreaAgent::tell(Handle handle, std::uint8_t what, TcpError error) {
  TcpEvent told = flows_[handle].known;
  told.what = what;
  told.error = error;
  told.handle = handle;
  while (!*area_.post(told, ~0ull)) {  // the ring is full: the program is woken
    wake_program();
    if (link_ != nullptr) {
      link_->look(monotonic_ns());
      poll_link();
    }
    std::this_thread::yield();
  }
}

void FakeAreaAgent::take(const TcpCommand& command) {
  const Handle handle = command.handle;
  if (command.kind == TcpCommandKind::listen || command.kind == TcpCommandKind::bind ||
      command.kind == TcpCommandKind::accept_slot || command.kind == TcpCommandKind::connect)
    std::erase_if(commands_, [&](const auto& each) { return each.second == handle; });  // a handle that is used again
  commands_.emplace_back(command.kind, handle);
  switch (command.kind) {
    case TcpCommandKind::bind: {
      flows_[handle] = {};
      flows_[handle].known.port = command.port != 0 ? command.port : chosen_port;
      families_[flows_[handle].known.port] = command.flags & wire::tcp_families;
      const TcpError error = std::exchange(next_error_, TcpError::none);
      return error == TcpError::none ? tell(handle, event::listening)
                                     : tell(handle, event::closed | event::gone, error);
    }
    case TcpCommandKind::listen:
      flows_[handle] = {};
      flows_[handle].known.port = command.port;
      listeners_[command.port] = handle;
      families_[command.port] = command.flags & wire::tcp_families;
      return tell(handle, event::listening);
    case TcpCommandKind::accept_slot:
      flows_[handle] = {};
      flows_[handle].rings = command;
      accept_slots_[command.listener].push_back(handle);
      return;
    case TcpCommandKind::connect: {
      flows_[handle] = {};
      flows_[handle].rings = command;
      TcpEvent& known = flows_[handle].known;
      known.port = command.port != 0 ? command.port : static_cast<std::uint16_t>(first_port + handle);
      known.mss = segment_bytes;
      last_connected_ = handle;
      const TcpError error = std::exchange(next_error_, TcpError::none);
      return error == TcpError::none ? tell(handle, event::connected)
                                     : tell(handle, event::closed | event::gone, error);
    }
    case TcpCommandKind::offer:
      return take_offer(command);
    case TcpCommandKind::release:
    case TcpCommandKind::abort:
      for (const Handle slot : std::exchange(accept_slots_[handle], {})) tell(slot, event::gone);
      return tell(handle, event::gone);
    case TcpCommandKind::shut:
      flows_[handle].known.shut = wire::tcp_shut::refused;
      tell(handle, event::received);
      flows_[handle].known.shut = 0;
      return;
    default:
      return;
  }
}

void FakeAreaAgent::take_offer(const TcpCommand& command) {
  Flow& flow = flows_[command.handle];
  for (; flow.offered < command.position; ++flow.offered)
    flow.sent += static_cast<char>(rings()[flow.rings.send_at + flow.offered % flow.rings.send_bytes]);
  if (!acknowledges_) return;
  flow.known.acknowledged = flow.offered;
  tell(command.handle, event::acknowledged);
}

// ---- the network

void FakeAreaAgent::fail_next_connection(TcpError error) {
  Lock lock(lock_);
  next_error_ = error;
}

FakeAreaAgent::Handle FakeAreaAgent::connect_to(std::uint16_t port, wire::IpAddress peer) {
  Lock lock(lock_);
  wait_for(lock, served_, fmt::format("a listener of port {}", port),
           [&] { return listeners_.contains(port) && !accept_slots_[listeners_[port]].empty(); });
  const Handle listener = listeners_[port], handle = accept_slots_[listener].front();
  accept_slots_[listener].erase(accept_slots_[listener].begin());
  TcpEvent& known = flows_[handle].known;
  known.listener = listener;
  known.port = port;
  known.remote_address = peer;
  known.remote_port = static_cast<std::uint16_t>(first_port + handle);
  known.mss = segment_bytes;
  tell(handle, event::accepted);
  known.acknowledged = 0;  // where the address was
  wake_program();
  settle(lock, false);
  return handle;
}

void FakeAreaAgent::arrive(Handle handle, std::string_view bytes) {
  Lock lock(lock_);
  Flow& flow = flows_[handle];
  for (const char byte : bytes)
    rings()[flow.rings.receive_at + flow.known.received++ % flow.rings.receive_bytes] = static_cast<std::byte>(byte);
  tell(handle, event::received);
  wake_program();
  settle(lock, false);
}

void FakeAreaAgent::end_stream(Handle handle) {
  Lock lock(lock_);
  tell(handle, event::finished);
  wake_program();
  settle(lock, false);
}

void FakeAreaAgent::fail(Handle handle, TcpError error) {
  Lock lock(lock_);
  tell(handle, event::closed, error);
  wake_program();
  settle(lock, false);
}

void FakeAreaAgent::acknowledge(bool at_once) {
  Lock lock(lock_);
  settle(lock, true);  // earlier offers
  acknowledges_ = at_once;
  if (!at_once) return;
  for (auto& [handle, flow] : flows_) {
    if (flow.known.acknowledged == flow.offered) continue;
    flow.known.acknowledged = flow.offered;
    tell(handle, event::acknowledged);
  }
  wake_program();
  settle(lock, false);
}

void FakeAreaAgent::acknowledge(Handle handle, std::uint64_t bytes) {
  Lock lock(lock_);
  settle(lock, true);
  Flow& flow = flows_[handle];
  OFP_ASSERT(flow.known.acknowledged + bytes <= flow.offered);
  flow.known.acknowledged += bytes;
  tell(handle, event::acknowledged);
  wake_program();
  settle(lock, false);
}

// ---- commands of the program

void FakeAreaAgent::await(TcpCommandKind kind, Handle handle) {
  Lock lock(lock_);
  wait_for(lock, served_, fmt::format("the program's command {} for handle {}", static_cast<int>(kind), handle),
           [&] { return std::ranges::find(commands_, std::pair(kind, handle)) != commands_.end(); });
}

bool FakeAreaAgent::has_commanded(TcpCommandKind kind, Handle handle) {
  Lock lock(lock_);
  settle(lock, true);
  return std::ranges::find(commands_, std::pair(kind, handle)) != commands_.end();
}

std::uint16_t FakeAreaAgent::families_of(std::uint16_t port) {
  Lock lock(lock_);
  settle(lock, true);
  return families_[port];
}

std::string FakeAreaAgent::offered(Handle flow) {
  Lock lock(lock_);
  settle(lock, true);
  return flows_[flow].sent;
}

FakeAreaAgent::Handle FakeAreaAgent::last_connected() {
  Lock lock(lock_);
  settle(lock, true);
  return last_connected_;
}

wire::TcpCommand FakeAreaAgent::connect_command(Handle flow) {
  Lock lock(lock_);
  settle(lock, true);
  return flows_[flow].rings;
}

void FakeAreaAgent::await_processes(std::size_t count) {
  Lock lock(lock_);
  wait_for(lock, served_, fmt::format("{} processes", count), [&] { return processes_.size() == count; });
}

std::size_t FakeAreaAgent::processes() {
  Lock lock(lock_);
  return processes_.size();
}

}  // namespace offpath::sockets
