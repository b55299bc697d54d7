#include "link/verbs/verbs_host_link.h"

#include "link/verbs/verbs_link.h"
#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

Result<std::unique_ptr<HostLink>> connect_verbs(ControlSocket socket, const VerbsProofs& proofs,
                                                SegmentMemory channel_segment, std::uint64_t rings_bytes,
                                                wire::Welcome welcome, std::shared_ptr<CardDevices> devices,
                                                TimeNs deadline) {
  OFP_ASSIGN(const ControlSocket::Frame frame, await_frame(socket, deadline));
  if (frame.type == ControlType::refusal) return refused(frame.payload, "the agent refuses");
  if (frame.type != ControlType::rendezvous)
    return unexpected_frame(frame.type, "before rendezvous: is the agent's address one of verbs?");
  OFP_ASSIGN(const std::uint64_t port, wire::decode_number(frame.payload));
  if (port == 0 || port > 65535) return fail(Error::protocol, "rendezvous: {} is not a port", port);
  OFP_ASSIGN(VerbsConnection connection,
             connect_queue_pair(socket, static_cast<std::uint16_t>(port), proofs, std::move(devices), deadline));
  return VerbsHostLink::create(std::move(socket), std::move(connection), std::move(channel_segment), rings_bytes,
                               std::move(welcome), deadline);
}

Result<std::unique_ptr<VerbsHostLink>> VerbsHostLink::create(ControlSocket socket, VerbsConnection connection,
                                                             SegmentMemory channel_segment, std::uint64_t rings_bytes,
                                                             wire::Welcome welcome, TimeNs deadline) {
  OFP_ASSIGN(HostControl::Events events, HostControl::watch(socket, {}));
  std::unique_ptr<VerbsHostLink> link(new VerbsHostLink(std::move(socket), std::move(connection),
                                                        std::move(channel_segment), rings_bytes, std::move(welcome),
                                                        std::move(events)));
  return opened(std::move(link), deadline);
}

VerbsHostLink::VerbsHostLink(ControlSocket socket, VerbsConnection connection, SegmentMemory channel_segment,
                             std::uint64_t rings_bytes, wire::Welcome welcome, HostControl::Events events)
    : CardHostLink("verbs", std::move(socket), std::move(events), std::move(channel_segment), std::move(welcome)),
      connection_(std::move(connection)),
      rings_bytes_(connection_.devices ? rings_bytes : channel_segment_.length()) {}

VerbsHostLink::~VerbsHostLink() { close(); }

// ---- announcements

Status VerbsHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  OFP_TRY(control_.look_aside());
  const MutableBytes bytes = segment == wire::channel_segment ? memory.bytes().first(rings_bytes_) : memory.bytes();
  OFP_ASSIGN(RemoteMemory region, connection_.expose(bytes, true));
  const wire::SegmentNotice notice{segment, bytes.size(), reinterpret_cast<std::uint64_t>(bytes.data()), region.key()};
  announced_.keep(segment, 0, std::move(region));
  auto announced = control_.announce(notice, -1, deadline);
  if (!announced) retire_segment(segment);  // in case the agent takes it later
  return announced;
}

Result<std::uint32_t> VerbsHostLink::announce_range(RegionId range, std::uint32_t generation, const void* base,
                                                    std::uint64_t length) {
  OFP_TRY(control_.usable());
  RemoteMemory region;
  if (length > 0) {
    auto* const first = const_cast<std::byte*>(static_cast<const std::byte*>(base));  // it is only read
    auto made = connection_.expose({first, length}, false);
    if (!made) return fail(made.error().code, "range {}: {}", range, made.error().message);
    region = std::move(*made);
  }
  const std::uint32_t key = region ? region.key() : 0;
  if (const auto before = announced_.generation_of(range)) retire_range(range, *before);
  announced_.keep(range, generation, std::move(region));
  return key;
}

// Nobody waits for the agent: it has the announcement before the request, or its read waits.
Status VerbsHostLink::offer_outside() {
  if (announced_.generation_of(wire::outside_part) || rings_bytes_ == channel_segment_.length()) return {};
  OFP_TRY(control_.usable());
  const MutableBytes bytes = channel_segment_.bytes().subspan(rings_bytes_);
  OFP_ASSIGN(RemoteMemory region, connection_.expose(bytes, false));
  const wire::SegmentNotice notice{wire::outside_part, bytes.size(), reinterpret_cast<std::uint64_t>(bytes.data()),
                                   region.key()};
  announced_.keep(wire::outside_part, 0, std::move(region));
  std::vector<std::byte> payload;
  wire::encode(notice, payload);
  return control_.send(ControlType::segment, payload);
}

void VerbsHostLink::withdraw_outside() { (void)announced_.withdraw(control_, wire::outside_part, 0); }

Status VerbsHostLink::take_frame(const ControlSocket::Frame& frame) {
  if (frame.type != ControlType::withdrawn) return unexpected_frame(frame.type, "on an open channel");
  return announced_.take_withdrawn(frame.payload);
}

// ---- the end

// In this order: as long as the queue pair lives its regions can be accessed, and windows keep the queue pair alive.
void VerbsHostLink::end_card() noexcept {
  if (connection_.has_windows) announced_.clear();
  connection_.break_off();
  announced_.clear();
  connection_.close();
}

void VerbsHostLink::abandon_card() noexcept { connection_.abandon(); }

}  // namespace offpath::link
