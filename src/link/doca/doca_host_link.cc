#include "link/doca/doca_host_link.h"

#include "link/card/huge_pages.h"
#include "link/doca/doca_link.h"
#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr std::uint32_t segment_permissions = DOCA_ACCESS_FLAG_PCI_READ_WRITE;
constexpr std::uint32_t range_permissions = DOCA_ACCESS_FLAG_PCI_READ_ONLY;

}  // namespace

Result<std::unique_ptr<HostLink>> connect_doca(ControlSocket socket, SegmentMemory channel_segment,
                                               wire::Welcome welcome, TimeNs deadline) {
  OFP_ASSIGN(DocaDevice device, open_doca_device(DocaRole::exports));
  return DocaHostLink::create(std::move(socket), std::move(device), std::move(channel_segment), std::move(welcome),
                              deadline);
}

Result<std::unique_ptr<DocaHostLink>> DocaHostLink::create(ControlSocket socket, DocaDevice device,
                                                           SegmentMemory channel_segment, wire::Welcome welcome,
                                                           TimeNs deadline) {
  OFP_ASSIGN(HostControl::Events events, HostControl::watch(socket, {}));
  std::unique_ptr<DocaHostLink> link(new DocaHostLink(std::move(socket), std::move(device), std::move(channel_segment),
                                                      std::move(welcome), std::move(events)));
  return opened(std::move(link), deadline);
}

DocaHostLink::DocaHostLink(ControlSocket socket, DocaDevice device, SegmentMemory channel_segment,
                           wire::Welcome welcome, HostControl::Events events)
    : CardHostLink("doca", std::move(socket), std::move(events), std::move(channel_segment), std::move(welcome)),
      device_(std::move(device)) {}

DocaHostLink::~DocaHostLink() { close(); }

// ---- announcements

Status DocaHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  OFP_TRY(control_.look_aside());
  ask_for_huge_pages(memory.bytes());
  OFP_TRY(announce(segment, 0, memory.data(), memory.length(), segment_permissions, deadline));
  return {};
}

Result<std::uint32_t> DocaHostLink::announce_range(RegionId range, std::uint32_t generation, const void* base,
                                                   std::uint64_t length) {
  OFP_TRY(control_.usable());
  if (length == 0) {  // nothing to map
    if (const auto before = announced_.generation_of(range)) retire_range(range, *before);
    announced_.keep(range, generation, {});
    return 0;
  }
  return announce(range, generation, base, length, range_permissions, deadline_after(monotonic_ns(), import_wait_ns));
}

Result<std::uint32_t> DocaHostLink::announce(RegionId region, std::uint32_t generation, const void* base,
                                             std::uint64_t length, std::uint32_t permissions, TimeNs deadline) {
  const auto of_region = [region](const Failure& why) {
    return fail(why.code, "{} {}: {}", wire::is_segment(region) ? "segment" : "range", region & ~wire::segment_flag,
                why.message);
  };
  auto map = map_memory(device_, base, length, permissions);
  if (!map) return of_region(map.error());
  auto descriptor = export_map(device_, map->get());
  if (!descriptor) return of_region(descriptor.error());
  if (const auto before = announced_.generation_of(region)) announced_.retire(control_, region, *before);
  const std::uint32_t key = next_key_++;
  std::vector<std::byte> payload;
  wire::encode(wire::MemoryExport{region, generation, reinterpret_cast<std::uint64_t>(base), length, key, *descriptor},
               payload);
  announced_.keep(region, generation, std::move(*map));
  answer_ = Answer{key, std::nullopt};
  OFP_TRY(control_.send(ControlType::memory_export, payload));
  OFP_ASSIGN(const bool answered, control_.until([&] { return answer_.status.has_value(); }, deadline));
  if (!answered) {
    (void)announced_.withdraw(control_, region, generation);  // in case the agent imports it later
    return of_region({Error::timeout, "the agent did not import it in time"});
  }
  if (!*answer_.status) {
    announced_.drop(region);
    return of_region(answer_.status->error());
  }
  return key;
}

Status DocaHostLink::take_frame(const ControlSocket::Frame& frame) {
  if (frame.type == ControlType::withdrawn) return announced_.take_withdrawn(frame.payload);
  if (frame.type != ControlType::imported) return unexpected_frame(frame.type, "on an open channel");
  OFP_ASSIGN(wire::Outcome outcome, wire::decode_outcome(frame.payload));
  if (outcome.token == answer_.key) answer_.status = std::move(outcome.status);  // otherwise the caller has given up
  return {};
}

// ---- the end

// In this order, because a map belongs to its device.
void DocaHostLink::end_card() noexcept {
  announced_.clear();
  device_.dev.reset();
}

void DocaHostLink::abandon_card() noexcept { (void)device_.dev.release(); }

}  // namespace offpath::link
