#include "connections/sockets.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/sent_fds.h"
#include "link/address.h"
#include "link/handshake/handshake.h"
#include "link/local/sealed_memory.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/tcp_messages.h"

namespace offpath::channel {

namespace {
constexpr std::chrono::microseconds addresses_look{100};
}

Result<std::unique_ptr<Sockets>> Sockets::open(HostEnd& end, const SocketOptions& options, TimeNs deadline) {
  const wire::TcpAreaLayout layout = SocketArea::layout_of(options);
  OFP_TRY(wire::check_tcp_area(layout));
  for (const std::uint32_t bytes : {options.send_bytes, options.receive_bytes})
    if (!std::has_single_bit(bytes) || bytes < wire::tcp_ring_bytes_min || bytes > wire::tcp_ring_bytes_max)
      return fail(Error::invalid, "rings of {} bytes; powers of two from {} to {} are allowed", bytes,
                  wire::tcp_ring_bytes_min, wire::tcp_ring_bytes_max);
  if (options.pool_bytes % RingPool::word_bytes != 0)
    return fail(Error::invalid, "a pool of {} bytes for larger rings; multiples of {} are allowed", options.pool_bytes,
                RingPool::word_bytes);
  OFP_ASSIGN(const wire::RegionId region, end.allocate(layout.bytes, deadline));
  std::unique_ptr<Sockets> made(new Sockets(&end, region));
  made->area_.emplace(end.segment(region), options, made->waker());
  made->memory_fd_ = end.segment_fd(region);
  std::vector<std::byte> payload;
  wire::encode(wire::TcpOpen{{.region = region, .length = layout.bytes},
                             wire::tcp_area_version,
                             layout.command_slots,
                             layout.event_slots,
                             layout.flows,
                             0,
                             0},
               payload);
  OFP_ASSIGN(const Reply reply, end.call(wire::EntryKind::tcp_open, payload, deadline));
  made->opened_ = true;
  made->area_->spread();
  // Over a link they come a moment after the answer.
  while (made->area_->agent().families() == 0) {
    if (end.now() >= deadline) return fail(Error::timeout, "the agent does not say which addresses it has");
    std::this_thread::sleep_for(addresses_look);
  }
  OFP_ASSIGN(made->wake_, end.take_descriptor(reply.ticket, deadline));
  for (std::uint32_t core = 1; core < made->area_->cores(); ++core) {
    OFP_ASSIGN(Fd doorbell, end.take_descriptor(reply.ticket, deadline));
    made->doorbells_.push_back(std::move(doorbell));
  }
  OFP_ASSIGN(Newcomer own, made->introduce(0));  // with a socket for notices, too
  made->join(std::move(own));
  return made;
}

SocketArea::Wake Sockets::waker() const {
  return [this](std::uint32_t core) {
    if (core > 0) {
      // It fails only when the counter is full. That takes a process of this program that wants its wakes lost.
      constexpr std::uint64_t one = 1;
      static_cast<void>(::write(doorbells_[core - 1].get(), &one, sizeof one));
    } else if (writes_wakes_.load(std::memory_order_relaxed)) {
      static_cast<void>(::write(wake_.get(), "", 1));
    } else {  // if the socket is full, the agent has enough wakes to read
      static_cast<void>(::send(wake_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    }
  };
}

// ---- several processes

namespace {

// the agent takes datagrams as they arrive: after this time it is dead or stuck
constexpr TimeNs introduction_wait_ns = second_ns;

struct Pair {
  Fd own, agents;
};

Result<Pair> pair_of_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "socketpair");
  return Pair{Fd(ends[0]), Fd(ends[1])};
}

// Sends the message by which a process joins its program at the agent, with its two sockets. Nothing is sent twice, and
// the wait for an agent that takes nothing is bounded.
Status send_with(int to, const wire::TcpJoin& join, const std::array<int, 2>& descriptors) {
  const iovec piece{const_cast<wire::TcpJoin*>(&join), sizeof join};
  const TimeNs deadline = monotonic_ns() + introduction_wait_ns;
  while (send_with_descriptors(to, {&piece, 1}, descriptors, MSG_DONTWAIT) < 0) {
    if (errno != EAGAIN) return fail_errno(errno, "sendmsg");
    const TimeNs left = deadline - monotonic_ns();
    if (left <= 0) return fail(Error::timeout, "the agent does not take the sockets of a new process");
    pollfd room{to, POLLOUT, 0};
    const timespec limit{left / second_ns, left % second_ns};
    static_cast<void>(::ppoll(&room, 1, &limit, nullptr));
  }
  return {};
}

}  // namespace

Result<Sockets::Newcomer> Sockets::prepare_child() {
  OFP_ASSIGN(const std::uint32_t process, area_->add_process());
  return introduce(process);
}

Result<Sockets::Newcomer> Sockets::prepare_child(std::span<const SocketArea::Handle> handles) {
  OFP_ASSIGN(const std::uint32_t process, area_->add_process(handles));
  return introduce(process);
}

Result<Sockets::Newcomer> Sockets::introduce(std::uint32_t process) {
  const auto introduced = [&]() -> Result<Newcomer> {
    OFP_ASSIGN(Pair wake, pair_of_sockets());
    OFP_ASSIGN(Pair notices, pair_of_sockets());
    const wire::TcpJoin join{wire::TcpJoin::join, process};
    OFP_TRY(send_with(wake_.get(), join, {wake.agents.get(), notices.agents.get()}));
    return Newcomer{process, std::move(wake.own), std::move(notices.own)};
  };
  auto newcomer = introduced();
  if (!newcomer) area_->drop_process(process);
  return newcomer;
}

void Sockets::join(Newcomer newcomer) noexcept {
  wake_ = std::move(newcomer.wake);
  notices_ = std::move(newcomer.notices);
  area_->become(newcomer.process);
}

void Sockets::renumber(int (*move)(int)) noexcept {
  for (Fd* each : {&wake_, &notices_}) *each = Fd(move(each->release()));
}

void Sockets::renumber_doorbells(int (*move)(int)) noexcept {
  for (Fd& each : doorbells_) each = Fd(move(each.release()));
}

Result<std::unique_ptr<Sockets>> Sockets::inherit(int memory, Newcomer newcomer, const SocketOptions& options,
                                                  std::vector<Fd> doorbells) {
  if (newcomer.process >= wire::tcp_processes_max)
    return fail(Error::invalid, "process {} of {}", newcomer.process, wire::tcp_processes_max);
  std::unique_ptr<Sockets> made(new Sockets(nullptr, 0));
  OFP_ASSIGN(made->inherited_,
             link::map_sealed(memory, SocketArea::layout_of(options).bytes, "the area of inherited connections"));
  if (!SocketArea::lies_in(made->inherited_.bytes(), options))
    return fail(Error::invalid, "inherited connections: their area is laid out for other numbers or sizes");
  made->memory_fd_ = memory;
  made->area_.emplace(made->inherited_.bytes(), options, made->waker(), newcomer.process);
  made->doorbells_ = std::move(doorbells);
  if (made->doorbells_.size() + 1 != made->area_->cores())
    return fail(Error::invalid, "inherited connections: {} doorbells for an agent of {} cores", made->doorbells_.size(),
                made->area_->cores());
  made->join(std::move(newcomer));
  return made;
}

Result<std::unique_ptr<Sockets>> Sockets::connect(const std::string& address, const std::string& name,
                                                  const SocketOptions& options, TimeNs deadline) {
  OFP_ASSIGN(const link::Address where, link::Address::parse(address));
  if (where.kind != link::Address::Kind::unix_socket)
    return fail(Error::unsupported,
                "connections need an agent on this machine (unix:/path), not {}: start the program by `offpath sockets "
                "--agent {} -- PROGRAM`, which starts one that relays to it",
                address, address);
  link::HostOptions host;
  host.name = name;
  OFP_ASSIGN(auto link, link::connect(where, host, deadline));
  auto end = std::make_unique<HostEnd>(std::move(link), host.layout);
  OFP_ASSIGN(auto made, open(*end, options, deadline));
  made->own_end_ = std::move(end);
  return made;
}

// The memory is withdrawn only after the agent has released it: withdrawn under open connections, it would look like a
// broken program.
Sockets::~Sockets() {
  if (end_ == nullptr || mark_.in_child()) return;  // they belong to other processes
  if (opened_) {
    std::vector<std::byte> payload;
    wire::encode(wire::TcpClose{wire::tcp_area_version}, payload);
    static_cast<void>(end_->call(wire::EntryKind::tcp_close, payload, deadline_after(end_->now(), second_ns)));
  }
  area_.reset();
  end_->free(region_);
}

Status Sockets::clear() {
  char bytes[16];
  for (;;) {
    const ssize_t got = ::recv(wake_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got < 0 && errno == EAGAIN) return {};
    return fail(Error::peer_lost, "the agent is gone, or has ended this program's connections");
  }
}

void Sockets::clear_notices() noexcept {
  char bytes[16];
  while (::recv(notices_.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
  }
}

Status Sockets::wait(TimeNs deadline, TimeNs spin_ns) {
  const TimeNs spin_until = deadline_after(monotonic_ns(), spin_ns);
  bool may_give_back = true;  // memory, when there were no events for a while
  for (;;) {
    if (area_->take_in()) return {};
    const TimeNs now = monotonic_ns();
    if (now >= deadline) return fail(Error::timeout, "no connection had an event in time");
    if (now < spin_until || !area_->fall_asleep()) continue;
    pollfd descriptor{wake_.get(), POLLIN, 0};
    const TimeNs left = deadline == never ? 3600 * second_ns : deadline - now;
    const TimeNs until = may_give_back ? std::min(left, second_ns) : left;
    const timespec limit{until / second_ns, until % second_ns};
    static_cast<void>(::ppoll(&descriptor, 1, &limit, nullptr));
    if (descriptor.revents != 0)
      OFP_TRY(clear());
    else if (until < left)
      may_give_back = area_->give_back(monotonic_ns());
  }
}

}  // namespace offpath::channel
