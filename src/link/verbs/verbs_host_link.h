// The host's end over RDMA: it registers announced memory, and its card serves the agent. It runs no thread. Read
// verbs_link.h and verbs_connection.h first.
//
// Segments are registered for remote reads and writes, ranges for remote reads; announced_memory.h describes the end of
// a key. An agent that still uses an ended key loses its queue pair. When the agent is lost, the queue pair ends before
// anything else: afterwards nobody reads or writes here, and leased memory is the program's again.
//
// Registering pins the pages: the card keeps the same pages even if the program unmaps them, and they count as locked
// memory.
#pragma once

#include "link/card/announced_memory.h"
#include "link/control/host_control.h"
#include "link/link.h"
#include "link/verbs/verbs_connection.h"

namespace offpath::link {

class VerbsHostLink final : public HostLink, private HostControl::Owner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<VerbsHostLink>> create(ControlSocket socket, VerbsConnection connection,
                                                                     SegmentMemory channel_segment,
                                                                     wire::Welcome welcome, TimeNs deadline);
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
  void withdraw_range(RegionId range, std::uint32_t generation) override {
    (void)announced_.withdraw(control_, range, generation);
  }
  bool is_withdrawn(RegionId range, std::uint32_t generation) override { return announced_.is_gone(range, generation); }
  void wake() override { control_.wake(); }
  void wake_with(Bytes requests) override { control_.wake(requests); }
  void wait(TimeNs deadline) override { control_.wait(deadline); }
  int event_fd() const override { return control_.event_fd(); }
  Status look() override { return control_.look(); }
  void abandon() override;
  void close() override;

 private:
  VerbsHostLink(ControlSocket socket, VerbsConnection connection, SegmentMemory channel_segment, wire::Welcome welcome,
                HostControl::Events events);

  Status take_frame(const ControlSocket::Frame& frame) override;
  void on_lost() noexcept override { end_connection(); }
  void end_connection() noexcept;

  HostControl control_;
  VerbsConnection connection_;
  SegmentMemory channel_segment_;
  AnnouncedMemory<MemoryRegion> announced_;
  wire::Welcome welcome_;
  LinkTraits traits_;
};

}  // namespace offpath::link
