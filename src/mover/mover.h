// The move service: requests -> plans -> reads -> frames -> a store.
//
// One state machine for all channels of a loop. A stream's operations begin and end in the order of their tickets:
// `pulled` and `stored` never pass an operation that is under way. A failed operation is reported by a reply and then
// passed.
//
// Read this first in src/mover, then operation.h (the state of a request), agent_serialise.h (destinations that need
// libarrow) and body_compressor.h.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/measure/latency.h"
#include "channel/ring.h"
#include "frame/plan.h"
#include "mover/agent_serialise.h"
#include "mover/rate_ring.h"
#include "service/service.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::mover {

using service::Buffer;
using service::BufferCache;
using service::ChannelNumber;
using service::Client;
using service::Effects;
using service::Frame;
using service::FramePtr;

// `later`: the put is completed by a StoredEffect with the same token, in every case.
enum class Stored { now, later };

// The destination of frames (src/pool, src/sift).
class Store {
 public:
  struct Place {
    std::string pool, row_key, column_key;
    uid_t user;
    std::uint64_t keep;  // frames that the pool keeps; 0: all
    bool hidden;         // until the step has ended on all ranks
  };
  virtual ~Store() = default;
  // Returns the name under which frames are put, once for each stream: options of the pool's name are read here, not by
  // every put. Fails if this user may not put objects there, or the name is invalid.
  [[nodiscard]] virtual Result<std::string> admit(const std::string& pool, uid_t user, Effects& effects) = 0;
  // `place.pool` comes from admit().
  [[nodiscard]] virtual Result<Stored> put(const Place& place, FramePtr frame, std::uint64_t token, TimeNs now,
                                           Effects& effects) = 0;
  // For an update in place; Error::not_found names the keys.
  [[nodiscard]] virtual Result<FramePtr> find(const std::string& pool, const std::string& row_key,
                                              const std::string& column_key, uid_t user) = 0;
  // A rank has ended a step; when the last of `ranks` has, its frames become visible. Error::too_large: too many steps
  // wait for their ranks.
  [[nodiscard]] virtual Status end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank,
                                        std::uint32_t ranks, TimeNs now, Effects& effects) = 0;
  // The program of a rank has closed its stream to the pool, or has ended; it has opened one.
  virtual void rank_ended(const std::string& /*pool*/, std::uint32_t /*rank*/, const Client& /*client*/) {}
  virtual void rank_began(const std::string& /*pool*/, std::uint32_t /*rank*/) {}
  // What a put that is stored later waits for; empty if that is not known.
  [[nodiscard]] virtual std::string why_waits(std::uint64_t /*token*/) const { return {}; }
  // An admitted stream was closed. `pool` comes from admit().
  virtual void leave(const std::string& pool) = 0;
};

struct MoverOptions {
  std::uint64_t memory_bytes_max = 8ull << 30;  // of frames, promised and held
  std::uint64_t user_bytes_max = UINT64_MAX;    // the part of one user
  std::uint64_t window_bytes = 256ull << 20;    // of credit for an open stream, if there is room
  std::uint64_t inline_bytes_max = 256 * 1024;  // steps on more bytes than this are jobs
  std::uint32_t streams_max = 65536;            // over all channels
  std::uint32_t user_streams_max = 65536;       // over those of one user
  std::uint64_t prepared_bytes_max = 16 << 20;  // larger buffers are not prepared ahead of their use
  std::uint64_t waiting_bytes_max = 1 << 20;    // of one channel's requests that wait to be pulled
  // The same for those that wait for memory. It is larger because a channel at this bound is not read until memory is
  // freed, and its program may be the one that frees some.
  std::uint64_t lacking_bytes_max = 16 << 20;
  // Of all channels: beyond it each has a sixteenth of that. It is memory beside memory_bytes_max.
  std::uint64_t all_lacking_bytes_max = 256 << 20;
  TimeNs (*clock)() = nullptr;  // when work that is done at once ends; null: the time argument
};

