// The state machine of workers, with processes played by the test, in virtual time.
#pragma once

#include "plugin/workers.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace offpath::plugin {

inline PluginOptions some_options(const std::string& name = "sums") {
  PluginOptions options;
  options.name = name;
  options.path = "/opt/" + name + ".so";
  options.deadline_ns = second_ns;
  options.start_deadline_ns = 2 * second_ns;
  options.waiting_max = 3;
  return options;
}

// Every effect in order, and the results of calls.
class Play {
 public:
  explicit Play(std::vector<PluginOptions> plugins) : workers(std::move(plugins)) {}

  Result<CallNumber> call(const std::string& function = "sum", TimeNs deadline_ns = never,
                          const std::string& plugin = "sums") {
    Call call;
    call.plugin = plugin;
    call.function = function;
    call.deadline_ns = deadline_ns;
    auto number = workers.call(std::move(call), now, effects);
    take();
    return number;
  }
  Result<CallNumber> call_of_lane(unsigned lane, unsigned lanes, std::shared_ptr<const std::string> team = nullptr) {
    Call call;
    call.plugin = "sums";
    call.function = "sum";
    call.lane = lane;
    call.lanes = lanes;
    call.team = std::move(team);
    call.report = report;
    auto number = workers.call(std::move(call), now, effects);
    take();
    return number;
  }
  void ready(WorkerNumber worker, std::vector<FunctionInfo> functions = {{"sum", ""}, {"mean", ""}}) {
    event(worker, Ready{protocol_version, "sums", std::move(functions)});
  }
  void event(WorkerNumber worker, WorkerEvent event) {
    workers.on_event(worker, std::move(event), now, effects);
    take();
  }
  void finished(WorkerNumber worker, CallNumber call, std::int32_t status = 0, const std::string& error = "") {
    event(worker, Finished{call, status, error, {}});
  }
  void exits(WorkerNumber worker, Exit exit) {
    workers.on_exit(worker, exit, now, effects);
    take();
  }
  void start_fails(WorkerNumber worker, const Failure& failure) {
    workers.on_start_failed(worker, failure, now, effects);
    take();
  }
  void refused(WorkerNumber worker, Failure failure) {
    workers.on_refused(worker, std::move(failure), now, effects);
    take();
  }
  void garbage(WorkerNumber worker, Error code = Error::protocol) {
    workers.on_garbage(worker, {code, "nonsense"}, now, effects);
    take();
  }
  void cancel(CallNumber call) {
    EXPECT_TRUE(workers.cancel(call, now, effects));
    take();
  }
  void cancel_nothing() { take(); }  // drops the effects of the test's own calls
  void wait(TimeNs duration_ns) {
    const TimeNs end = now + duration_ns;
    while (workers.next_deadline() <= end) {
      now = std::max(now, workers.next_deadline());
      workers.on_time(now, effects);
      take();
    }
    now = end;
  }
  [[nodiscard]] std::string error_of(CallNumber call) const {
    const auto found = replies.find(call);
    if (found == replies.end()) return "no reply";
    return found->second ? ""
                         : std::string(error_name(found->second.error().code)) + ": " + found->second.error().message;
  }
  [[nodiscard]] PluginCounters counters() const { return workers.status()[0].counters; }

  Workers workers;
  Effects effects;
  TimeNs now = 1000 * second_ns;
  std::vector<WorkerNumber> started, killed;
  std::vector<std::pair<WorkerNumber, CallNumber>> sent, cancelled;
  std::map<CallNumber, Outcome> replies;
  std::vector<Operation> operations;
  std::vector<TakenEffect> taken;
  std::vector<AnswerEffect> answers;
  std::shared_ptr<CallReport> report = std::make_shared<CallReport>();

 private:
  void take() {
    for (Effect& effect : effects) {
      if (auto* ask = std::get_if<AskEffect>(&effect)) operations.push_back(std::move(ask->operation));
      if (auto* read = std::get_if<TakenEffect>(&effect)) taken.push_back(*read);
      if (auto* answer = std::get_if<AnswerEffect>(&effect)) answers.push_back(std::move(*answer));
      if (auto* start = std::get_if<StartEffect>(&effect)) started.push_back(start->worker);
      if (auto* send = std::get_if<SendEffect>(&effect)) sent.emplace_back(send->worker, send->number);
      if (auto* stop = std::get_if<CancelEffect>(&effect)) cancelled.emplace_back(stop->worker, stop->number);
      if (auto* kill = std::get_if<KillEffect>(&effect)) killed.push_back(kill->worker);
      if (auto* reply = std::get_if<ReplyEffect>(&effect)) {
        const bool first = replies.emplace(reply->number, std::move(reply->outcome)).second;
        EXPECT_TRUE(first) << "a second reply to call " << reply->number;
      }
    }
    effects.clear();
  }
};

inline constexpr Exit segfault{true, 11}, killed_by_us{true, 9};

}  // namespace offpath::plugin
