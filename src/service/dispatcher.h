// Channels and services joined: takes what channels tell, asks the services, carries out their effects.
// Knows no socket, no thread and no clock, so that tests/sim runs hundreds of them in one process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "channel/agent_end.h"
#include "exchange/exchange_service.h"
#include "group/group.h"
#include "mover/mover.h"
#include "plugin/call.h"
#include "pool/compute/compute_service.h"
#include "pool/members/pools.h"
#include "pool/query/query_service.h"
#include "service/own_channels.h"
#include "sift/sift_service.h"
#include "sift/tracks/track_queries.h"
#include "task/task_service.h"
#include "telemetry/gauges.h"
#include "wire/messages/message_kinds.h"

namespace offpath::agent {

struct DispatcherOptions {
  mover::MoverOptions mover;
  mover::BufferCacheOptions buffers;
  pool::PoolsOptions pools;
  pool::QueryService::Limits queries;
  sift::SiftServiceOptions sifts;
  pool::ComputeService::Limits computes;
  task::TaskService::Limits tasks;
  channel::AgentEndOptions channels;
  TimeNs gauges_interval_ns = second_ns;   // from one look at gauges of programs to the next
  std::int64_t (*real_clock)() = nullptr;  // CLOCK_REALTIME; null: the time that is given, as in a simulation
  TimeNs (*suspended)() = nullptr;         // how long the machine has slept; null: it never does, as in a simulation
  std::vector<exchange::ExchangeSettings> exchanges;
  std::uint64_t nonce = 0;              // random for each process
  bool (*memory_is_there)() = nullptr;  // false: channels wait with new requests; null: always
};

// Runs work off the loop and brings its result back by Dispatcher::on_job, on the loop's thread, never from within
// the call itself.
using StartJob = std::function<void(std::uint64_t token, std::function<Status()> run)>;

// Calls functions of plug-ins, likewise; an error that is known at once is the call's result.
struct CallFunctions {
  using Done = std::function<void(Result<plugin::Outputs> outcome, TimeNs now)>;
  std::function<Result<plugin::CallNumber>(plugin::Call call, TimeNs now, Done done)> call;
  std::function<void(plugin::CallNumber number, TimeNs now)> cancel;
  // Of an operation that came by Dispatcher::on_operation. May be empty where none comes.
  std::function<void(std::uint64_t worker, plugin::CallNumber call, plugin::OperationNumber operation,
                     const plugin::OperationAnswer& answer, TimeNs now)>
      answer{};
};

// Takes requests about programs' TCP connections, likewise.
struct TcpRequests {
  std::function<void(channel::AgentEnd& channel, const channel::Entry& request, uid_t user, TimeNs now)> on_request;
  std::function<void(std::uint64_t channel, bool ended, TimeNs now)> on_channel_closed;
};

class Dispatcher final : public channel::AgentEvents {
 public:
  Dispatcher(const DispatcherOptions& options, StartJob start_job);
  ~Dispatcher() override;

  // Returns the channel's number. The channel lives here until it is closed.
  std::uint64_t add_channel(std::unique_ptr<link::AgentLink> link, const wire::ChannelLayout& layout,
                            const mover::Client& client, TimeNs now);
  void close_channel(std::uint64_t number, Failure why);

  // Requests of other members of the agent's group go there; it outlives this. `owner` is the user whose agents, with
  // root's, are taken for members.
  void serve_group(group::Group& group, uid_t owner, TimeNs now);
  // As if a program of this user had named it first.
  [[nodiscard]] Status make_pool(const std::string& name, uid_t user);

  // Objects that were on disk before: when the group is served, before anybody connects.
  [[nodiscard]] Status recover(TimeNs now);
  // At the end, when no job runs any more: what pools with spill have in memory alone goes to disk.
  void flush() { pools_.flush(); }

  // Without, every computation fails.
  void serve_plugins(CallFunctions functions) { functions_ = std::move(functions); }

