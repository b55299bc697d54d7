// Functions of plug-ins over objects, called at the member that has them: the objects' own memory is the function's
// input, its outputs become an answer or objects. Read computation.h and plugin/call.h first. A state machine like the
// other services; it knows no processes.
//
//   begin ---> waiting for objects ---> calling ---> copying (a job, if they are large) ---> answer: the one output
//                   | deadline             | failed      | no Arrow, no room          `---> storing ---> answer: count
//                   v                      v             v                                    | put failed
//                 failure, with the member named where a function had been called            v
//
// An output is a memfd of the worker's. It is copied once, into a buffer of the cache, because pools need the cache's
// seals, alignment and accounting.
//
// Read this first in src/pool/compute, then triggers.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "plugin/call.h"
#include "pool/compute/triggers.h"
#include "pool/members/pools.h"
#include "pool/rows/computation.h"
#include "service/service.h"

namespace offpath::pool {

struct ComputeCounters {
  std::uint64_t asked = 0, failed = 0, calls = 0;  // of programs and members; `calls` includes those of triggers
  std::uint64_t inputs = 0, input_bytes = 0, outputs = 0, output_bytes = 0;
  std::uint64_t waiting = 0, calling = 0;
};

class ComputeService final : public Computes, public service::Service {
 public:
  using Limits = ComputeLimits;
  // `room`: whether so many bytes of memory may be taken.
  ComputeService(Limits limits, std::shared_ptr<service::BufferCache> cache, Pools& pools,
                 std::function<bool(std::uint64_t bytes)> room);
  ~ComputeService() override;

  void begin(FrameTable::Get get, ComputationPtr computation, TimeNs now, service::Effects& effects) override;
  void on_shown(const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame, bool first) override;
  void cancel(service::ChannelNumber channel, std::uint64_t delivery, service::Effects& effects) override;
  void cancel_request(service::ChannelNumber channel, std::uint64_t ticket, service::Effects& effects) override;
  [[nodiscard]] std::vector<Waiting> take_waiting(
      const std::function<bool(const FrameTable::Get& get)>& chosen) override;

  void on_channel_closed(service::ChannelNumber channel, service::Effects& effects);
  void on_closed(service::ChannelNumber channel, bool /*usual*/, TimeNs, service::Effects& effects) override {
    on_channel_closed(channel, effects);
  }
  void on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, service::Effects& effects) override;
  void on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_stored(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override {
    return shown_.empty() ? std::min(times_.first(), triggers_.next_deadline()) : 0;
  }

  [[nodiscard]] const ComputeCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] ListedGets waiting(TimeNs now) const;
  [[nodiscard]] const std::vector<Trigger>& triggers() const noexcept { return triggers_.all(); }

 private:
  struct Work;
  struct Copies;

  [[nodiscard]] Status may_wait(const Work& work) const;
  void begin_waiting(Work& work);
  void end_waiting(Work& work);
  void try_inputs(Work& work, TimeNs now, service::Effects& effects);
  void call(Work& work, std::vector<QuerySource> inputs, service::Effects& effects);
  void read_inputs(Work& work, std::vector<QuerySource> inputs, service::Effects& effects);
  void copy_inputs(Work& work, std::vector<QuerySource> inputs, service::Effects& effects);
  [[nodiscard]] Status check_outputs(const Work& work, const plugin::Outputs& outputs);
  void give(Work& work, TimeNs now, service::Effects& effects);
  void fail_work(Work& work, Failure failure, TimeNs now, service::Effects& effects);
  void fail_call(Work& work, Failure failure, TimeNs now, service::Effects& effects);
  [[nodiscard]] std::unique_ptr<Work> take(std::uint64_t number);
  void cancel_named(service::ChannelNumber channel, bool of_member, std::uint64_t name, service::Effects& effects);
  void forget(std::uint64_t number, service::Effects& effects);
  void end_work(Work& work, Status status, TimeNs now, service::Effects& effects);
  void run_triggers(TimeNs now, service::Effects& effects);
  [[nodiscard]] Work* find(std::uint64_t token);

  Limits limits_;
  std::shared_ptr<service::BufferCache> cache_;
  Pools& pools_;
  std::function<bool(std::uint64_t)> room_;
  std::map<std::uint64_t, std::unique_ptr<Work>> works_;  // by number, in the order of asking
  std::set<std::tuple<service::ChannelNumber, bool, std::uint64_t, std::uint64_t>>
      by_name_;  // of requests: their works
  // Waiting works: by row, by deadline, and those whose row has a new object.
  std::set<std::tuple<std::string, std::string, std::uint64_t>> by_row_;
  DueTimes<std::uint64_t> times_;
  std::set<std::uint64_t> shown_;
  std::map<uid_t, std::size_t> waiting_of_users_;
  Triggers triggers_;
  std::uint64_t next_number_ = 1;
  ComputeCounters counters_;
};

}  // namespace offpath::pool
