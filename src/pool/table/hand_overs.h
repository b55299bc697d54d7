// How objects reach programs and members: in the answer, as a leased descriptor, or pushed into memory that they named.
// A leased frame stays until its program releases it or its channel closes, even if the object is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "channel/ring.h"
#include "service/effects.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

namespace offpath::pool {

using service::ChannelNumber;
using service::Effects;
using service::FramePtr;

class HandOvers {
 public:
  explicit HandOvers(std::size_t leases_max) : leases_max_(leases_max) {}

  void on_channel_open(ChannelNumber channel) { leases_.try_emplace(channel); }
  void on_channel_closed(ChannelNumber channel);
  [[nodiscard]] bool is_open(ChannelNumber channel) const { return leases_.contains(channel); }
  [[nodiscard]] std::size_t leases() const noexcept { return leases_count_; }  // of all channels

  // Nothing happens if the channel is closed.
  void hand_over(ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, Effects& effects);
  // The channel is open.
  void push(ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, wire::RegionId region,
            std::uint64_t offset, Effects& effects);
  void on_transfer(std::uint64_t token, Status status, Effects& effects);

  // ---- requests: push_lease, for frames that could not be handed over; release
  void on_push_lease(ChannelNumber channel, const channel::Entry& request, Effects& effects);
  void on_release(ChannelNumber channel, const channel::Entry& request);

 private:
  struct Push {
    ChannelNumber channel;
    std::uint64_t ticket;
    wire::Got got;
  };

  std::size_t leases_max_;  // of one channel
  std::size_t leases_count_ = 0;
  std::unordered_map<ChannelNumber, std::unordered_map<std::uint64_t, FramePtr>> leases_;
  std::unordered_map<std::uint64_t, Push> pushes_;  // by token
  std::uint64_t next_lease_ = 1, next_token_ = 1;
};

}  // namespace offpath::pool
