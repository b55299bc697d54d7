// Memory becomes the agent's to read, and stops being so: announcements of ranges and segments to the link and by
// requests, and what has to have ended before memory is the program's alone again.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "channel/host/announced_memory.h"
#include "channel/host/channel_clock.h"
#include "channel/host/channel_life.h"
#include "channel/host/channel_words.h"
#include "channel/host/host_posts.h"
#include "channel/host/host_waits.h"
#include "link/link.h"

namespace offpath::channel {

class Announcements {
 public:
  using Lock = HostWaits::Lock;

  Announcements(link::HostLink& link, const ChannelClock& clock, const ChannelWords& words, const ChannelLife& life,
                AnnouncedMemory& memory, HostWaits& waits, HostPosts& posts) noexcept
      : link_(link), clock_(clock), words_(words), life_(life), memory_(memory), waits_(waits), posts_(posts) {}

  [[nodiscard]] Result<RangeName> announce(Lock& lock, const void* base, std::uint64_t length, TimeNs deadline);
  // Keeps the number with the next generation.
  [[nodiscard]] Result<RangeName> reannounce(Lock& lock, RangeName range, const void* base, std::uint64_t length);
  // Waits until no posted request uses the range. After the deadline it is withdrawn anyway.
  [[nodiscard]] Status retire(Lock& lock, RangeName range, TimeNs deadline);
  // Does not wait: the agent may read the range until is_withdrawn().
  [[nodiscard]] Status withdraw(Lock& lock, RangeName range);
  [[nodiscard]] bool is_withdrawn(RangeName range);
  // No posted request uses the range, or it is not announced.
  [[nodiscard]] bool idle(RangeName range) const;

  [[nodiscard]] Result<RegionId> announce_segment(link::SegmentMemory memory, TimeNs deadline);
  // Waits a second at most for the requests that use it.
  void free(Lock& lock, RegionId segment);

 private:
  // A link that cannot read ranges is not told of them: data is copied through a segment.
  [[nodiscard]] bool tells() const { return !link_.traits().staged; }
  [[nodiscard]] Result<RangeName> announce_as(Lock& lock, RegionId range, const void* base, std::uint64_t length,
                                              TimeNs deadline);
  [[nodiscard]] Status post_retired(Lock& lock, RangeName range);
  [[nodiscard]] Leases::Lease pending(RegionId region) const {
    return memory_.pending(region, [this](std::uint32_t stream) { return words_.pulled(stream); });
  }
  [[nodiscard]] Status wait_idle(Lock& lock, RegionId region, TimeNs deadline);

  link::HostLink& link_;
  ChannelClock clock_;
  ChannelWords words_;
  const ChannelLife& life_;
  AnnouncedMemory& memory_;
  HostWaits& waits_;
  HostPosts& posts_;
};

}  // namespace offpath::channel
