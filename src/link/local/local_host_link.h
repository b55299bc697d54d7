// The host's end on one machine: segments are memfds that it makes and seals; ranges only need to be announced. It runs
// no thread; a wake is a write to an eventfd of the agent's, which came with the welcome. Wakes to the host use the
// socket, because a host could make an eventfd block the agent that writes to it.
#pragma once

#include <utility>

#include "base/queue.h"
#include "link/control/host_control.h"
#include "link/link.h"

namespace offpath::link {

class LocalHostLink final : public HostLink, private HostControl::Owner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LocalHostLink>> create(ControlSocket socket, Fd wakes, Peer agent,
                                                                     SegmentMemory channel_segment,
                                                                     wire::Welcome welcome);
  ~LocalHostLink() override;

  const LinkTraits& traits() const override { return traits_; }
  const wire::Welcome& welcome() const override { return welcome_; }
  MutableBytes channel_memory() override { return channel_segment_.bytes(); }
  Result<SegmentMemory> allocate(std::uint64_t length) override;
  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override;
  void retire_segment(RegionId segment) override;
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override;
  void retire_range(RegionId range, std::uint32_t generation) override;
  void wake() override;
  void wait(TimeNs deadline) override { control_.wait(deadline); }
  int event_fd() const override { return control_.event_fd(); }
  Status look() override { return control_.look(); }
  Result<Fd> take_descriptor(std::uint64_t ticket, TimeNs deadline) override;
  Status offer(std::uint64_t number, int fd) override;
  void abandon() override;
  void close() override;

 private:
  LocalHostLink(ControlSocket socket, Fd wakes, Peer agent, SegmentMemory channel_segment, wire::Welcome welcome,
                HostControl::Events events);

  Status take_frame(const ControlSocket::Frame& frame) override;
  void on_lost() noexcept override {}

  HostControl control_;
  Fd wakes_;
  SegmentMemory channel_segment_;
  wire::Welcome welcome_;
  LinkTraits traits_;
  Queue<std::pair<std::uint64_t, Fd>> descriptors_;  // handed over, until take_descriptor asks
};

}  // namespace offpath::link
