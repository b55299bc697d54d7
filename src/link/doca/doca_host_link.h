// The host's end over DOCA DMA: it maps and exports announced memory, and the agent's card copies. It runs no thread.
// Read doca_link.h and doca_device.h first.
//
// The agent has to import memory before a request names it, so an announcement waits for its answer: a round trip on
// the control connection. announced_memory.h describes the end of an export; an agent that still uses an ended export
// loses its DMA context. When the agent is lost, the maps are released before anything else: afterwards its card reads
// and writes nothing here, and leased memory is the program's again.
//
// Mapping pins the pages: the card keeps the same pages even if the program unmaps them, and they count as locked
// memory.
#pragma once

#include <optional>

#include "link/card/card_host_link.h"
#include "link/doca/doca_device.h"

namespace offpath::link {

class DocaHostLink final : public CardHostLink<DocaMap> {
 public:
  static constexpr TimeNs import_wait_ns = 5 * second_ns;  // for the agent to import a range

  [[nodiscard]] static Result<std::unique_ptr<DocaHostLink>> create(ControlSocket socket, DocaDevice device,
                                                                    SegmentMemory channel_segment,
                                                                    wire::Welcome welcome, TimeNs deadline);
  ~DocaHostLink() override;

  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override;
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override;

 private:
  struct Answer {
    std::uint32_t key;
    std::optional<Status> status;
  };

  DocaHostLink(ControlSocket socket, DocaDevice device, SegmentMemory channel_segment, wire::Welcome welcome,
               HostControl::Events events);

  [[nodiscard]] Result<std::uint32_t> announce(RegionId region, std::uint32_t generation, const void* base,
                                               std::uint64_t length, std::uint32_t permissions, TimeNs deadline);
  Status take_frame(const ControlSocket::Frame& frame) override;
  void end_card() noexcept override;
  void abandon_card() noexcept override;

  DocaDevice device_;
  std::uint32_t next_key_ = 1;
  Answer answer_{0, {}};  // at most one announcement at a time
};

}  // namespace offpath::link
