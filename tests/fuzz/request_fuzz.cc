// A hostile host program against the real agent: arbitrary entries in its ring, with right checksums, end at most its
// own channel; the agent stays intact and gets all its memory back.
//
// The input is a list of requests, {way u8, kind u8, length u16, payload}. `kind` is one of service/request_table.h;
// other numbers count its rows, and 0 is an unknown kind. The payload's bytes are taken as they are, in the ring or,
// with bit 6 of `way` and where they are too many, outside of it; with bit 7 too, more of it than there is. Every
// eighth value of `way` scribbles over the ring's control words instead. The last 32 values are requests that make
// sense, so that their services are reached: objects of Arrow beside plain ones that are updated in place, queries
// over both, and the same of another user. In any case an object of Arrow never changes once it is stored, and no
// object of the other user does.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>

#include "base/log.h"
#include "channel/ring.h"
#include "pool/query/query.h"
#include "service/request_table.h"
#include "tests/sim/sim_agent.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/stream_messages.h"

using namespace offpath;

namespace {

constexpr wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 64, .streams_max = 4};

// A valid opening comes first, so that later requests reach the code behind it.
std::vector<std::byte> opening(std::uint8_t compression) {
  frame::Schema schema;
  schema.fields.push_back({.name = "x", .type = frame::Type::float64});
  schema.fields.push_back({.name = "name", .type = frame::Type::utf8});
  const std::vector<std::byte> encoded = frame::encode(schema);
  std::vector<std::byte> payload;
  wire::encode(wire::OpenStream{0, wire::Destination::ipc_page, 1000, 0, 0, 0, "s", "local:/s", encoded,
                                static_cast<wire::Compression>(compression % wire::compressions)},
               payload);
  return payload;
}

std::vector<std::byte> announcement(const std::vector<std::byte>& memory) {
  std::vector<std::byte> payload;
  wire::encode(wire::AnnounceRange{1, 1, reinterpret_cast<std::uintptr_t>(memory.data()), memory.size(), 0}, payload);
  return payload;
}

template <class Message>
std::vector<std::byte> bytes_of(const Message& message) {
  std::vector<std::byte> payload;
  wire::encode(message, payload);
  return payload;
}

std::vector<std::byte> opening_of_bytes(std::uint32_t number, wire::Destination destination, std::string_view name,
                                        std::string_view pool) {
  return bytes_of(wire::OpenStream{number, destination, 0, 0, 0, 0, name, pool, {}});
}

// Requests that make sense, of one program: kind and payload. Stream 0 is the one that is opened first, `bytes` and
// `serialised` are the numbers of two others.
struct Requests {
  static constexpr std::uint64_t query_at = 32768, charge = 16384;
  static constexpr std::string_view keys[] = {"a", "b", "c", "d"};
  std::vector<std::byte>& arrays;
  std::uint32_t bytes, serialised;
  std::string_view pool;

  static wire::BufferRef part(std::uint64_t offset, std::uint64_t length) {
    return {.region = 1, .generation = 1, .offset = offset, .length = length};
  }

  std::pair<wire::EntryKind, std::vector<std::byte>> make(unsigned which, Bytes from) const {
    const auto number = [&](std::size_t i) { return i < from.size() ? static_cast<std::uint64_t>(from[i]) : 0; };
    const std::string_view key = keys[number(0) % 4];
    switch (which % 5) {
      case 0: {  // two columns, the texts of the second one empty
        const std::uint64_t rows = 1 + number(1);
        wire::Send send{
            .stream = 0, .charge = charge, .rows = rows, .row_key = key, .column_key = {}, .nodes = {}, .buffers = {}};
        const auto count = static_cast<std::int64_t>(rows);
        send.nodes = {{count, 0}, {count, 0}};
        send.buffers = {{}, part(8 * number(2), 8 * rows), {}, part(query_at + 8192, 4 * rows + 4), {}};
        return {wire::EntryKind::send, bytes_of(send)};
      }
      case 1:
      case 2: {
        wire::Move move{.stream = bytes,
                        .update = which % 5 == 2,
                        .charge = charge,
                        .object_bytes = 2048,
                        .row_key = key,
                        .column_key = {},
                        .pieces = {}};
        move.pieces.push_back({part(number(2), 1 + number(3)), 4 * number(1)});
        return {wire::EntryKind::move, bytes_of(move)};
      }
      case 3: {
        std::ranges::copy(from.first(std::min<std::size_t>(from.size(), query_at)), arrays.begin());
        wire::Send send{.stream = serialised,
                        .charge = charge,
                        .rows = 1,
                        .row_key = key,
                        .column_key = {},
                        .nodes = {},
                        .buffers = {}};
        send.buffers = {part(0, from.size())};
        return {wire::EntryKind::send, bytes_of(send)};
      }
      default: {
        const std::vector<std::byte> query = pool::encode(pool::Query{});
        std::ranges::copy(query, arrays.begin() + query_at);
        const std::string_view rows = number(1) % 4 == 0 ? "*" : key;
        return {wire::EntryKind::pool_query,
                bytes_of(wire::PoolQuery{pool, rows, "*", second_ns, part(query_at, query.size())})};
      }
    }
  }
};

