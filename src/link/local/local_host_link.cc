#include "link/local/local_host_link.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "link/local/sealed_memory.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr std::size_t descriptors_waiting_max = 1024;

Bytes bytes_of_number(const auto& number) { return std::as_bytes(std::span(&number, 1)); }

}  // namespace

Result<std::unique_ptr<LocalHostLink>> LocalHostLink::create(ControlSocket socket, Fd wakes, Peer agent,
                                                             SegmentMemory channel_segment, wire::Welcome welcome) {
  OFP_ASSIGN(HostControl::Events events, HostControl::watch(socket, agent));
  return std::unique_ptr<LocalHostLink>(new LocalHostLink(std::move(socket), std::move(wakes), std::move(agent),
                                                          std::move(channel_segment), std::move(welcome),
                                                          std::move(events)));
}

LocalHostLink::LocalHostLink(ControlSocket socket, Fd wakes, Peer agent, SegmentMemory channel_segment,
                             wire::Welcome welcome, HostControl::Events events)
    : control_(std::move(socket), std::move(agent), std::move(events), *this),
      wakes_(std::move(wakes)),
      channel_segment_(std::move(channel_segment)),
      welcome_(std::move(welcome)) {
  const bool direct = welcome_.direct != 0;
  traits_ = {"local", direct, !direct, 0, welcome_.reason, false, true};
}

LocalHostLink::~LocalHostLink() { close(); }

Result<SegmentMemory> LocalHostLink::allocate(std::uint64_t length) { return allocate_sealed(length); }

Status LocalHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  auto announced = control_.announce({segment, memory.length(), 0, 0}, memory.fd(), deadline);
  if (!announced) retire_segment(segment);  // in case the agent maps it later
  return announced;
}

void LocalHostLink::retire_segment(RegionId segment) {
  (void)control_.send(ControlType::segment_gone, bytes_of_number(segment));
}

Result<std::uint32_t> LocalHostLink::announce_range(RegionId range, std::uint32_t, const void*, std::uint64_t) {
  if (traits_.staged) return fail(Error::unsupported, "range {} cannot be read in place; {}", range, traits_.reason);
  return 0;
}

void LocalHostLink::retire_range(RegionId, std::uint32_t) {}

Status LocalHostLink::take_frame(const ControlSocket::Frame& frame) {
  if (frame.type != ControlType::descriptor) return unexpected_frame(frame.type, "on an open channel");
  OFP_ASSIGN(const std::uint64_t ticket, wire::decode_number(frame.payload));
  if (descriptors_.size() == descriptors_waiting_max) descriptors_.pop_front();  // its requester has given up
  descriptors_.emplace_back(ticket, control_.take_descriptor());
  return {};
}

Result<Fd> LocalHostLink::take_descriptor(std::uint64_t ticket, TimeNs deadline) {
  auto at = descriptors_.end();
  const auto came = [&] {
    at = std::ranges::find(descriptors_, ticket, &std::pair<std::uint64_t, Fd>::first);
    return at != descriptors_.end();
  };
  OFP_ASSIGN(const bool there, control_.until(came, deadline));
  if (!there) return fail(Error::timeout, "the agent did not hand over a descriptor for ticket {} in time", ticket);
  Fd fd = std::move(at->second);
  descriptors_.erase(at);
  return fd;
}

Status LocalHostLink::offer(std::uint64_t number, int fd) {
  return control_.send(ControlType::offer, bytes_of_number(number), fd);
}

void LocalHostLink::wake() {
  const std::uint64_t one = 1;
  ssize_t written;
  do {
    written = ::write(wakes_.get(), &one, sizeof one);
  } while (written < 0 && errno == EINTR);
  if (written != sizeof one) control_.wake();
}

void LocalHostLink::abandon() {
  wakes_.reset();
  control_.abandon();
}

void LocalHostLink::close() {
  if (control_.inherited()) return abandon();  // a child in which abandon() was not called: the connection is its
                                               // parent's
  wakes_.reset();
  control_.close();
}

}  // namespace offpath::link
