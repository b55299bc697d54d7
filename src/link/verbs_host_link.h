// The host's end over RDMA: registers what is announced and is done; its card serves the agent. No thread. Read
// verbs_link.h and verbs_connection.h first.
//
// Segments are registered for remote reads and writes, ranges for remote reads. A key ends in this order: the agent is
// told (`withdraw`), it answers once nothing that uses the key is under way, then the region is deregistered. A segment
// is the link's own memory, so nobody waits for that: its pages are kept until the answer. A range is the program's, which
// gets it back when retire_range returns; an agent that does not answer within a second loses the key all the
// same, and its queue pair with the first request that uses it. When the agent is lost the queue pair goes before anything else: from then on nobody reads or
// writes here, and memory that was leased is the program's.
//
// Registering pins the pages: they stay what they are even if the program unmaps them, and count as locked memory.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "link/host_control.h"
#include "link/link.h"
#include "link/verbs_connection.h"

namespace offpath::link {

class VerbsHostLink final : public HostLink, private HostControl::Owner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<VerbsHostLink>> create(ControlSocket socket, VerbsConnection connection,
                                                                     SegmentMemory channel_segment, wire::Welcome welcome,
                                                                     TimeNs deadline);
  ~VerbsHostLink() override;

  const LinkTraits& traits() const override { return traits_; }
  const wire::Welcome& welcome() const override { return welcome_; }
  MutableBytes channel_memory() override { return channel_segment_.bytes(); }
  Result<SegmentMemory> allocate(std::uint64_t length) override;
  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override;
  void retire_segment(RegionId segment) override;
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override;
  void retire_range(RegionId range, std::uint32_t generation) override;
  void wake() override { control_.wake(); }
  void wait(TimeNs deadline) override { control_.wait(deadline); }
  int event_fd() const override { return control_.event_fd(); }
  Status look() override { return control_.look(); }
  void abandon() override;
  void close() override;

 private:
  struct Registered {
    std::uint32_t generation;
    MemoryRegion region;  // null: nothing to register
  };

  VerbsHostLink(ControlSocket socket, VerbsConnection connection, SegmentMemory channel_segment, wire::Welcome welcome, Fd events);

  using Withdrawn = std::pair<RegionId, Registered>;
  [[nodiscard]] std::vector<Withdrawn>::iterator find_leaving(RegionId region, std::uint32_t generation);
  [[nodiscard]] Status withdraw(RegionId region, std::uint32_t generation);
  Status take_frame(const ControlSocket::Frame& frame) override;
  void on_lost() noexcept override { end_connection(); }
  void end_connection() noexcept;

  HostControl control_;
  VerbsConnection connection_;
  SegmentMemory channel_segment_;
  std::map<RegionId, Registered> registered_;  // segments and ranges, the channel segment among them
  wire::Welcome welcome_;
  LinkTraits traits_;
  std::vector<Withdrawn> leaving_;  // the agent has not answered yet
};

}  // namespace offpath::link
