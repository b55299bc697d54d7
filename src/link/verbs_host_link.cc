#include "link/verbs_host_link.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "link/tcp_host_link.h"
#include "link/verbs_link.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr TimeNs withdraw_wait_ns = second_ns;
constexpr int segment_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr int range_rights = IBV_ACCESS_REMOTE_READ;

}  // namespace

Result<std::unique_ptr<HostLink>> connect_verbs(ControlSocket socket, const VerbsProofs& proofs, SegmentMemory channel_segment,
                                                wire::Welcome welcome, TimeNs deadline) {
  OFP_ASSIGN(const ControlSocket::Frame frame, await_frame(socket, deadline));
  if (frame.type == ControlType::refusal) return refused(frame.payload, "the agent refuses");
  if (frame.type != ControlType::rendezvous) return unexpected_frame(frame.type, "before rendezvous: is the agent's address one of verbs?");
  OFP_ASSIGN(const std::uint64_t port, wire::decode_number(frame.payload));
  if (port == 0 || port > 65535) return fail(Error::protocol, "rendezvous: {} is no port", port);
  OFP_ASSIGN(VerbsConnection connection, connect_queue_pair(socket, static_cast<std::uint16_t>(port), proofs, deadline));
  return VerbsHostLink::create(std::move(socket), std::move(connection), std::move(channel_segment), std::move(welcome), deadline);
}

Result<std::unique_ptr<VerbsHostLink>> VerbsHostLink::create(ControlSocket socket, VerbsConnection connection,
                                                             SegmentMemory channel_segment, wire::Welcome welcome, TimeNs deadline) {
  Fd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events) return fail_errno(errno, "epoll_create1");
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, socket.fd(), &event) != 0) return fail_errno(errno, "epoll_ctl");
  std::unique_ptr<VerbsHostLink> link(new VerbsHostLink(std::move(socket), std::move(connection), std::move(channel_segment),
                                                        std::move(welcome), std::move(events)));
  OFP_TRY(link->announce_segment(wire::channel_segment, link->channel_segment_, deadline));
  return link;
}

VerbsHostLink::VerbsHostLink(ControlSocket socket, VerbsConnection connection, SegmentMemory channel_segment, wire::Welcome welcome,
                             Fd events)
    : socket_(std::move(socket)),
      connection_(std::move(connection)),
      channel_segment_(std::move(channel_segment)),
      welcome_(std::move(welcome)),
      events_(std::move(events)) {
  traits_ = {"verbs", true, false, 0, welcome_.reason};
}

VerbsHostLink::~VerbsHostLink() { close(); }

// ---- announcements

Result<SegmentMemory> VerbsHostLink::allocate(std::uint64_t length) { return allocate_shared(length); }

Status VerbsHostLink::register_segment(RegionId segment, const SegmentMemory& memory) {
  OFP_ASSIGN(MemoryRegion region, register_memory(*connection_.calls, connection_.domain.get(), memory.data(), memory.length(),
                                                  segment_rights));
  std::vector<std::byte> payload;
  wire::encode(wire::SegmentNotice{segment, memory.length(), reinterpret_cast<std::uint64_t>(memory.data()), region->rkey}, payload);
  registered_.insert_or_assign(segment, Registered{0, std::move(region)});
  return send(ControlType::segment, payload);
}

Status VerbsHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  OFP_TRY(look());
  OFP_TRY(register_segment(segment, memory));
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

void VerbsHostLink::retire_segment(RegionId segment) { (void)withdraw(segment, 0); }

Result<std::uint32_t> VerbsHostLink::announce_range(RegionId range, std::uint32_t generation, const void* base, std::uint64_t length) {
  if (lost_) return tl::unexpected<Failure>(*lost_);
  MemoryRegion region;
  if (length > 0) {
    auto made = register_memory(*connection_.calls, connection_.domain.get(), base, length, range_rights);
    if (!made) return fail(made.error().code, "range {}: {}", range, made.error().message);
    region = std::move(*made);
  }
  const std::uint32_t key = region ? region->rkey : 0;
  if (const auto before = registered_.find(range); before != registered_.end()) retire_range(range, before->second.generation);
  registered_.insert_or_assign(range, Registered{generation, std::move(region)});
  return key;
}

void VerbsHostLink::retire_range(RegionId range, std::uint32_t generation) {
  if (!withdraw(range, generation)) return;
  const auto still_used = [&] {
    return std::ranges::find_if(leaving_, [&](const auto& each) {
      return each.first == range && each.second.generation == generation;
    });
  };
  const TimeNs deadline = deadline_after(monotonic_ns(), withdraw_wait_ns);
  while (look() && still_used() != leaving_.end() && monotonic_ns() < deadline) wait(deadline);
  if (const auto at = still_used(); at != leaving_.end()) leaving_.erase(at);
}