  // What functions ask in the course of their calls, not from within `call` or `cancel`.
  void on_operation(plugin::Operation operation, TimeNs now);
  void on_message_taken(plugin::CallNumber call, plugin::OperationNumber operation) {
    tasks_.messages().on_taken(call, operation);
  }
  void on_call_ended(plugin::CallNumber call, TimeNs now);

  // Without, every program is told that there are none.
  void serve_tcp(TcpRequests requests) { tcp_ = std::move(requests); }

  // One round over all channels. True if anything was done.
  bool poll(TimeNs now);
  void on_job(std::uint64_t token, Status status, TimeNs now);
  // Puts channels to sleep that have been idle long enough. True if all sleep: wait on their descriptors.
  [[nodiscard]] bool fall_asleep(TimeNs now);
  // When poll has to be called although nothing happened.
  [[nodiscard]] TimeNs next_deadline() const;

  // Called after a channel was added, and before its descriptors are closed: a loop watches them.
  std::function<void(const channel::AgentEnd&)> on_added, on_closing_channel;

  // For parts of this agent, on the loop's thread and not from within an event.
  // The pool is made if it is not there. `done` may be called within the call, or later when all owners of the row have
  // the object.
  void put(mover::Store::Place place, mover::FramePtr frame, TimeNs now, std::function<void(Status)> done);
  // A channel of its own for one of them, which asks as this user's programs do: list, drop, query, next of a query,
  // release.
  [[nodiscard]] std::uint64_t open_own(uid_t user);
  void close_own(std::uint64_t channel, TimeNs now);
  // `replied` may be called within the call; never after close_own. `body` is what the request names as bytes to be
  // pulled.
  void ask_own(std::uint64_t channel, wire::EntryKind kind, Bytes payload, std::vector<std::byte> body, TimeNs now,
               OwnChannels::Replied replied);
  [[nodiscard]] const std::shared_ptr<mover::BufferCache>& shared_buffers() const noexcept { return buffers_; }

  struct ChannelStatus {
    std::uint64_t number;
    mover::Client client;
    link::LinkTraits traits;
    channel::AgentEndCounters counters;
    bool asleep;
  };
  [[nodiscard]] std::vector<ChannelStatus> channels() const;
  [[nodiscard]] std::size_t channels_of(uid_t user) const noexcept;
  [[nodiscard]] const mover::Mover& mover() const noexcept { return mover_; }
  [[nodiscard]] const pool::Pools& pools() const noexcept { return pools_; }
  [[nodiscard]] const sift::SiftService& sifts() const noexcept { return sifts_; }
  [[nodiscard]] const pool::QueryService& queries() const noexcept { return queries_; }
  [[nodiscard]] const pool::ComputeService& computes() const noexcept { return computes_; }
  [[nodiscard]] const task::TaskService& tasks() const noexcept { return tasks_; }
  [[nodiscard]] const exchange::Gauges& gauges() const noexcept { return gauges_; }
  [[nodiscard]] const exchange::ExchangeService& exchanges() const noexcept { return exchanges_; }
  [[nodiscard]] exchange::ExchangeService& exchanges() noexcept { return exchanges_; }
  [[nodiscard]] const mover::BufferCache& buffers() const noexcept { return *buffers_; }

  // ---- AgentEvents
  void on_request(channel::AgentEnd& channel, const channel::Entry& request, TimeNs now) override;
  void on_transfer(channel::AgentEnd& channel, std::uint64_t token, Status status, TimeNs now) override;
  void on_offer(channel::AgentEnd& channel, std::uint64_t number, Result<Fd> fd, TimeNs now) override;
  void on_closing(channel::AgentEnd& channel) override;
  void on_closed(channel::AgentEnd& channel, const Failure& why, TimeNs now) override;

