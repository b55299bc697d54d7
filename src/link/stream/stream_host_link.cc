#include "link/stream/stream_host_link.h"

#include <sys/mman.h>

#include <cerrno>

#include "link/stream/stream_server.h"
#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

namespace {

tl::unexpected<Failure> forked() { return tl::unexpected<Failure>(forked_channel()); }

}  // namespace

Result<SegmentMemory> allocate_shared(std::uint64_t length) {
  if (length == 0 || length > wire::region_bytes_max) return fail(Error::invalid, "a segment of {} bytes", length);
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of {} bytes", length));
  return SegmentMemory(static_cast<std::byte*>(data), length, Fd());
}

Result<std::unique_ptr<StreamHostLink>> StreamHostLink::create(ControlSocket socket, SegmentMemory channel_segment,
                                                               wire::Welcome welcome,
                                                               std::shared_ptr<StreamThreads> threads) {
  OFP_ASSIGN(std::unique_ptr<StreamServer> server, StreamServer::create(std::move(socket)));
  const auto base = reinterpret_cast<std::uint64_t>(channel_segment.data());
  OFP_TRY(server->attach(wire::channel_segment, 0, base, channel_segment.length()));
  OFP_TRY(server->start(std::move(threads)));
  return std::unique_ptr<StreamHostLink>(
      new StreamHostLink(std::move(server), std::move(channel_segment), std::move(welcome)));
}

StreamHostLink::StreamHostLink(std::unique_ptr<StreamServer> server, SegmentMemory channel_segment,
                               wire::Welcome welcome)
    : channel_segment_(std::move(channel_segment)), welcome_(std::move(welcome)), server_(std::move(server)) {
  traits_ = {"tcp", false, false, 1, welcome_.reason};
}

StreamHostLink::~StreamHostLink() { close(); }

Result<SegmentMemory> StreamHostLink::allocate(std::uint64_t length) { return allocate_shared(length); }

Status StreamHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  if (abandoned_) return forked();
  OFP_TRY(server_->attach(segment, 0, reinterpret_cast<std::uint64_t>(memory.data()), memory.length()));
  std::vector<std::byte> payload;
  wire::encode(wire::SegmentNotice{segment, memory.length(), 0, 0}, payload);
  auto announced = server_->send(ControlType::segment, payload);
  if (announced) announced = server_->await_acknowledgement(segment, deadline);
  if (!announced) retire_segment(segment);  // in case the agent accepts it later
  return announced;
}

void StreamHostLink::retire_segment(RegionId segment) {
  if (abandoned_) return;
  server_->detach(segment, 0);
  (void)server_->send(ControlType::segment_gone, std::as_bytes(std::span(&segment, 1)));
}

Result<std::uint32_t> StreamHostLink::announce_range(RegionId range, std::uint32_t generation, const void* base,
                                                     std::uint64_t length) {
  if (abandoned_) return forked();
  OFP_TRY(server_->attach(range, generation, reinterpret_cast<std::uint64_t>(base), length));
  return 0;
}

void StreamHostLink::retire_range(RegionId range, std::uint32_t generation) {
  if (!abandoned_) server_->detach(range, generation);
}

void StreamHostLink::withdraw_range(RegionId range, std::uint32_t generation) {
  if (!abandoned_) server_->withdraw(range, generation);
}

bool StreamHostLink::is_withdrawn(RegionId range, std::uint32_t /*generation*/) {
  return abandoned_ || !server_->is_moving(range);
}

void StreamHostLink::wake() {
  if (!abandoned_) server_->wake_agent();
}

void StreamHostLink::wake_with(Bytes requests) {
  if (!abandoned_) server_->wake_agent(requests);
}

void StreamHostLink::wait(TimeNs deadline) {
  if (!abandoned_) server_->wait(deadline);
}

int StreamHostLink::event_fd() const { return abandoned_ ? -1 : server_->event_fd(); }

Status StreamHostLink::look() {
  if (abandoned_) return forked();
  return server_->look();
}

void StreamHostLink::abandon() {
  if (abandoned_) return;
  abandoned_ = true;
  // A fork copies only the calling thread, and the server's thread may hold any lock of this copy: no lock is used
  // again.
  server_->close_copies();
  (void)server_.release();
}

void StreamHostLink::close() {
  if (getpid() != owner_) return abandon();  // a child in which abandon() was not called: the connection is its
                                             // parent's
  if (!abandoned_) server_->stop();
}

}  // namespace offpath::link