// Fails where there is nothing to wait for.
Status VerbsHostLink::withdraw(RegionId region, std::uint32_t generation) {
  if (lost_) return tl::unexpected<Failure>(*lost_);
  const auto at = registered_.find(region);
  if (at == registered_.end() || at->second.generation != generation)
    return fail(Error::stale, "region {:#x} is not announced as generation {}", region, generation);
  leaving_.emplace_back(region, std::move(at->second));
  registered_.erase(at);
  std::vector<std::byte> payload;
  wire::encode(wire::Withdrawal{region, generation}, payload);
  return send(ControlType::withdraw, payload);
}

// ---- the control socket

void VerbsHostLink::wake() {
  if (lost_) return;
  auto sent = socket_.send_wake();
  output_waits_.store(socket_.output_waits(), std::memory_order_relaxed);
  if (!sent) (void)lose(std::move(sent).error());
}

void VerbsHostLink::wait(TimeNs deadline) {
  const short room = output_waits_.load(std::memory_order_relaxed) ? POLLOUT : 0;
  pollfd look{socket_.fd(), static_cast<short>(POLLIN | POLLRDHUP | room), 0};
  const TimeNs left = std::max<TimeNs>(0, deadline == never ? never : deadline - monotonic_ns());
  const timespec wait{static_cast<time_t>(left / second_ns), static_cast<long>(left % second_ns)};
  (void)ppoll(&look, 1, deadline == never ? nullptr : &wait, nullptr);
}

Status VerbsHostLink::look() {
  if (lost_) return tl::unexpected<Failure>(*lost_);
  auto flushed = socket_.flush();
  output_waits_.store(socket_.output_waits(), std::memory_order_relaxed);
  // Frames first, also when sending failed: the agent may have said why it ended the channel.
  if (auto taken = take_frames(); !taken) return lose(std::move(taken).error());
  if (!flushed) return lose(std::move(flushed).error());
  return {};
}

Status VerbsHostLink::take_frames() {
  for (;;) {
    ControlSocket::Frame frame;
    auto there = socket_.next(frame);
    if (!there && there.error().code == Error::peer_lost) return fail(Error::peer_lost, "the agent ended, or closed the channel");
    if (!there) return tl::unexpected<Failure>(std::move(there).error());
    if (!*there) return {};
    OFP_TRY(take_frame(frame));
  }
}

Status VerbsHostLink::take_frame(const ControlSocket::Frame& frame) {
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
    case ControlType::withdrawn: {
      OFP_ASSIGN(const wire::Withdrawal withdrawal, wire::decode_withdrawal(frame.payload));
      const auto at = std::ranges::find_if(leaving_, [&](const auto& each) {
        return each.first == withdrawal.region && each.second.generation == withdrawal.generation;
      });
      if (at != leaving_.end()) leaving_.erase(at);  // else retire_range has waited long enough
      return {};
    }
    case ControlType::refusal: return refused(frame.payload, "the agent ended the channel");
    default: return unexpected_frame(frame.type, "on an open channel");
  }
}

Status VerbsHostLink::send(ControlType type, Bytes payload) {
  if (lost_) return tl::unexpected<Failure>(*lost_);
  auto sent = socket_.send(type, payload);
  output_waits_.store(socket_.output_waits(), std::memory_order_relaxed);
  if (!sent && sent.error().code == Error::peer_lost) return look();  // finds the reason, if the agent gave one
  return sent;
}

// ---- the end

// In this order: while the queue pair lives its regions can be reached.
void VerbsHostLink::end_connection() noexcept {
  connection_.break_off();
  registered_.clear();
  leaving_.clear();
  connection_.close();
}

tl::unexpected<Failure> VerbsHostLink::lose(Failure why) {
  if (!lost_) {
    lost_ = std::move(why);
    end_connection();
  }
  return tl::unexpected<Failure>(*lost_);
}

Result<Fd> VerbsHostLink::take_descriptor(std::uint64_t, TimeNs) {
  return fail(Error::unsupported, "an agent on another machine cannot hand over a file");
}

Status VerbsHostLink::offer(std::uint64_t, int) {
  return fail(Error::unsupported, "a file cannot be offered to an agent on another machine");
}

void VerbsHostLink::abandon() {
  if (lost_ && lost_->code == Error::forked) return;
  connection_.abandon();
  for (auto& [id, registered] : registered_) (void)registered.region.release();
  for (auto& [id, registered] : leaving_) (void)registered.region.release();
  registered_.clear();
  leaving_.clear();
  socket_.close();
  events_.reset();
  lost_ = Failure{Error::forked, "this channel belongs to the parent process; connect anew"};
}

void VerbsHostLink::close() {
  if (getpid() != owner_) return abandon();  // a child that was never told: the connection is its parent's
  end_connection();
  socket_.shut_down();
  socket_.close();
  events_.reset();
  if (!lost_) lost_ = Failure{Error::closed, "the channel was closed"};
}

}  // namespace offpath::link
