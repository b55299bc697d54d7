// The host's end over RDMA: it registers announced memory, and its card serves the agent. It runs no thread. Read
// verbs_link.h and verbs_connection.h first.
//
// Segments are registered for remote reads and writes, ranges for remote reads; announced_memory.h describes the end of
// a key. An agent that still uses an ended key loses its queue pair. When the agent is lost, the queue pair ends before
// anything else: afterwards nobody reads or writes here, and leased memory is the program's again.
//
// Registering pins the pages: the card keeps the same pages even if the program unmaps them, and they count as locked
// memory. So an agent that is the host, of which other members want little, registers the rings of the channel segment
// alone; the rest while a request is stored there.
#pragma once

#include "link/card/card_host_link.h"
#include "link/verbs/verbs_connection.h"

namespace offpath::link {

class VerbsHostLink final : public CardHostLink<RemoteMemory> {
 public:
  [[nodiscard]] static Result<std::unique_ptr<VerbsHostLink>> create(ControlSocket socket, VerbsConnection connection,
                                                                     SegmentMemory channel_segment,
                                                                     std::uint64_t rings_bytes, wire::Welcome welcome,
                                                                     TimeNs deadline);
  ~VerbsHostLink() override;

  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override;
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override;
  Status offer_outside() override;
  void withdraw_outside() override;

 private:
  VerbsHostLink(ControlSocket socket, VerbsConnection connection, SegmentMemory channel_segment,
                std::uint64_t rings_bytes, wire::Welcome welcome, HostControl::Events events);

  Status take_frame(const ControlSocket::Frame& frame) override;
  void end_card() noexcept override;
  void abandon_card() noexcept override;

  VerbsConnection connection_;
  std::uint64_t rings_bytes_;  // of the channel segment, that its announcement covers
};

}  // namespace offpath::link
