// A program's announcements of memory, and the streams through which it sends batches.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

inline constexpr std::uint32_t buffers_max = 2800;        // of one send
inline constexpr std::uint32_t sets_max = 32;             // buffer sets that the agent remembers for a stream
inline constexpr std::uint32_t set_buffers_max = 64;      // of each set
inline constexpr std::uint64_t sets_bytes_max = 2 << 20;  // of one channel, by set_bytes: both sides count
[[nodiscard]] constexpr std::uint64_t set_bytes(std::uint64_t buffers) noexcept {
  return 128 + 256 * buffers;
}  // with a plan

enum class Destination : std::uint8_t {
  native,
  arrays,
  record_batch,
  ipc,
  ipc_page,
  c_abi,
  agent_serialise,
  serialised
};
inline constexpr std::uint8_t destinations = 8;
[[nodiscard]] std::string_view destination_name(Destination destination) noexcept;
[[nodiscard]] Result<Destination> parse_destination(std::string_view name);  // the error lists all names

// Compression of a frame's bodies, as in Arrow IPC.
enum class Compression : std::uint8_t { none, lz4, zstd };
inline constexpr std::uint8_t compressions = 3;
[[nodiscard]] std::string_view compression_name(Compression compression) noexcept;
[[nodiscard]] Result<Compression> parse_compression(std::string_view name);  // the error lists all names

struct AnnounceRange {
  RegionId range;
  std::uint32_t generation;
  std::uint64_t base;
  std::uint64_t length;
  std::uint32_t key;
};

struct RetireRange {
  RegionId range;
  std::uint32_t generation;
};

struct OpenStream {
  std::uint32_t stream;
  Destination destination;
  std::uint64_t rows_max;
  std::uint64_t keep;  // frames that the pool keeps; 0: all
  std::uint32_t ranks;
  std::uint32_t rank;
  std::string_view name;
  std::string_view pool;
  Bytes schema;                                 // frame::encode; empty: plain bytes (native, serialised)
  Compression compression = Compression::none;  // of frames that are Arrow in the form in which they are pulled (ipc,
                                                // ipc-page)
};

struct CloseStream {
  std::uint32_t stream;
};

// Batches that follow in the ring may have so many rows. Less than before changes nothing. Done: the stream's rows_max.
struct GrowStream {
  std::uint32_t stream;
  std::uint64_t rows_max;
};

struct Node {
  std::int64_t length;
  std::int64_t null_count;  // -1: unknown
};
static_assert(sizeof(Node) == 16);

// One batch. Without nodes every node has `rows` rows and no nulls, and `buffers` are only the value buffers of the
// leaf columns: fixed-width columns without validity. Otherwise nodes and buffers are all of the template's,
// dictionaries first, in the order of frame::Template.
//
// A program that sends the same arrays repeatedly names them once: buffers that come with a set number, from 1 to
// sets_max, are remembered under it until others come with that number or the stream is closed. A set number without
// buffers stands for the remembered ones, with their number of rows. Only without nodes. Remembered names become stale
// like others.
//
// The head of a send; its keys, buffers and nodes follow.
struct SendHead {
  std::uint16_t stream;
  std::uint16_t nodes;
  std::uint16_t buffers;
  std::uint16_t set;
  std::uint32_t row_key_bytes;
  std::uint32_t column_key_bytes;
  std::uint64_t charge;
  std::uint64_t rows;
};
static_assert(sizeof(SendHead) == 32);

struct Send {
  std::uint32_t stream;
  // credit that the host has taken for it: charge_base, charge_of_keys and charge_of_buffer of each buffer
  std::uint64_t charge;
  std::uint64_t rows;
  std::string_view row_key;
  std::string_view column_key;
  std::vector<Node> nodes;
  std::vector<BufferRef> buffers;
  std::uint32_t set = 0;  // 0: none
};

// Encodes a send without nodes into memory with enough room: nothing is allocated.
inline void write_send(const SendHead& head, std::string_view row_key, std::string_view column_key,
                       std::span<const BufferRef> buffers, std::byte* to) noexcept {
  // Whole words from registers, as a ring copies them: a load that covers several smaller stores would wait until they
  // have left the processor's store buffer.
  store(to, std::uint64_t{head.stream} | std::uint64_t{head.nodes} << 16 | std::uint64_t{head.buffers} << 32 |
                std::uint64_t{head.set} << 48);
  store(to + 8, std::uint64_t{head.row_key_bytes} | std::uint64_t{head.column_key_bytes} << 32);
  store(to + 16, head.charge);
  store(to + 24, head.rows);
  to += sizeof head;
  const auto put = [&to](Bytes bytes) {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  };
  put(bytes_of(row_key));
  put(bytes_of(column_key));
  put(std::as_bytes(buffers));
}

struct MovePiece {
  BufferRef source;
  std::uint64_t target_offset;
};
static_assert(sizeof(MovePiece) == 40);

struct Move {
  std::uint32_t stream;
  bool update;           // an existing object
  std::uint64_t charge;  // as in Send
  std::uint64_t object_bytes;
  std::string_view row_key;
  std::string_view column_key;
  std::vector<MovePiece> pieces;
};

struct StepEnd {
  std::uint32_t stream;
  std::string_view row_key;
};

// The host is about to sleep: wake it when `word` has reached `value`. Posted in order, so `now` also means: when
// everything posted before has been taken out of the ring.
enum class WakeWord : std::uint8_t { pulled, stored, credit, replies, now };

struct WakeAt {
  std::uint32_t stream;  // whose completion line; 0 for replies and now
  WakeWord word;
  std::uint64_t value;  // replies: the position up to which the host has read the reply ring; wakes beyond it
};

struct NeedCredit {
  std::uint32_t stream;
  std::uint64_t total;  // the credit word that the host waits for; less than before: for no more than that
};

// Asks why this ticket is not stored yet. Failed with Error::timeout: its message has the reason. Done: the agent is
// working on it, or has stored it.
struct WhyWaits {
  std::uint32_t stream;
  std::uint64_t ticket;
};

// The credit that one batch takes: bytes of agent memory that it may need. Both sides compute it.
[[nodiscard]] constexpr std::uint64_t charge_of_buffer(std::uint64_t length) noexcept {
  return align_up(length, page_bytes);
}
// Short keys are part of charge_base.
inline constexpr std::uint64_t short_keys_bytes = 1024;
[[nodiscard]] constexpr std::uint64_t charge_of_keys(std::string_view row_key, std::string_view column_key) noexcept {
  const std::uint64_t bytes = row_key.size() + column_key.size();
  return bytes <= short_keys_bytes ? 0 : align_up(bytes, page_bytes);
}

// clang-format off: a list
#define OFFPATH_STREAM_MESSAGES(X) \
  X(AnnounceRange) X(RetireRange) X(OpenStream) X(GrowStream) X(CloseStream) X(Send) X(Move) X(StepEnd) X(WakeAt) \
  X(NeedCredit) X(WhyWaits)
// clang-format on
OFFPATH_STREAM_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