// A row of the table for every number but 0, so that inputs reach services instead of ending their channel at once.
std::uint8_t kind_of(std::uint8_t number) {
  if (number == 0 || service::row_of(number) != nullptr) return number;
  return static_cast<std::uint8_t>(service::request_rows[number % std::size(service::request_rows)].kind);
}

// Values that may never change, as first seen.
class Unchanged {
 public:
  void look(const pool::FrameTable& table, const std::string& pool, bool all) {
    for (const auto& held : table.held(pool)) {
      if (!held.frame->arrow && !all) continue;
      const std::uint32_t sum = crc32c(Bytes(held.frame->buffer.data(), held.frame->bytes));
      const auto [at, fresh] = seen_.try_emplace(held.frame, sum);
      OFP_ASSERT(at->second == sum);
      OFP_ASSERT(!held.frame->arrow || !held.frame->updatable);
    }
  }

 private:
  std::map<pool::FramePtr, std::uint32_t> seen_;
};

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
  std::vector<std::byte> arrays(65536);
  const auto post_kind = [&](wire::EntryKind kind, const std::vector<std::byte>& payload) {
    post(static_cast<std::uint8_t>(kind), payload);
  };
  post_kind(wire::EntryKind::open_stream, opening(size > 0 ? data[0] : 0));
  post_kind(wire::EntryKind::announce_range, announcement(arrays));
  post_kind(wire::EntryKind::open_stream, opening_of_bytes(1, wire::Destination::native, "bytes", "local:/s"));
  post_kind(wire::EntryKind::open_stream, opening_of_bytes(2, wire::Destination::serialised, "serialised", "local:/s"));
  const Requests own{arrays, 1, 2, "local:/s"}, of_other{arrays, 3, 3, "local:/other"};

  // The other user's objects are there before anything of this one's comes; and this one tries to have a stream there.
  auto other = link::make_loopback(fabric, link_options, layout);
  OFP_ASSERT(other);
  agent.dispatcher().add_channel(std::move(other->agent), layout, {"other", 1001, 2}, fabric->now());
  std::vector<std::byte> theirs(4096, std::byte{'o'});
  std::byte* const other_memory = other->host->channel_memory().data();
  channel::RingWriter other_ring(other_memory + wire::ChannelLayout::request_ring, layout.request_slots);
  std::uint64_t other_ticket = 0;
  const auto post_of_other = [&](wire::EntryKind kind, const std::vector<std::byte>& payload) {
    other_ring.write(static_cast<std::uint8_t>(kind), ++other_ticket, payload);
    word(other_memory).store(other_ring.position());
    agent.step(fabric->now());
    agent.run_for(millisecond_ns);
  };
  post_of_other(wire::EntryKind::announce_range, announcement(theirs));
  post_of_other(wire::EntryKind::open_stream, opening_of_bytes(0, wire::Destination::native, "other", "local:/other"));
  for (const std::string_view key : {"a", "b"}) {
    wire::Move move{.stream = 0,
                    .update = false,
                    .charge = Requests::charge,
                    .object_bytes = 2048,
                    .row_key = key,
                    .column_key = {},
                    .pieces = {}};
    move.pieces.push_back({Requests::part(0, 2048), 0});
    post_of_other(wire::EntryKind::move, bytes_of(move));
  }
  post_kind(wire::EntryKind::open_stream, opening_of_bytes(3, wire::Destination::native, "theirs", "local:/other"));
  const pool::Pools& pools = agent.dispatcher().pools();
  Unchanged unchanged;
  const auto look = [&] {
    unchanged.look(pools.table(), "local:/s", false);
    unchanged.look(pools.table(), "local:/other", true);
    OFP_ASSERT(pools.table().held("local:/other").size() == 2);
  };
  look();

  std::size_t at = 0;
  while (at + 4 <= size) {
    const std::uint8_t way = data[at], kind = kind_of(data[at + 1]);
    const std::size_t length = std::min<std::size_t>(data[at + 2] | (data[at + 3] << 8), size - at - 4);
    const Bytes payload = std::as_bytes(std::span(data + at + 4, length));
    at += 4 + length;
    if (way >= 0xE0) {
      const auto [made, bytes] = (way < 0xF0 ? own : of_other).make(way % 16, payload);
      post_kind(made, bytes);
      agent.run_for(millisecond_ns);
    } else if (way % 8 == 7 && length >= 9) {
      const std::uint64_t line = static_cast<std::uint64_t>(payload[0]) % 24;  // tail, heads, flag, reply tail
      word(memory + line * 8).store(load<std::uint64_t>(payload.data() + 1));
      agent.run_for(10 * microsecond_ns);
    } else {
      const bool outside = (way & 0x40) != 0;
      post(kind, payload, outside, outside && (way & 0x80) != 0 ? 1u << (length % 32) : 0);
    }
    look();
  }
  pair->host->close();
  other->host->close();
  agent.run_for(second_ns);
  OFP_ASSERT(agent.dispatcher().channels().empty());
  OFP_ASSERT(agent.dispatcher().mover().counters().promised_bytes == 0);
  OFP_ASSERT(agent.dispatcher().mover().counters().operations == 0);
  OFP_ASSERT(agent.dispatcher().tasks().counters().sessions == 0 && agent.dispatcher().tasks().counters().waiting == 0);
  OFP_ASSERT(agent.dispatcher().pools().table().counters().leases == 0);
  return 0;
}
