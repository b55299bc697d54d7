// The mover's state of a stream, of a channel and of a running request.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/queue.h"
#include "frame/plan.h"
#include "mover/agent_serialise.h"
#include "mover/body_compressor.h"
#include "mover/options.h"
#include "mover/rate_ring.h"
#include "mover/store.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::mover {

using service::Buffer;
using service::BufferCache;
using service::ChannelNumber;
using service::Frame;

struct Account;  // of a user, see credit.h
struct Channel;
struct Operation;

// The part of a token below its top byte. Preparations have numbers that no operation reaches.
inline constexpr std::uint64_t number_mask = (1ull << 56) - 1;
inline constexpr unsigned place_bits = 24;
inline constexpr std::uint64_t preparation_flag = 1ull << 55;
inline constexpr std::uint64_t drop_number = 1ull << 54;

inline constexpr std::uint64_t plain_alignment = 64;  // of the buffers of plain bytes, and of slices in scratch

// Buffers that a program sends repeatedly, named once (wire::Send::set). Waiting requests keep the set that they named.
struct BufferSet {
  std::uint64_t rows = 0;
  std::vector<wire::BufferRef> buffers;
  bool planned = false;  // `plan` serves every batch of the set: it does not depend on the bytes that arrive
  frame::Plan plan;
};

// The compression of a stream's frames.
struct Packing {
  std::shared_ptr<const frame::Template> form;  // of the compressed frames
  std::shared_ptr<const frame::BodyCompressor> compressor;
};

struct Stream {
  Channel* channel = nullptr;
  Account* account = nullptr;  // of the channel's user
  std::uint32_t id = 0;
  std::string name, pool;
  wire::Destination destination = wire::Destination::ipc_page;
  std::uint64_t rows_max = 0, keep = 0;
  std::uint32_t ranks = 0, rank = 0;
  std::shared_ptr<const frame::Template> form;  // null: plain bytes
  std::shared_ptr<const AgentSerialiser> serialiser;
  std::shared_ptr<const Packing> packing;  // null: frames stay as they were pulled
  std::uint64_t charge_base = 0;

  static constexpr std::size_t unlisted = SIZE_MAX;
  std::uint64_t granted = 0, spent = 0, wanted = 0;  // credit, as sums since the opening
  std::uint64_t promised = 0;                        // memory for what may still be spent; less if some was taken back
  std::uint64_t waiting = 0;                         // of what was spent: charges of batches that are not started
  std::uint64_t window = 0;
  bool is_recent = false;            // it has asked or sent since promises were last looked through
  std::size_t listed_at = unlisted;  // in Account::promised_to
  Queue<Operation*> lacking;         // batches without memory, in the order of their tickets
  bool hungry = false, closing = false, preparing = false;
  TimeNs hungry_since = never;   // when the program asked for the credit, or sent the batch, that it still lacks
  bool is_wait_told = false;     // the log has a line about this wait
  Queue<Operation*> operations;  // in the order of their tickets
  std::uint64_t pulled = 0, stored = 0, sent = 0, bytes = 0;
  RateRing recent;                               // of `bytes`
  std::vector<std::shared_ptr<BufferSet>> sets;  // number - 1 -> set, null if never named
};

struct Channel {
  ChannelNumber number = 0;
  Client client;
  std::vector<std::unique_ptr<Stream>> streams;  // by number
  std::uint64_t pull_ahead_bytes = 0;
  Queue<Operation*> waiting;                   // to be planned and pulled, in the order of their tickets
  std::uint64_t waiting_bytes = 0;             // of their requests
  std::uint64_t lacking_bytes = 0;             // of requests that wait for memory (Stream::lacking)
  std::uint64_t sets_bytes = 0;                // of all its streams' sets, by wire::set_bytes
  std::uint64_t pulls = 0, pulling_bytes = 0;  // under way

  [[nodiscard]] bool may_pull() const noexcept { return pulls == 0 || pulling_bytes < pull_ahead_bytes; }
};

struct Operation {
  enum class Kind : std::uint8_t { send, create, update, step_end, close };
  // queued: waits for memory, or for room among the pulls; waiting: waits for earlier operations
  enum class State : std::uint8_t { queued, pulling, finishing, waiting, over };

  std::uint64_t number = 0;  // of its token; 0: spare
  std::uint32_t place = 0, used = 0;
  Stream* stream = nullptr;  // null: its channel has closed, and a job still runs
  std::uint64_t ticket = 0;
  Kind kind = Kind::send;
  State state = State::queued;
  bool failed = false;
  bool arrow = false;
  bool is_claimed = false;        // its charge counts as claimed
  bool planned_with_set = false;  // `set` has its plan
  std::string row_key, column_key;
  std::uint64_t rows = 0, bytes = 0, charge = 0;
  uid_t user = 0;
  std::shared_ptr<const frame::Template> form;
  std::shared_ptr<const AgentSerialiser> serialiser;
  std::shared_ptr<const Packing> packing;
  std::vector<std::byte> request;  // while it is queued
  std::shared_ptr<BufferSet> set;  // the set of its buffers; null: the request's own
  frame::Plan own_plan;            // of a placed batch, unless its set has one
  std::vector<link::ReadPiece> pieces;
  std::vector<frame::Gap> uncovered;  // of a create: the parts without a piece
  Buffer buffer;                      // the target of the pull
  // Arrays of records are read into scratch and split from there: all at once, or as many rows at a time as fit.
  struct Slice {
    std::uint32_t block;
    std::uint64_t row_begin, row_end;
    std::uint64_t scratch;  // place of its rows
  };
  struct Source {  // of a block
    wire::RegionId region;
    std::uint32_t generation;
  };
  Buffer scratch;
  std::vector<Source> sources;   // of each block
  std::vector<Slice> slices;     // in scratch
  std::uint32_t next_block = 0;  // where the next slice begins
  std::uint64_t next_row = 0;
  FramePtr frame;  // the result; for an update, the updated object
  TimeNs began = 0, pulled_at = 0;

  // Laid out as Arrow, not as plain bytes.
  [[nodiscard]] bool placed() const noexcept { return kind == Kind::send && form != nullptr; }
  // A later request may plan the set meanwhile: that plan has another layout.
  [[nodiscard]] const frame::Plan& plan() const noexcept { return planned_with_set ? set->plan : own_plan; }
  [[nodiscard]] bool has_more_rows() const noexcept { return placed() && next_block < plan().blocks.size(); }
  // The pieces of the next slices, as many as fit into scratch.
  void next_slices();
  void split_slices();
  // The bytes that finish() writes or reads, as a measure of its work.
  [[nodiscard]] std::uint64_t bytes_to_finish() const;
  // Makes the frame of the bytes that have arrived. It uses only the operation: it may run in a job.
  [[nodiscard]] Status finish(BufferCache& cache);

 private:
  [[nodiscard]] Status pack(BufferCache& cache);
};

}  // namespace offpath::mover
