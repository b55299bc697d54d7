#include "link/control/host_control.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace offpath::link {

using wire::ControlType;
using wire::RegionId;

// ---- acknowledgements

void Acknowledgements::arrived(RegionId segment) {
  if (const auto late = std::ranges::find(given_up_, segment); late != given_up_.end())
    given_up_.erase(late);
  else
    arrived_.push_back(segment);
}

bool Acknowledgements::has(RegionId segment) const noexcept {
  return std::ranges::find(arrived_, segment) != arrived_.end();
}

bool Acknowledgements::take(RegionId segment) {
  const auto at = std::ranges::find(arrived_, segment);
  if (at == arrived_.end()) return false;
  arrived_.erase(at);
  return true;
}

tl::unexpected<Failure> Acknowledgements::give_up(RegionId segment) {
  given_up_.push_back(segment);
  return fail(Error::timeout, "the agent did not take segment {} in time", segment & ~wire::segment_flag);
}

// ---- the socket

Result<HostControl::Events> HostControl::watch(const ControlSocket& socket, const Peer& agent) {
  Events events{Fd(epoll_create1(EPOLL_CLOEXEC)), Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  if (!events.all || !events.kept) return fail_errno(errno, "epoll_create1 or eventfd");
  for (const int fd : {socket.fd(), agent.pidfd.get(), events.kept.get()}) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    if (fd >= 0 && epoll_ctl(events.all.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl");
  }
  return events;
}

HostControl::HostControl(ControlSocket socket, Peer agent, Events events, Owner& owner)
    : socket_(std::move(socket)), agent_(std::move(agent)), events_(std::move(events)), owner_(owner) {}

void HostControl::wake(Bytes requests) {
  if (lost_) return;
  Status sent;
  if (requests.empty() || !(sent = socket_.send(ControlType::requests, requests))) sent = socket_.send_wake();
  note_output();
  if (sent) return;
  if (sent.error().code == Error::peer_lost)
    (void)look();  // finds the reason, if the agent gave one
  else
    lose(std::move(sent).error());
}

void HostControl::wait(TimeNs deadline) { wait_socket(deadline, events_.kept.get()); }

void HostControl::wait_socket(TimeNs deadline, int also) {
  const short room = output_waits_.load(std::memory_order_relaxed) ? POLLOUT : 0;
  pollfd looks[] = {{socket_.fd(), static_cast<short>(POLLIN | POLLRDHUP | room), 0},
                    {agent_.pidfd.get(), POLLIN, 0},
                    {also, POLLIN, 0}};
  (void)poll_until(looks, deadline);
}

Status HostControl::usable() const {
  if (lost_) return tl::unexpected<Failure>(*lost_);
  return {};
}

Status HostControl::look() {
  Status taken = take_in();
  event_taken_ = false;
  if (std::exchange(event_kept_, false)) {
    eventfd_t count = 0;
    (void)eventfd_read(events_.kept.get(), &count);
  }
  return taken;
}

Status HostControl::look_aside() {
  Status taken = take_in();
  if (std::exchange(event_taken_, false) && !event_kept_) event_kept_ = eventfd_write(events_.kept.get(), 1) == 0;
  return taken;
}

Status HostControl::take_in() {
  OFP_TRY(usable());
  auto flushed = socket_.flush();
  note_output();
  // Frames first, even if sending failed: the agent may have sent the reason why it ended the channel.
  if (auto taken = take_frames(); !taken) return lose(std::move(taken).error());
  if (!flushed) return lose(agent_lost(socket_, std::move(flushed).error()));
  if (has_ended(agent_)) return lose({Error::peer_lost, "the agent ended"});
  return {};
}

Status HostControl::take_frames() {
  for (;;) {
    ControlSocket::Frame frame;
    auto there = socket_.next(frame);
    if (!there) return tl::unexpected<Failure>(agent_lost(socket_, std::move(there).error()));
    if (!*there) return {};
    OFP_TRY(take_frame(frame));
  }
}

Status HostControl::take_frame(const ControlSocket::Frame& frame) {
  switch (frame.type) {
    case ControlType::wake:
      event_taken_ = true;
      return {};
    case ControlType::segment_ok: {
      OFP_ASSIGN(const RegionId segment, wire::decode_segment_number(frame.payload));
      acknowledged_.arrived(segment);
      return {};
    }
    case ControlType::segment_refused: {
      OFP_ASSIGN(wire::Outcome outcome, wire::decode_outcome(frame.payload));
      const auto segment = static_cast<RegionId>(outcome.token);
      acknowledged_.arrived(segment);
      if (acknowledged_.has(segment) && !outcome.status)
        refused_.insert_or_assign(segment, std::move(outcome.status).error());
      return {};
    }
    case ControlType::refusal:
      return refused(frame.payload, "the agent ended the channel");
    case ControlType::withdrawn:
      event_taken_ = true;
      [[fallthrough]];
    default:
      return owner_.take_frame(frame);
  }
}

Status HostControl::send(ControlType type, Bytes payload, int descriptor) {
  OFP_TRY(usable());
  auto sent = socket_.send(type, payload, descriptor);
  note_output();
  if (!sent && sent.error().code == Error::peer_lost) return look();  // finds the reason, if the agent gave one
  return sent;
}

Status HostControl::announce(const wire::SegmentNotice& segment, int descriptor, TimeNs deadline) {
  std::vector<std::byte> payload;
  wire::encode(segment, payload);
  OFP_TRY(send(ControlType::segment, payload, descriptor));
  OFP_ASSIGN(const bool taken, until([&] { return acknowledged_.take(segment.region); }, deadline));
  if (!taken) return acknowledged_.give_up(segment.region);
  if (auto why = refused_.extract(segment.region)) return tl::unexpected<Failure>(std::move(why.mapped()));
  return {};
}

// ---- the end

tl::unexpected<Failure> HostControl::lose(Failure why) {
  if (!lost_) {
    lost_ = std::move(why);
    owner_.on_lost();
  }
  return tl::unexpected<Failure>(*lost_);
}

void HostControl::close_copies() {
  socket_.close();
  agent_.pidfd.reset();
  events_ = {};
}

void HostControl::abandon() {
  close_copies();  // objects shared with the parent (the socket's connection, the epoll's list) stay unchanged
  lost_ = forked_channel();
}

void HostControl::close() {
  socket_.shut_down();
  close_copies();
  if (!lost_) lost_ = closed_channel();
}

Failure forked_channel() {
  return {Error::forked, "this channel belongs to the parent process; a forked child connects for itself"};
}

Failure closed_channel() { return {Error::closed, "the channel was closed"}; }

Failure agent_lost(const ControlSocket& socket, Failure why) {
  if (why.code == Error::peer_lost && !socket.silent()) why.message = "the agent ended, or closed the channel";
  return why;
}

}  // namespace offpath::link