struct MoverCounters {
  std::uint64_t sends = 0, moves = 0, failures = 0, bytes = 0, rows = 0, frames = 0;
  std::uint64_t streams_open = 0, operations = 0;
  std::uint64_t promised_bytes = 0;          // memory for batches that may come
  std::uint64_t claimed_bytes = 0;           // and for batches that have come and wait for earlier pulls
  std::uint64_t pull_ns = 0, finish_ns = 0;  // sums over operations
  // Frames of streams with compression: their number, their bytes before and after, and the time, which is part of
  // finish_ns.
  std::uint64_t packed_frames = 0, plain_bytes = 0, packed_bytes = 0, pack_ns = 0;
};

// Of requests that succeeded, with their tickets.
struct MoverLatencies {
  LatencyHistogram pull;    // from the first sight of a request to its bytes read, the wait for memory included
  LatencyHistogram store;   // from there to the object in its store
  LatencyHistogram credit;  // of streams that memory was not there for: from asking to getting it
};

class Mover final : public service::Service {
 public:
  Mover(const MoverOptions& options, std::shared_ptr<BufferCache> cache, Store& store);
  ~Mover() override;

  // Beyond `pull_ahead_bytes` under way (and one request), requests wait without a plan and a buffer, so that a buffer
  // released by one frame is reused while it is in the processor's cache. 0 for links whose reads complete at once.
  void on_channel_open(ChannelNumber channel, const Client& client, std::uint32_t streams_max,
                       std::uint64_t pull_ahead_bytes);
  // Ends all operations of the channel; its credit returns. Effects for other channels may follow.
  void on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects);
  // Requests open_stream, close_stream, send, move, step_end and need_credit.
  void on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void on_request(const service::Request& asked, TimeNs now, Effects& effects) override {
    on_request(asked.channel, asked.entry, now, effects);
  }
  void on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  // Finishes pulled frames whose arrays had to be released to the program first: call it after the program was
  // notified.
  void finish_pulled(TimeNs now, Effects& effects);
  [[nodiscard]] bool has_pulled() const noexcept { return !pulled_.empty(); }
  void on_job(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  // A deferred put has completed or failed.
  void on_stored(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  // The channel has so many pending requests that no more should be taken.
  [[nodiscard]] bool is_full(ChannelNumber channel) const noexcept override;
  // Reserves memory for objects of other members; otherwise two full agents with objects for each other deadlock. A
  // batch that is larger than all the rest may use it too.
  void keep_for_members(std::uint64_t bytes, TimeNs now, Effects& effects);
  // Reserved memory, and the part of it that is unused: only its purpose may use it.
  struct Aside {
    std::uint64_t bytes = 0, left = 0;
  };
  void set_aside(std::function<Aside()> aside) { aside_ = std::move(aside); }
  // Whether so many bytes are free, after taking promises back if needed; see memory_unused, memory_free and
  // memory_free_for_programs.
  [[nodiscard]] bool make_unused(std::uint64_t bytes);
  [[nodiscard]] bool make_free(std::uint64_t bytes);
  [[nodiscard]] bool make_free_for_programs(std::uint64_t bytes);
  // Starts a job that returns the cache's leaving buffers to the kernel, unless one is running.
  void drop_buffers(Effects& effects);

  // ---- Service
  void on_opened(const service::OpenedChannel& channel) override {
    on_channel_open(channel.number, channel.client, channel.streams_max, channel.pull_ahead_bytes);
  }
  void on_closed(ChannelNumber channel, bool /*usual*/, TimeNs now, Effects& effects) override {
    on_channel_closed(channel, now, effects);
  }
  void on_transfers_told(TimeNs now, Effects& effects) override { finish_pulled(now, effects); }
  bool on_round(TimeNs, Effects& effects) override {
    drop_buffers(effects);
    return false;
  }
  [[nodiscard]] bool waits_for_memory() const override { return true; }
  // Memory may have become free: serves streams that wait for it.
  void on_memory_freed(TimeNs now, Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const override { return std::min(waits_told_.look_at, pass_at_); }
  void on_time(TimeNs now, Effects& effects) override {
    tell_of_waits(now);
    if (now >= pass_at_) on_memory_freed(now, effects);
  }

  [[nodiscard]] const MoverCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const MoverLatencies& latencies() const noexcept { return latencies_; }
  [[nodiscard]] std::uint64_t memory_free() const;
  [[nodiscard]] std::uint64_t memory_unused() const noexcept;  // including reserved memory
  [[nodiscard]] std::uint64_t memory_free_for_programs() const;
  [[nodiscard]] std::uint64_t memory_reach_for_programs() const;  // free, or can be taken back from promises
  [[nodiscard]] std::uint64_t memory_max_for_programs() const;    // when everything that they may use is free
  // Memory that has to become free for the stream that has waited longest for it; 0: none waits.
  [[nodiscard]] std::uint64_t memory_lacking() const;
  [[nodiscard]] std::uint64_t memory_free_for(uid_t user) const;
  struct StreamStatus {
    std::string name, program, pool;
    wire::Destination destination;
    wire::Compression compression;
    std::uint64_t rows_max, sent, bytes, pulled, stored, credit_left;
    std::int64_t pid = 0;
    std::uint32_t ranks = 0, rank = 0;
    // The program has asked for so much credit, at that time, and has not got it: its sends wait, or are refused. Or it
    // has sent a batch then that waits for so much memory.
    std::uint64_t credit_lacking = 0;
    TimeNs lacking_since = never;
    std::optional<RecentRates> recent{};            // of those that moved most
    std::shared_ptr<const frame::Template> form{};  // null: plain bytes
  };
  static constexpr std::size_t recent_max = 256;  // streams whose rates are reported
  [[nodiscard]] std::vector<StreamStatus> streams(TimeNs now) const;
  [[nodiscard]] RecentRates recent(TimeNs now) const { return recent_.recent(now); }  // of all streams, closed ones too

 private:
  struct BufferSet;
  struct Packing;
  struct Stream;
  struct Operation;
  struct Channel;
  struct Account {  // of one user, as long as there are streams
    std::uint32_t streams_open = 0;
    std::uint64_t promised_bytes = 0, claimed_bytes = 0;  // as in the counters
    // Streams that memory is promised to, and those whose promises are gone lately. `next` is looked at next when
    // promises are taken back.
    std::vector<Stream*> promised_to;
    std::size_t next = 0;
  };
  // Which waits for credit the log has told of: one line names the longest, and the next one comes later.
  struct WaitsTold {
    static constexpr TimeNs silent_ns = second_ns;        // a longer wait is reported
    static constexpr TimeNs between_ns = 10 * second_ns;  // at least, from one line to the next
    TimeNs next_at = 0, look_at = never;
  };
  struct Claim {  // stream names are separate for each user
    uid_t user;
    std::string name;
    std::uint32_t rank;
    auto operator<=>(const Claim&) const = default;
  };

  void open_stream(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status prepare_stream(const wire::OpenStream& open, const Channel& channel, Stream& stream,
                                      Effects& effects);
  void close_stream(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void send(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void move(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void step_end(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void need_credit(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void why_waits(Channel& channel, const channel::Entry& request, Effects& effects);

  [[nodiscard]] Status take_set(Stream& stream, Operation& operation);
  [[nodiscard]] Status plan_request(Stream& stream, Operation& operation);
  [[nodiscard]] Status plan_send(const Stream& stream, Operation& operation);
  [[nodiscard]] Status plan_plain(const Stream& stream, Operation& operation);
  [[nodiscard]] Status plan_move(const Stream& stream, Operation& operation);
  [[nodiscard]] Status view_of(const Stream& stream);
  [[nodiscard]] Status pieces_of(Operation& operation, std::span<const wire::BufferRef> refs);
  [[nodiscard]] std::uint64_t scratch_bytes_for(const Operation& operation) const;
  [[nodiscard]] Result<bool> spend(Operation& operation);
  [[nodiscard]] Status take_buffer(const Stream& stream, Operation& operation, std::uint64_t bytes,
                                   std::uint64_t charge);
  Operation& begin(Stream& stream, std::uint64_t ticket, TimeNs now);
  void queue(Operation& operation, Status taken, Bytes request, TimeNs now, Effects& effects);
  void start(Operation& operation, TimeNs now, Effects& effects);
  void start_waiting(Channel& channel, TimeNs now, Effects& effects);
  void finish(Operation& operation, TimeNs now, Effects& effects);
  [[nodiscard]] static Status finish_bytes(Operation& operation, BufferCache& cache);
  [[nodiscard]] static Status pack(Operation& operation, BufferCache& cache);
  void finished(Operation& operation, Status status, TimeNs now, Effects& effects);
  void fail_operation(Operation& operation, Failure failure, Effects& effects);
  void settle(Stream& stream, TimeNs now, Effects& effects);
  void recycle(Operation* operation);
  [[nodiscard]] std::uint64_t set_aside_left() const { return aside_ ? aside_().left : 0; }
  [[nodiscard]] std::uint64_t memory_without(std::uint64_t promised) const noexcept;
  [[nodiscard]] std::uint64_t left_of(uid_t user, std::uint64_t promised, std::uint64_t all) const;
  [[nodiscard]] std::uint64_t reach_of(const Stream& stream, std::uint64_t reserved) const;
  [[nodiscard]] bool make_free(std::uint64_t bytes, std::uint64_t reserved);
  void take_from_all(std::uint64_t unused, const Account* except);
  std::uint64_t take_from(Account& account, std::uint64_t bytes, std::uint64_t wished, const Stream* except);
  static void unlist(Stream& stream);
  void promise_more(Stream& stream, std::uint64_t bytes);
  void promise_less(Stream& stream, std::uint64_t bytes) noexcept;
  void claim(Operation& operation) noexcept;
  void end_claim(Operation& operation) noexcept;
  [[nodiscard]] static bool is_served(const Stream& stream) noexcept;
  [[nodiscard]] static std::uint64_t required_of(const Stream& stream) noexcept;
  [[nodiscard]] bool serve(Stream& stream, Effects& effects);
  [[nodiscard]] std::uint64_t lacking_of(const Stream& stream) const;
  [[nodiscard]] bool waits_for_all(const Stream& stream) const;
  [[nodiscard]] bool is_behind(const Stream& stream, TimeNs now) const;
  void serve_queue(TimeNs now, Effects& effects);
  void serve_or_queue(Stream& stream, TimeNs now, Effects& effects);
  void leave_queue(Stream& stream, TimeNs now);
  void extend(Stream& stream, Effects& effects);
  static void set_credit(Stream& stream, Effects& effects);
  void tell_of_waits(TimeNs now);
  [[nodiscard]] std::uint64_t largest_frame_bytes(const Stream& stream);
  void prepare_buffer(Stream& stream, std::uint64_t bytes, Effects& effects);
  void release(Channel& channel, std::uint32_t stream, TimeNs now);
  [[nodiscard]] Stream* find_stream(Channel& channel, std::uint32_t stream) noexcept;
  Stream* stream_of(Channel& channel, std::uint32_t stream, std::uint64_t ticket, Effects& effects);

  MoverOptions options_;
  std::shared_ptr<BufferCache> cache_;
  Store& store_;
  std::unordered_map<ChannelNumber, std::unique_ptr<Channel>> channels_;
  std::map<Claim, ChannelNumber> names_;
  std::map<uid_t, Account> accounts_;
  [[nodiscard]] Operation* find_operation(std::uint64_t token) noexcept;
  // Running and spare ones. An operation's number consists of its index here and of the index's use count.
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<std::uint32_t> spare_;
  std::uint64_t waiting_bytes_ = 0, lacking_bytes_ = 0;  // of all channels
  std::uint64_t kept_bytes_ = 0;                         // for other members
  std::function<Aside()> aside_;
  std::vector<std::uint64_t> pulled_;  // tokens of operations to finish
  std::uint64_t next_preparation_ = 0;
  bool dropping_ = false;
  std::unordered_map<std::uint64_t, std::pair<ChannelNumber, std::uint32_t>> preparing_;  // jobs that make buffers
  std::deque<Stream*> hungry_;     // waiting for memory, the longest first
  bool is_queue_blocked_ = false;  // one of them lacks memory that no user's share withholds: others wait behind it
  TimeNs pass_at_ = never;         // when they pass it
  bool is_serving_ = false, freed_again_ = false;  // on_memory_freed
  WaitsTold waits_told_;
  RateRing recent_;
  wire::Send send_;  // the request being planned; these four are reused
  wire::Move move_;
  frame::BatchView view_;
  std::vector<frame::PlainColumn> plain_;
  MoverCounters counters_;
  MoverLatencies latencies_;
};

}  // namespace offpath::mover