 private:
  // Where the mover's frames go, by the kind of pool.
  class Stores final : public mover::Store {
   public:
    Stores(pool::Pools& pools, sift::SiftService& sifts) : pools_(pools), sifts_(sifts) {}
    Result<std::string> admit(const std::string& pool, uid_t user, mover::Effects& effects) override {
      return sift::SiftService::is_own(pool) ? sifts_.admit(pool, user, effects) : pools_.admit(pool, user, effects);
    }
    Result<mover::Stored> put(const Place& place, mover::FramePtr frame, std::uint64_t token, TimeNs now,
                              mover::Effects& effects) override {
      if (sift::SiftService::is_own(place.pool)) return sifts_.put(place, std::move(frame), token, now, effects);
      return pools_.put(place, std::move(frame), token, now, effects);
    }
    Result<mover::FramePtr> find(const std::string& pool, const std::string& row_key, const std::string& column_key,
                                 uid_t user) override {
      return pools_.find(pool, row_key, column_key, user);
    }
    // A sift pool takes each frame as it comes: there is nothing to hide until all ranks have ended a step.
    Status end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank, std::uint32_t ranks,
                    TimeNs now, mover::Effects& effects) override {
      if (sift::SiftService::is_own(pool)) return {};
      return pools_.end_step(pool, row_key, rank, ranks, now, effects);
    }
    void leave(const std::string& pool) override {
      if (!sift::SiftService::is_own(pool)) pools_.leave(pool);
    }

   private:
    pool::Pools& pools_;
    sift::SiftService& sifts_;
  };
  struct Member {
    std::unique_ptr<channel::AgentEnd> end;
    mover::Client client;
  };
  void carry_out(TimeNs now);
  [[nodiscard]] bool carry_out_own(mover::Effect& effect, TimeNs now);
  void carry_out(mover::Effect& effect, TimeNs now);
  [[nodiscard]] bool is_member(const channel::AgentEnd& channel) const;
  void ask_group(channel::AgentEnd& channel, const channel::Entry& request);
  void on_stored(std::uint64_t token, Status status, TimeNs now);
  void ask_member(mover::AskEffect& ask);
  void call_function(mover::CallEffect& effect, TimeNs now);
  void on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now);
  void on_change(const group::Change& change, TimeNs now);
  void carry_out(const channel::Effects& effects, mover::Service service);
  void carry_out(exchange::ServiceEffects& effects);
  void tell_exchanges(TimeNs now);
  [[nodiscard]] channel::AgentEnd* find(std::uint64_t number) noexcept;
  void remove_closed();
  bool serve(Member& member, TimeNs now);
  void look_for_memory();
  void abandon(mover::Effect& effect, TimeNs now);
  void pass_job(std::uint64_t token, Status status, TimeNs now);
  [[nodiscard]] std::uint64_t memory_wanted() const;

  DispatcherOptions options_;
  StartJob start_job_;
  std::shared_ptr<mover::BufferCache> buffers_;
  pool::Pools pools_;
  sift::SiftService sifts_;
  sift::TrackQueries track_queries_{pools_, sifts_};
  pool::QueryService queries_;
  pool::ComputeService computes_;
  task::TaskService tasks_;
  exchange::ExchangeService exchanges_;
  Stores stores_{pools_, sifts_};
  mover::Mover mover_;
  exchange::Gauges gauges_;
  group::Group* group_ = nullptr;
  uid_t owner_ = 0;
  std::map<std::uint64_t, Member> members_;
  OwnChannels own_;
  std::vector<std::uint64_t> closed_;
  std::map<std::uint64_t, mover::FramePtr> pushing_;  // sources of pushes under way, by token
  std::uint64_t next_channel_ = 1;
  mover::Effects effects_;
  std::size_t carried_out_ = 0;  // of effects_
  bool memory_is_there_ = true;
  std::map<std::uint64_t, std::function<void(Status)>> putting_;  // by token
  std::uint64_t next_put_ = 1;
  CallFunctions functions_;
  TcpRequests tcp_;
  std::map<std::uint64_t, plugin::CallNumber> calling_;  // by token
  std::uint64_t free_bytes_before_ = 0;                  // at the last poll
};

}  // namespace offpath::agent
