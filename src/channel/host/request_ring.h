// Requests on their way to the agent: a program's side of the request ring, the place outside of the ring for a request
// that is too large for it, and the wake of an agent that sleeps. Each request has a ticket; they count from 1.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "channel/host/channel_clock.h"
#include "channel/host/channel_words.h"
#include "channel/ring.h"
#include "link/link.h"
#include "wire/messages/message_kinds.h"

namespace offpath::channel {

class RequestRing {
 public:
  // Slots that other requests leave to wake requests, so that a full ring can still ask for a wake.
  static constexpr std::uint64_t spare_slots = 8;

  RequestRing(link::HostLink& link, const ChannelWords& words, const wire::ChannelLayout& layout) noexcept
      : link_(link),
        words_(words),
        memory_(link.channel_memory().data()),
        outside_(memory_ + layout.outside()),
        ring_(memory_ + wire::ChannelLayout::request_ring, layout.request_slots) {}

  [[nodiscard]] std::uint64_t newest() const noexcept { return ticket_; }             // 0: none
  [[nodiscard]] std::uint64_t position() const noexcept { return ring_.position(); }  // after the newest
  [[nodiscard]] std::uint32_t slots() const noexcept { return ring_.slots(); }
  [[nodiscard]] std::uint64_t wakes() const noexcept { return wakes_; }  // sent to the agent

  // Whether a request of so many bytes has room, and `spare` slots besides.
  [[nodiscard]] bool fits(std::uint64_t payload_bytes, std::uint64_t spare = spare_slots) noexcept {
    if (payload_bytes > wire::entry_bytes_max) [[unlikely]]
      return false;
    const bool alone = is_outside(payload_bytes);  // it fits if there is room for one slot
    const std::uint64_t needed = (alone ? 1 : wire::slots_for(payload_bytes)) + spare;
    const auto room = [&] {
      return ring_.position() - std::min(head_seen_, ring_.position()) + needed <= ring_.slots() &&
             (!alone || head_seen_ >= outside_end_);
    };
    if (room()) [[likely]]
      return true;
    head_seen_ = words_.request_head();
    return room();
  }
  // The agent's core has the lines that such a request needs; they arrive while it is composed.
  void expect(std::uint64_t payload_bytes) const noexcept {
    words_.prefetch_request_head();
    if (!is_outside(payload_bytes)) [[likely]]
      ring_.prefetch(payload_bytes);
  }
  // Has to succeed before a request of so many bytes is written: lets the agent read the place outside of the ring.
  [[nodiscard]] Status offer_outside(std::uint64_t payload_bytes, const ChannelClock& clock) {
    if (!is_outside(payload_bytes)) [[likely]]
      return {};
    return offer_outside(clock.now());
  }
  // The link may have the place back if no request was offered there since `before` and the agent has copied all.
  void withdraw_outside(TimeNs before);

  // The request fits. Returns its ticket. An agent that sleeps is woken.
  std::uint64_t publish(wire::EntryKind kind, Bytes payload);
  // An agent that is awake sees it; one that sleeps takes it when something else wakes it.
  std::uint64_t publish_without_wake(wire::EntryKind kind, Bytes payload);

 private:
  [[nodiscard]] bool is_outside(std::uint64_t payload_bytes) const noexcept {
    return payload_bytes > wire::entry_slots_max(ring_.slots()) * wire::slot_payload_bytes;
  }
  [[nodiscard]] Status offer_outside(TimeNs now);
  [[nodiscard]] std::uint64_t write(wire::EntryKind kind, Bytes payload, bool alone);
  void wake_agent();

  link::HostLink& link_;
  ChannelWords words_;
  std::byte* memory_;
  std::byte* outside_;
  RingWriter ring_;
  std::uint64_t ticket_ = 0;
  // The agent's head at the last look: its cache line is the agent's and expensive to read.
  std::uint64_t head_seen_ = 0;
  std::uint64_t sent_until_ = 0;       // the ring's tail when requests were last sent with a wake
  std::uint64_t outside_end_ = 0;      // the position after the newest request that lies outside of the ring
  TimeNs outside_offered_at_ = never;  // never: the link has it back
  std::uint64_t wakes_ = 0;
};

}  // namespace offpath::channel
