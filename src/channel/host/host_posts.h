// Posts requests: first there is room in the ring, and credit for what they carry, then they are written. A deadline of
// 0 never waits (Error::would_block); a wait releases the lock.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "channel/host/announced_memory.h"
#include "channel/host/channel_clock.h"
#include "channel/host/channel_life.h"
#include "channel/host/host_streams.h"
#include "channel/host/host_waits.h"
#include "channel/host/request_ring.h"
#include "wire/messages/message_kinds.h"

namespace offpath::channel {

class HostPosts {
 public:
  using Lock = HostWaits::Lock;

  HostPosts(const ChannelClock& clock, const ChannelLife& life, RequestRing& requests, HostStreams& streams,
            AnnouncedMemory& memory, HostWaits& waits) noexcept
      : clock_(clock), life_(life), requests_(requests), streams_(streams), memory_(memory), waits_(waits) {}

  // Without data. Returns the ticket.
  [[nodiscard]] Result<std::uint64_t> post(Lock& lock, wire::EntryKind kind, Bytes payload, TimeNs deadline);
  // The agent is not woken.
  [[nodiscard]] Result<std::uint64_t> post_without_wake(Lock& lock, wire::EntryKind kind, Bytes payload,
                                                        TimeNs deadline);
  // With data of a stream: takes `charge` of its credit, and leases the memory in `uses` (each region once).
  [[nodiscard]] Result<std::uint64_t> post_data(Lock& lock, wire::EntryKind kind, std::uint32_t stream, Bytes payload,
                                                std::uint64_t charge, std::uint64_t bytes,
                                                std::span<const RangeName> uses, TimeNs deadline);
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }  // of data, posted

 private:
  [[nodiscard]] Status prepare(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline);

  ChannelClock clock_;
  const ChannelLife& life_;
  RequestRing& requests_;
  HostStreams& streams_;
  AnnouncedMemory& memory_;
  HostWaits& waits_;
  std::uint64_t bytes_ = 0;
};

}  // namespace offpath::channel
