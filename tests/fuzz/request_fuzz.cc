// A hostile host program against the real agent: whatever it writes into its ring, with right checksums, ends at
// most its own channel; the agent stays whole and gets all its memory back.
//
// The input is a list of requests, {kind u8, length u16, payload}; the payload's bytes are taken as they are, in the ring or, with bit 6 of
// `kind` and where they are too many, outside of it; with bit 7 too, more of it than there is. Every eighth byte value of `kind` scribbles over
// the ring's control words instead.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/log.h"
#include "channel/ring.h"
#include "tests/sim/sim_agent.h"
#include "wire/message_kinds.h"
#include "wire/stream_messages.h"

using namespace offpath;

namespace {

constexpr wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 64, .streams_max = 4};

// A valid opening comes first, so that what follows reaches the code behind it.
std::vector<std::byte> opening(std::uint8_t compression) {
  frame::Schema schema;
  schema.fields.push_back({.name = "x", .type = frame::Type::float64});
  schema.fields.push_back({.name = "name", .type = frame::Type::utf8});
  const std::vector<std::byte> encoded = frame::encode(schema);
  std::vector<std::byte> payload;
  wire::encode(wire::OpenStream{0, wire::Destination::ipc_page, 1000, 0, 0, 0, "s", "local:/s", encoded,
                                static_cast<wire::Compression>(compression % wire::compressions)}, payload);
  return payload;
}

std::vector<std::byte> announcement(const std::vector<std::byte>& memory) {
  std::vector<std::byte> payload;
  wire::encode(wire::AnnounceRange{1, 1, reinterpret_cast<std::uintptr_t>(memory.data()), memory.size(), 0}, payload);
  return payload;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log(LogLevel::off, nullptr, nullptr);
  auto fabric = std::make_shared<link::LoopbackFabric>(1);
  agent::DispatcherOptions options;
  options.mover.memory_bytes_max = 16ull << 20;
  sim::SimAgent agent(fabric, options);
  link::LoopbackOptions link_options;
  link_options.operation = {0, 0};
  auto pair = link::make_loopback(fabric, link_options, layout);
  OFP_ASSERT(pair);
  agent.dispatcher().add_channel(std::move(pair->agent), layout, {"hostile", 1000, 1}, fabric->now());

  std::byte* memory = pair->host->channel_memory().data();
  channel::RingWriter ring(memory + wire::ChannelLayout::request_ring, layout.request_slots);
  const auto word = [](std::byte* at) { return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at)); };
  std::uint64_t ticket = 0;
  const auto post = [&](std::uint8_t kind, Bytes payload, bool outside = false, std::uint32_t more = 0) {
    if (outside || wire::slots_for(payload.size()) > wire::entry_slots_max(layout.request_slots)) {
      if (!payload.empty()) std::memcpy(memory + layout.outside(), payload.data(), payload.size());
      ring.write_outside(kind, ++ticket, {static_cast<std::uint32_t>(payload.size()) + more, crc32c(payload)});
    } else {
      ring.write(kind, ++ticket, payload);
    }
    word(memory).store(ring.position());
    agent.step(fabric->now());
    agent.run_for(10 * microsecond_ns);
  };
  const std::vector<std::byte> arrays(65536);
  post(static_cast<std::uint8_t>(wire::EntryKind::open_stream), opening(size > 0 ? data[0] : 0));
  post(static_cast<std::uint8_t>(wire::EntryKind::announce_range), announcement(arrays));

  std::size_t at = 0;
  while (at + 3 <= size) {
    const std::uint8_t kind = data[at];
    const std::size_t length = std::min<std::size_t>(data[at + 1] | (data[at + 2] << 8), size - at - 3);
    const Bytes payload = std::as_bytes(std::span(data + at + 3, length));
    at += 3 + length;
    if (kind % 8 == 7 && kind > 15 && length >= 9) {
      const std::uint64_t line = static_cast<std::uint64_t>(payload[0]) % 24;  // tail, heads, flag, reply tail
      word(memory + line * 8).store(load<std::uint64_t>(payload.data() + 1));
      agent.run_for(10 * microsecond_ns);
    } else if (kind % 8 == 6 && kind > 15) {
      post(static_cast<std::uint8_t>(static_cast<unsigned>(wire::EntryKind::task_open) + kind / 8 % 8), payload);
    } else {
      const bool outside = (kind & 0x40) != 0;
      post(kind > 15 ? kind % 16 : kind, payload, outside, outside && (kind & 0x80) != 0 ? 1u << (length % 32) : 0);
    }
  }
  pair->host->close();
  agent.run_for(second_ns);
  OFP_ASSERT(agent.dispatcher().channels().empty());
  OFP_ASSERT(agent.dispatcher().mover().counters().promised_bytes == 0);
  OFP_ASSERT(agent.dispatcher().mover().counters().operations == 0);
  OFP_ASSERT(agent.dispatcher().tasks().counters().sessions == 0 && agent.dispatcher().tasks().counters().waiting == 0);
  OFP_ASSERT(agent.dispatcher().pools().table().counters().leases == 0);
  return 0;
}
