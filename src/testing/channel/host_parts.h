// The parts of a program's end (src/channel/host) without its calls, for tests of one of them. The test is the agent.
// Read this first in src/testing/channel, then fake_host_link.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

#include "channel/host/announced_memory.h"
#include "channel/host/announcements.h"
#include "channel/host/channel_clock.h"
#include "channel/host/channel_life.h"
#include "channel/host/channel_words.h"
#include "channel/host/event_descriptor.h"
#include "channel/host/host_posts.h"
#include "channel/host/host_streams.h"
#include "channel/host/host_waits.h"
#include "channel/host/replies.h"
#include "channel/host/request_ring.h"
#include "channel/host/sleep_turns.h"
#include "channel/host/wake_requests.h"
#include "channel/ring.h"
#include "testing/channel/fake_host_link.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"

namespace offpath::channel {

struct HostParts {
  using Layout = wire::ChannelLayout;
  static constexpr Layout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};
  struct Request {
    wire::EntryKind kind;
    std::uint64_t ticket;
    std::vector<std::byte> payload;
  };

  HostParts() {
    // A sleep lasts until its deadline.
    link.on_wait = [this](TimeNs deadline) { time = std::max(time, deadline); };
    link.welcomed.memory_bytes_max = 1 << 20;
  }

  // ---- the agent

  void set_word(std::uint64_t offset, std::uint64_t value) { store(link.memory.data() + offset, value); }
  void set_asleep(bool asleep) { set_word(Layout::agent_line + offsetof(wire::AgentLine, asleep), asleep ? 1 : 0); }
  void set_head(std::uint64_t position) { set_word(Layout::agent_line, position); }
  void set_pulled(std::uint32_t stream, std::uint64_t ticket) {
    set_word(layout.completion_line(stream) + offsetof(wire::CompletionLine, pulled), ticket);
  }
  void set_stored(std::uint32_t stream, std::uint64_t ticket) {
    set_word(layout.completion_line(stream) + offsetof(wire::CompletionLine, stored), ticket);
  }
  void set_credit(std::uint32_t stream, std::uint64_t sum) {
    set_word(layout.completion_line(stream) + offsetof(wire::CompletionLine, credit), sum);
  }
  // Copies the requests out; their slots stay taken until set_head().
  std::vector<Request> copy_requests() {
    std::vector<Request> all;
    const auto tail = load<std::uint64_t>(link.memory.data() + Layout::tail_line);
    while (agent_reader.position() < tail) {
      const std::uint64_t at = agent_reader.position() & (layout.request_slots - 1);
      const auto slot = load<wire::Slot>(link.memory.data() + Layout::request_ring + at * wire::slot_bytes);
      OFP_ASSERT(agent_reader.verifies(slot));
      Entry entry;
      if (agent_reader.take(slot, entry).value())
        all.push_back(
            {static_cast<wire::EntryKind>(entry.kind), entry.ticket, {entry.payload.begin(), entry.payload.end()}});
    }
    return all;
  }
  // Takes all requests: the ring is empty afterwards.
  std::vector<Request> take_requests() {
    std::vector<Request> all = copy_requests();
    set_head(agent_reader.position());
    return all;
  }
  // The wakes that were asked for since the last call.
  std::vector<wire::WakeAt> take_wake_requests() {
    std::vector<wire::WakeAt> all;
    for (const Request& request : take_requests()) {
      if (request.kind != wire::EntryKind::wake_at) continue;
      OFP_ASSERT(wire::decode(request.payload, all.emplace_back()));
    }
    return all;
  }
  template <class Message>
  void reply(wire::ReplyKind kind, std::uint64_t ticket, const Message& message) {
    std::vector<std::byte> payload(wire::reply_head_bytes);
    store(payload.data(), static_cast<std::uint32_t>(ticket >> 32));
    encode(message, payload);
    agent_ring.write(static_cast<std::uint8_t>(kind), ticket, payload);
    set_word(Layout::reply_tail_line, agent_ring.position());
  }
  void reply_done(std::uint64_t ticket) { reply(wire::ReplyKind::done, ticket, wire::Done{ticket}); }
  void reply_failed(std::uint64_t ticket) {
    reply(wire::ReplyKind::failed, ticket, wire::Failed{0, Error::no_memory, "refused"});
  }

  // ---- the program

  std::uint64_t publish(std::size_t payload_bytes = 8) {
    return requests.publish(wire::EntryKind::probe, std::vector<std::byte>(payload_bytes, std::byte{7}));
  }
  // So that no request fits but those for wakes.
  void fill_ring() {
    while (requests.fits(8)) publish();
  }

  TimeNs time = 100 * second_ns;
  link::FakeHostLink link{layout};
  RingWriter agent_ring{link.memory.data() + layout.reply_ring(), layout.reply_slots};
  EntryReader agent_reader{layout.request_slots, EntryReader::Tickets::counted};
  std::mutex mutex;
  SleepTurns::Lock lock{mutex};
  ChannelClock clock{[](void* parts) { return static_cast<HostParts*>(parts)->time; }, this};
  ChannelWords words{link.memory.data(), layout};
  EventDescriptor events{link.event};
  SleepTurns turns;
  ChannelLife life{events, turns};
  RequestRing requests{link, words, layout};
  Replies replies{words, link.memory.data(), layout};
  WakeRequests wakes{words, requests, replies, layout.streams_max};
  HostStreams streams{words, requests, layout.streams_max};
  AnnouncedMemory memory;
  HostWaits waits{link, clock, words, events, turns, life, requests, replies, wakes, streams};
  HostPosts posts{clock, life, requests, streams, memory, waits};
  Announcements announcements{link, clock, words, life, memory, waits, posts};
};

}  // namespace offpath::channel
