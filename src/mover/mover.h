// The move service: requests -> plans -> reads -> frames -> a store.
//
// One state machine for all channels of a loop. A stream's operations begin and end in the order of their tickets:
// `pulled` and `stored` never pass an operation that is under way. A failed operation is reported by a reply and then
// passed.
//
// Read this first in src/mover, then operation.h (the state of a request), planner.h (the reads of a request), credit.h
// (credit of streams), store.h (destinations of frames) and agent_serialise.h (destinations that need libarrow).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "mover/credit.h"
#include "mover/operation.h"
#include "mover/options.h"
#include "mover/planner.h"
#include "mover/rate_ring.h"
#include "mover/request_queues.h"
#include "mover/store.h"
#include "service/service.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

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
  // Requests open_stream, grow_stream, close_stream, send, move, step_end, need_credit and why_waits.
  void on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void on_request(const service::Request& asked, TimeNs now, Effects& effects) override {
    on_request(asked.channel, asked.entry, now, effects);
  }
  void on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  // Finishes pulled frames whose arrays had to be released to the program first: call it after the program was
  // notified.
  void finish_pulled(TimeNs now, Effects& effects);
  void on_job(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  // A deferred put has completed or failed.
  void on_stored(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  // The channel has so many pending requests that no more should be taken.
  [[nodiscard]] bool is_full(ChannelNumber channel) const noexcept override;
  // As Credit's, and serves those that wait if less is kept.
  void keep_for_members(std::uint64_t bytes, TimeNs now, Effects& effects);
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
  [[nodiscard]] TimeNs next_deadline() const override { return credit_.next_deadline(); }
  void on_time(TimeNs now, Effects& effects) override {
    credit_.tell_of_waits(now);
    if (credit_.is_time_to_pass(now)) on_memory_freed(now, effects);
  }

  [[nodiscard]] const MoverCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const MoverLatencies& latencies() const noexcept { return latencies_; }
  [[nodiscard]] Credit& credit() noexcept { return credit_; }
  [[nodiscard]] const Credit& credit() const noexcept { return credit_; }
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
  struct Claim {  // stream names are separate for each user
    uid_t user;
    std::string name;
    std::uint32_t rank;
    auto operator<=>(const Claim&) const = default;
  };

  // A request that cannot be served is answered with the failure.
  [[nodiscard]] Status serve(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status open_stream(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status prepare_stream(const wire::OpenStream& open, const Channel& channel, Stream& stream,
                                      Effects& effects);
  [[nodiscard]] Status grow_stream(Channel& channel, const channel::Entry& request, Effects& effects);
  [[nodiscard]] Status close_stream(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status send(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status move(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status step_end(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status need_credit(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status why_waits(Channel& channel, const channel::Entry& request, Effects& effects);

  Operation& begin(Stream& stream, std::uint64_t ticket, TimeNs now);
  void queue(Operation& operation, Status taken, Bytes request, TimeNs now, Effects& effects);
  void start(Operation& operation, TimeNs now, Effects& effects);
  void start_waiting(Channel& channel, TimeNs now, Effects& effects);
  void finish(Operation& operation, TimeNs now, Effects& effects);
  void finished(Operation& operation, Status status, TimeNs now, Effects& effects);
  void fail_operation(Operation& operation, Failure failure, Effects& effects);
  void settle(Stream& stream, TimeNs now, Effects& effects);
  void recycle(Operation* operation);
  void prepare_buffer(Stream& stream, std::uint64_t bytes, Effects& effects);
  void release(Channel& channel, std::uint32_t stream, TimeNs now);
  [[nodiscard]] Stream* find_stream(Channel& channel, std::uint32_t stream) noexcept;
  Stream* stream_of(Channel& channel, std::uint32_t stream, std::uint64_t ticket, Effects& effects);

  MoverOptions options_;
  std::shared_ptr<BufferCache> cache_;
  Store& store_;
  std::unordered_map<ChannelNumber, std::unique_ptr<Channel>> channels_;
  std::map<Claim, ChannelNumber> names_;
  [[nodiscard]] Operation* find_operation(std::uint64_t token) noexcept;
  // Running and spare ones. An operation's number consists of its index here and of the index's use count.
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<std::uint32_t> spare_;
  std::vector<std::uint64_t> pulled_;  // tokens of operations to finish
  std::uint64_t next_preparation_ = 0;
  bool dropping_ = false;
  std::unordered_map<std::uint64_t, std::pair<ChannelNumber, std::uint32_t>> preparing_;  // jobs that make buffers
  bool is_serving_ = false, freed_again_ = false;                                         // on_memory_freed
  RateRing recent_;
  MoverCounters counters_;
  MoverLatencies latencies_;
  RequestQueues queues_;
  Credit credit_;
  Planner planner_;
};

}  // namespace offpath::mover
