// The services of an agent, and the only place that knows all of them. They are given to the dispatcher that serves
// them. Read this first in src/agent/services, then resource_sections.h (their sections of the directory);
// service/dispatcher.h before both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/services/dispatcher_options.h"
#include "exchange/exchange_service.h"
#include "group/group.h"
#include "group/resources.h"
#include "mover/mover.h"
#include "pool/compute/compute_service.h"
#include "pool/members/pools.h"
#include "pool/query/query_service.h"
#include "service/dispatcher.h"
#include "sift/sift_service.h"
#include "sift/tracks/track_queries.h"
#include "task/task_service.h"
#include "telemetry/gauges.h"

namespace offpath::agent {

using service::CallFunctions;
using service::StartJob;

// Serves requests about programs' TCP connections. Answers go to the channel itself.
struct TcpRequests {
  std::function<void(channel::AgentEnd& channel, const channel::Entry& request, uid_t user, TimeNs now)> on_request;
  std::function<void(std::uint64_t channel, bool ended, TimeNs now)> on_channel_closed;
  std::function<void(std::uint64_t token, Status status, TimeNs now)> on_transfer;
};

class Dispatcher final : public service::Dispatcher {
 public:
  Dispatcher(const DispatcherOptions& options, StartJob start_job);
  ~Dispatcher() override;

  // Routes requests of other members to `group`, which outlives this. Agents of user `owner` and of root are accepted
  // as members.
  void serve_group(group::Group& group, uid_t owner, TimeNs now);
  [[nodiscard]] const group::Group* group() const noexcept { return group_.group; }
  // Another folder of the directory, besides those of the services here.
  [[nodiscard]] const group::Resources& resources() const noexcept { return resources_; }
  void add_resources(group::ResourceSection section) { resources_.add(std::move(section)); }
  // Makes a pool as if a program of this user had named it first.
  [[nodiscard]] Status make_pool(const std::string& name, uid_t user);

  // Loads the objects on disk. Called when the group is served, before the first program connects.
  [[nodiscard]] Status recover(TimeNs now);
  // At the end, after the last job: writes objects of pools with spill that are only in memory to disk.
  void flush() { pools_.flush(); }

  // Operations that functions request during their calls. Not called from within `call` or `cancel`.
  void on_operation(plugin::Operation operation, TimeNs now);
  void on_message_taken(plugin::CallNumber call, plugin::OperationNumber operation) {
    tasks_.messages().on_taken(call, operation);
  }
  void on_call_ended(plugin::CallNumber call, TimeNs now);

  // Without this call, requests for TCP connections fail with "no device".
  void serve_tcp(TcpRequests requests) { tcp_.requests = std::move(requests); }

  // Puts an object for a part of this agent: on the loop's thread, not from within an event. Makes the pool if it does
  // not exist. `done` is called within the call, or later when all owners of the row have the object.
  void put(mover::Store::Place place, service::FramePtr frame, TimeNs now, std::function<void(Status)> done);
  [[nodiscard]] const std::shared_ptr<service::BufferCache>& shared_buffers() const noexcept { return buffers_; }

  [[nodiscard]] const mover::Mover& mover() const noexcept { return mover_; }
  [[nodiscard]] const pool::Pools& pools() const noexcept { return pools_; }
  [[nodiscard]] const sift::SiftService& sifts() const noexcept { return sifts_; }
  [[nodiscard]] const pool::QueryService& queries() const noexcept { return queries_; }
  [[nodiscard]] const pool::ComputeService& computes() const noexcept { return computes_; }
  [[nodiscard]] const task::TaskService& tasks() const noexcept { return tasks_; }
  [[nodiscard]] const exchange::Gauges& gauges() const noexcept { return gauges_; }
  [[nodiscard]] const exchange::ExchangeService& exchanges() const noexcept { return exchanges_; }
  [[nodiscard]] exchange::ExchangeService& exchanges() noexcept { return exchanges_; }
  [[nodiscard]] const service::BufferCache& buffers() const noexcept { return *buffers_; }

 private:
  // Passes the mover's frames to the service of the pool's kind.
  class Stores final : public mover::Store {
   public:
    Stores(pool::Pools& pools, sift::SiftService& sifts) : pools_(pools), sifts_(sifts) {}
    Result<std::string> admit(const std::string& pool, uid_t user, service::Effects& effects) override {
      return sift::SiftService::is_own(pool) ? sifts_.admit(pool, user, effects) : pools_.admit(pool, user, effects);
    }
    Result<mover::Stored> put(const Place& place, service::FramePtr frame, std::uint64_t token, TimeNs now,
                              service::Effects& effects) override {
      if (sift::SiftService::is_own(place.pool)) return sifts_.put(place, std::move(frame), token, now, effects);
      return pools_.put(place, std::move(frame), token, now, effects);
    }
    Result<service::FramePtr> find(const std::string& pool, const std::string& row_key, const std::string& column_key,
                                   uid_t user) override {
      return pools_.find(pool, row_key, column_key, user);
    }
    // A sift pool takes each frame as it arrives: it hides nothing until all ranks have ended a step.
    Status end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank, std::uint32_t ranks,
                    TimeNs now, service::Effects& effects) override {
      if (sift::SiftService::is_own(pool)) return {};
      return pools_.end_step(pool, row_key, rank, ranks, now, effects);
    }
    void rank_ended(const std::string& pool, std::uint32_t rank, const service::Client& client) override {
      if (!sift::SiftService::is_own(pool)) pools_.rank_ended(pool, rank, client);
    }
    void rank_began(const std::string& pool, std::uint32_t rank) override {
      if (!sift::SiftService::is_own(pool)) pools_.rank_began(pool, rank);
    }
    [[nodiscard]] std::string why_waits(std::uint64_t token) const override { return pools_.why_waits(token); }
    void leave(const std::string& pool) override {
      if (!sift::SiftService::is_own(pool)) pools_.leave(pool);
    }

   private:
    pool::Pools& pools_;
    sift::SiftService& sifts_;
  };
  // Tables of members, which the group reads. Served after serve_group.
  struct GroupRequests final : service::Service {
    group::Group* group = nullptr;

    void on_closed(service::ChannelNumber channel, bool usual, TimeNs now, service::Effects& effects) override;
    void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override;
    void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  };
  struct TcpPrograms final : service::Service {
    explicit TcpPrograms(Dispatcher& its_dispatcher) : dispatcher(its_dispatcher) {}
    Dispatcher& dispatcher;
    TcpRequests requests;

    void on_closed(service::ChannelNumber channel, bool usual, TimeNs now, service::Effects& effects) override;
    void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override;
    void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  };
  // Objects that parts of this agent put.
  struct OwnPuts final : service::Service {
    std::map<std::uint64_t, std::function<void(Status)>> putting;  // by token
    std::uint64_t next = 1;

    void on_stored(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  };
  void ask_group(service::AskEffect& ask);
  void on_change(const group::Change& change, TimeNs now);
  void tell_exchanges(TimeNs now);
  [[nodiscard]] std::uint64_t memory_wanted() const;

  DispatcherOptions options_;
  std::shared_ptr<service::BufferCache> buffers_;
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
  GroupRequests group_;
  group::Resources resources_;
  TcpPrograms tcp_{*this};
  OwnPuts own_puts_;
};

}  // namespace offpath::agent
