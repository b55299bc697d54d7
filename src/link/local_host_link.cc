#include "link/local_host_link.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "link/sealed_memory.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr std::size_t descriptors_waiting_max = 1024;

Bytes bytes_of_number(const auto& number) { return std::as_bytes(std::span(&number, 1)); }

}  // namespace

Result<std::unique_ptr<LocalHostLink>> LocalHostLink::create(ControlSocket socket, Peer agent, SegmentMemory channel_segment,
                                                             wire::Welcome welcome) {
  Fd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events) return fail_errno(errno, "epoll_create1");
  for (const int fd : {socket.fd(), agent.pidfd.get()}) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    if (fd >= 0 && epoll_ctl(events.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl");
  }
  return std::unique_ptr<LocalHostLink>(new LocalHostLink(std::move(socket), std::move(agent), std::move(channel_segment),
                                                          std::move(welcome), std::move(events)));
}

LocalHostLink::LocalHostLink(ControlSocket socket, Peer agent, SegmentMemory channel_segment, wire::Welcome welcome, Fd events)
    : socket_(std::move(socket)),
      agent_(std::move(agent)),
      channel_segment_(std::move(channel_segment)),
      welcome_(std::move(welcome)),
      events_(std::move(events)) {
  const bool direct = welcome_.direct != 0;
  traits_ = {"local", direct, !direct, 0, welcome_.reason};
}

LocalHostLink::~LocalHostLink() { close(); }

Result<SegmentMemory> LocalHostLink::allocate(std::uint64_t length) { return allocate_sealed(length); }

Status LocalHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  std::vector<std::byte> payload;
  wire::encode(wire::SegmentNotice{segment, memory.length(), 0, 0}, payload);
  OFP_TRY(send(ControlType::segment, payload, memory.fd()));
  for (;;) {
    OFP_TRY(look());
    if (const auto at = std::ranges::find(acknowledged_, segment); at != acknowledged_.end()) {
      acknowledged_.erase(at);
      return {};
    }
    if (monotonic_ns() >= deadline) {
      given_up_.push_back(segment);
      retire_segment(segment);  // for when the agent comes to it
      return fail(Error::timeout, "the agent did not take segment {} in time", segment & ~wire::segment_flag);
    }
    wait(deadline);
  }
}

void LocalHostLink::retire_segment(RegionId segment) { (void)send(ControlType::segment_gone, bytes_of_number(segment)); }

Result<std::uint32_t> LocalHostLink::announce_range(RegionId range, std::uint32_t, const void*, std::uint64_t) {
  if (traits_.staged) return fail(Error::unsupported, "range {} cannot be read where it lies; {}", range, traits_.reason);
  return 0;
}

void LocalHostLink::retire_range(RegionId, std::uint32_t) {}

void LocalHostLink::wake() {
  if (lost_) return;
  auto sent = socket_.send_wake();
  if (!sent && sent.error().code == Error::peer_lost) (void)look();  // finds the reason, if the agent gave one
  else if (!sent) (void)lose(std::move(sent).error());
}

void LocalHostLink::wait(TimeNs deadline) {
  const short room = output_waits_.load(std::memory_order_relaxed) ? POLLOUT : 0;
  pollfd looks[2] = {{socket_.fd(), static_cast<short>(POLLIN | POLLRDHUP | room), 0}, {agent_.pidfd.get(), POLLIN, 0}};
  const TimeNs left = std::max<TimeNs>(0, deadline == never ? never : deadline - monotonic_ns());
  const timespec wait{static_cast<time_t>(left / second_ns), static_cast<long>(left % second_ns)};
  (void)ppoll(looks, 2, deadline == never ? nullptr : &wait, nullptr);  // a negative descriptor is left out
}

Status LocalHostLink::look() {
  if (lost_) return tl::unexpected<Failure>(*lost_);
  auto looked = socket_.flush();
  output_waits_.store(socket_.output_waits(), std::memory_order_relaxed);
  // Frames first, also when sending failed: the agent may have said why it ended the channel.
  if (auto taken = take_frames(); !taken) return lose(std::move(taken).error());
  if (!looked) return lose(std::move(looked).error());
  if (has_ended(agent_)) return lose({Error::peer_lost, "the agent ended"});
  return {};
}

Status LocalHostLink::take_frames() {
  for (;;) {
    ControlSocket::Frame frame;
    auto there = socket_.next(frame);
    if (!there && there.error().code == Error::peer_lost)
      return fail(Error::peer_lost, "the agent ended, or closed the channel");
    if (!there) return tl::unexpected<Failure>(std::move(there).error());
    if (!*there) return {};
    OFP_TRY(take_frame(frame));
  }
}

Status LocalHostLink::take_frame(const ControlSocket::Frame& frame) {
  switch (frame.type) {
    case ControlType::wake: return {};
    case ControlType::segment_ok: {
      OFP_ASSIGN(const RegionId segment, wire::decode_segment_number(frame.payload));
      if (const auto late = std::ranges::find(given_up_, segment); late != given_up_.end())
        given_up_.erase(late);
      else
        acknowledged_.push_back(segment);
      return {};
    }
    case ControlType::descriptor: {
      OFP_ASSIGN(const std::uint64_t ticket, wire::decode_number(frame.payload));
      if (descriptors_.size() == descriptors_waiting_max) descriptors_.pop_front();  // nobody asked for it
      descriptors_.emplace_back(ticket, socket_.take_descriptor());
      return {};
    }
    case ControlType::refusal: return refused(frame.payload, "the agent ended the channel");
    default: return unexpected_frame(frame.type, "on an open channel");
  }
}

Status LocalHostLink::send(ControlType type, Bytes payload, int descriptor) {
  if (lost_) return tl::unexpected<Failure>(*lost_);
  auto sent = socket_.send(type, payload, descriptor);
  output_waits_.store(socket_.output_waits(), std::memory_order_relaxed);
  if (!sent && sent.error().code == Error::peer_lost) return look();  // finds the reason, if the agent gave one
  return sent;
}

tl::unexpected<Failure> LocalHostLink::lose(Failure why) {
  if (!lost_) lost_ = std::move(why);
  return tl::unexpected<Failure>(*lost_);
}

Result<Fd> LocalHostLink::take_descriptor(std::uint64_t ticket, TimeNs deadline) {
  for (;;) {
    OFP_TRY(look());
    for (auto at = descriptors_.begin(); at != descriptors_.end(); ++at) {
      if (at->first != ticket) continue;
      Fd fd = std::move(at->second);
      descriptors_.erase(at);
      return fd;
    }
    if (monotonic_ns() >= deadline) return fail(Error::timeout, "the agent did not hand over a descriptor for ticket {} in time", ticket);
    wait(deadline);
  }
}

Status LocalHostLink::offer(std::uint64_t number, int fd) { return send(ControlType::offer, bytes_of_number(number), fd); }

void LocalHostLink::abandon() {
  // Closes copies only: what is shared with the parent (the socket's connection, the epoll's list) stays as it is.
  socket_.close();
  agent_.pidfd.reset();
  events_.reset();
  lost_ = Failure{Error::forked, "this channel belongs to the parent process; connect anew"};
}

void LocalHostLink::close() {
  if (getpid() != owner_) return abandon();  // a child that was never told: the connection is its parent's
  socket_.shut_down();
  socket_.close();
  agent_.pidfd.reset();
  events_.reset();
  if (!lost_) lost_ = Failure{Error::closed, "the channel was closed"};
}

}  // namespace offpath::link
