// Queries that programs ask: the query's bytes pulled, its steps run as jobs, the frames of its answer handed over or pushed
// one by one as they are asked for. A state machine as the other services; where the frames come from is a function's
// business, so that other members' can be asked for in the same way.
//
//   pool_query -> pull of the bytes -> choose frames -> first step (job) -> Done{number of the answer}
//   query_next -> a frame that is ready, or the next step (job) and then its first frame, or Done: that was all. Who gives
//                 frames to programs leases them, too
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "mover/effects.h"
#include "pool/query_run.h"

namespace offpath::pool {

struct QueryServiceCounters {
  std::uint64_t queries = 0, failed = 0, steps = 0;
  std::uint64_t open = 0, running = 0;
  std::uint64_t rows_read = 0, bytes_read = 0, bytes_answered = 0;
};

class QueryService {
 public:
  struct Limits {
    QueryLimits query;
    std::size_t running_max = 1;       // steps at a time: the other jobs' threads are not all for queries
    std::size_t open_max = 16;         // of one channel
  };
  // The frames to read, in order; its failures are the query's.
  using Choose = std::function<Result<std::vector<QuerySource>>(const std::string& pool, std::string_view row_glob,
                                                                std::string_view column_glob, uid_t user)>;

  // Answers a request with a frame.
  using Give = std::function<void(mover::ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, mover::Effects& effects)>;

  QueryService(const Limits& limits, std::shared_ptr<mover::BufferCache> cache, Choose choose, Give give);
  ~QueryService();

  void on_channel_open(mover::ChannelNumber channel, uid_t user);
  void on_channel_closed(mover::ChannelNumber channel, mover::Effects& effects);
  // pool_query, query_next, and release of an answer (is_own).
  void on_request(mover::ChannelNumber channel, const channel::Entry& request, TimeNs now, mover::Effects& effects);
  void on_transfer(std::uint64_t token, Status status, mover::Effects& effects);
  void on_job(std::uint64_t token, Status status, mover::Effects& effects);
  void on_time(TimeNs now, mover::Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // Answers are numbered apart from leases.
  [[nodiscard]] static bool is_own(const channel::Entry& release) noexcept;
  [[nodiscard]] const QueryServiceCounters& counters() const noexcept { return counters_; }

 private:
  struct Answer;
  struct Channel {
    uid_t user = 0;
    std::size_t open = 0;
  };

  void begin(mover::ChannelNumber number, const channel::Entry& request, TimeNs now, mover::Effects& effects);
  void next(mover::ChannelNumber number, const channel::Entry& request, mover::Effects& effects);
  void start(Answer& answer, mover::Effects& effects);
  void want_step(Answer& answer, mover::Effects& effects);
  void run_waiting(mover::Effects& effects);
  void serve(Answer& answer, mover::Effects& effects);
  void fail_answer(Answer& answer, Failure failure, mover::Effects& effects);
  void forget(std::uint64_t number);

  Limits limits_;
  std::shared_ptr<mover::BufferCache> cache_;
  Choose choose_;
  Give give_;
  std::shared_ptr<QueryThreads> threads_;  // made for the first query
  std::unordered_map<mover::ChannelNumber, Channel> channels_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Answer>> answers_;
  std::deque<std::uint64_t> waiting_;  // answers that want a step
  std::uint64_t next_number_ = 1;
  QueryServiceCounters counters_;
};

}  // namespace offpath::pool
