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

#include "link/card/announced_memory.h"
#include "link/control/host_control.h"
#include "link/doca/doca_device.h"
#include "link/link.h"

namespace offpath::link {

class DocaHostLink final : public HostLink, private HostControl::Owner {
 public:
  static constexpr TimeNs import_wait_ns = 5 * second_ns;  // for the agent to import a range

  [[nodiscard]] static Result<std::unique_ptr<DocaHostLink>> create(ControlSocket socket, DocaDevice device,
                                                                    SegmentMemory channel_segment,
                                                                    wire::Welcome welcome, TimeNs deadline);
  ~DocaHostLink() override;

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
  struct Answer {
    std::uint32_t key;
    std::optional<Status> status;
  };

  DocaHostLink(ControlSocket socket, DocaDevice device, SegmentMemory channel_segment, wire::Welcome welcome,
               HostControl::Events events);

  [[nodiscard]] Result<std::uint32_t> announce(RegionId region, std::uint32_t generation, const void* base,
                                               std::uint64_t length, std::uint32_t permissions, TimeNs deadline);
  Status take_frame(const ControlSocket::Frame& frame) override;
  void on_lost() noexcept override { end_device(); }
  void end_device() noexcept;

  HostControl control_;
  DocaDevice device_;
  SegmentMemory channel_segment_;
  AnnouncedMemory<DocaMap> announced_;
  std::uint32_t next_key_ = 1;
  Answer answer_{0, {}};  // at most one announcement at a time
  wire::Welcome welcome_;
  LinkTraits traits_;
};

}  // namespace offpath::link
