#include "link/verbs/verbs_host_link.h"

#include "link/stream/stream_host_link.h"
#include "link/verbs/verbs_link.h"
#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr int segment_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr int range_rights = IBV_ACCESS_REMOTE_READ;

}  // namespace

Result<std::unique_ptr<HostLink>> connect_verbs(ControlSocket socket, const VerbsProofs& proofs,
                                                SegmentMemory channel_segment, wire::Welcome welcome, TimeNs deadline) {
  OFP_ASSIGN(const ControlSocket::Frame frame, await_frame(socket, deadline));
  if (frame.type == ControlType::refusal) return refused(frame.payload, "the agent refuses");
  if (frame.type != ControlType::rendezvous)
    return unexpected_frame(frame.type, "before rendezvous: is the agent's address one of verbs?");
  OFP_ASSIGN(const std::uint64_t port, wire::decode_number(frame.payload));
  if (port == 0 || port > 65535) return fail(Error::protocol, "rendezvous: {} is not a port", port);
  OFP_ASSIGN(VerbsConnection connection,
             connect_queue_pair(socket, static_cast<std::uint16_t>(port), proofs, deadline));
  return VerbsHostLink::create(std::move(socket), std::move(connection), std::move(channel_segment), std::move(welcome),
                               deadline);
}

Result<std::unique_ptr<VerbsHostLink>> VerbsHostLink::create(ControlSocket socket, VerbsConnection connection,
                                                             SegmentMemory channel_segment, wire::Welcome welcome,
                                                             TimeNs deadline) {
  OFP_ASSIGN(HostControl::Events events, HostControl::watch(socket, {}));
  std::unique_ptr<VerbsHostLink> link(new VerbsHostLink(
      std::move(socket), std::move(connection), std::move(channel_segment), std::move(welcome), std::move(events)));
  OFP_TRY(link->announce_segment(wire::channel_segment, link->channel_segment_, deadline));
  return link;
}

VerbsHostLink::VerbsHostLink(ControlSocket socket, VerbsConnection connection, SegmentMemory channel_segment,
                             wire::Welcome welcome, HostControl::Events events)
    : control_(std::move(socket), Peer(), std::move(events), *this),
      connection_(std::move(connection)),
      channel_segment_(std::move(channel_segment)),
      welcome_(std::move(welcome)) {
  traits_ = {"verbs", true, false, 0, welcome_.reason};
}

VerbsHostLink::~VerbsHostLink() { close(); }

// ---- announcements

Result<SegmentMemory> VerbsHostLink::allocate(std::uint64_t length) { return allocate_shared(length); }

Status VerbsHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  OFP_TRY(control_.look_aside());
  OFP_ASSIGN(MemoryRegion region, register_memory(*connection_.calls, connection_.domain.get(), memory.data(),
                                                  memory.length(), segment_rights));
  const wire::SegmentNotice notice{segment, memory.length(), reinterpret_cast<std::uint64_t>(memory.data()),
                                   region->rkey};
  announced_.keep(segment, 0, std::move(region));
  auto announced = control_.announce(notice, -1, deadline);
  if (!announced) retire_segment(segment);  // in case the agent takes it later
  return announced;
}

void VerbsHostLink::retire_segment(RegionId segment) { (void)announced_.withdraw(control_, segment, 0); }

Result<std::uint32_t> VerbsHostLink::announce_range(RegionId range, std::uint32_t generation, const void* base,
                                                    std::uint64_t length) {
  OFP_TRY(control_.usable());
  MemoryRegion region;
  if (length > 0) {
    auto made = register_memory(*connection_.calls, connection_.domain.get(), base, length, range_rights);
    if (!made) return fail(made.error().code, "range {}: {}", range, made.error().message);
    region = std::move(*made);
  }
  const std::uint32_t key = region ? region->rkey : 0;
  if (const auto before = announced_.generation_of(range)) retire_range(range, *before);
  announced_.keep(range, generation, std::move(region));
  return key;
}

void VerbsHostLink::retire_range(RegionId range, std::uint32_t generation) {
  announced_.retire(control_, range, generation);
}

Status VerbsHostLink::take_frame(const ControlSocket::Frame& frame) {
  if (frame.type != ControlType::withdrawn) return unexpected_frame(frame.type, "on an open channel");
  return announced_.take_withdrawn(frame.payload);
}

// ---- the end

// In this order: as long as the queue pair lives its regions can be accessed.
void VerbsHostLink::end_connection() noexcept {
  connection_.break_off();
  announced_.clear();
  connection_.close();
}

void VerbsHostLink::abandon() {
  if (control_.abandoned()) return;
  connection_.abandon();
  announced_.abandon();
  control_.abandon();
}

void VerbsHostLink::close() {
  if (control_.inherited()) return abandon();  // a child in which abandon() was not called: the connection is its
                                               // parent's
  end_connection();
  control_.close();
}

}  // namespace offpath::link
