// A query over the frames of a feed: each step reads some of them, and runs the query over these.
#include <algorithm>
#include <utility>

#include "pool/query/query_run.h"

namespace offpath::pool {

namespace {

constexpr std::uint64_t frame_bytes_min = 64 << 10;
constexpr std::size_t partials_max = 64;  // before they are folded into one

class FedRun final : public QueryRun {
 public:
  FedRun(Query query, QuerySource source, const QueryLimits& limits, std::shared_ptr<QueryThreads> threads,
         std::shared_ptr<service::BufferCache> cache, uid_t user)
      : query_(std::move(query)),
        source_(std::move(source)),
        limits_(limits),
        threads_(std::move(threads)),
        cache_(std::move(cache)),
        user_(user) {
    // The member that orders all rows has two frames of each member: the arriving one and the current one.
    const std::uint64_t share = limits_.memory_bytes_max / (4 * std::max<std::size_t>(source_.feed->members(), 1));
    limits_.frame_bytes_max = std::min(limits_.frame_bytes_max, std::max(share, frame_bytes_min));
  }

  Result<QueryStep> step(std::stop_token stop) override {
    QueryStep done;
    std::uint64_t answered = 0;
    while (answered < limits_.step_bytes) {
      if (run_ == nullptr) {
        OFP_ASSIGN(const bool more, open_next(stop));
        if (!more) {
          OFP_TRY(finish(done));
          break;
        }
      }
      OFP_ASSIGN(QueryStep part, run_->step(stop));
      for (FramePtr& frame : part.frames) OFP_TRY(take(std::move(frame), done, answered));
      if (!part.finished) continue;
      counters_.rows_read += run_->counters().rows_read;
      counters_.bytes_read += run_->counters().bytes_read;
      counters_.loops = run_->counters().loops;
      run_.reset();
    }
    for (const FramePtr& frame : done.frames) {
      counters_.rows_answered += frame->rows;
      counters_.bytes_answered += frame->bytes;
    }
    return done;
  }
  const QueryCounters& counters() const noexcept override { return counters_; }

 private:
  // Several frames in a run: a filter may leave few rows of each, which then share frames.
  Result<bool> open_next(const std::stop_token& stop) {
    std::vector<QuerySource> sources;
    for (std::uint64_t bytes = 0; bytes < limits_.step_bytes;) {
      if (stop.stop_requested()) return fail(Error::cancelled, "the query was stopped while frames were read");
      OFP_ASSIGN(FramePtr frame, source_.feed->next(query_));
      if (frame == nullptr) break;
      bytes += frame->bytes;
      sources.push_back({std::move(frame), source_.row_key, source_.column_key});
    }
    if (sources.empty()) return false;
    Query query = query_;
    query.partial = !query_.aggregates.empty();
    OFP_ASSIGN(run_, QueryRun::make(std::move(query), std::move(sources), limits_, threads_, cache_, user_));
    return true;
  }

  Status take(FramePtr frame, QueryStep& done, std::uint64_t& answered) {
    if (!query_.aggregates.empty()) {
      partials_.push_back(std::move(frame));
      return partials_.size() < partials_max ? Status() : fold(true);
    }
    if (frame->rows == 0) {
      if (!answered_) empty_ = std::move(frame);
      return {};
    }
    answered_ = true;
    answered += frame->bytes;
    done.frames.push_back(std::move(frame));
    return {};
  }

  Status fold(bool partial) {
    Query query = query_;
    query.partial = partial;
    OFP_ASSIGN(FramePtr folded, combine(query, partials_, *cache_, user_, limits_.memory_bytes_max));
    partials_.assign(1, std::move(folded));
    return {};
  }

  Status finish(QueryStep& done) {
    done.finished = true;
    if (!query_.aggregates.empty()) {
      OFP_TRY(fold(query_.partial));
      done.frames = std::move(partials_);
    } else if (!answered_) {
      done.frames.push_back(std::move(empty_));
    }
    return {};
  }

  Query query_;
  QuerySource source_;
  QueryLimits limits_;
  std::shared_ptr<QueryThreads> threads_;
  std::shared_ptr<service::BufferCache> cache_;
  uid_t user_;
  std::unique_ptr<QueryRun> run_;
  std::vector<FramePtr> partials_;
  FramePtr empty_;  // carries the schema, if nothing else does
  bool answered_ = false;
  QueryCounters counters_;
};

}  // namespace

std::unique_ptr<QueryRun> make_fed_run(Query query, QuerySource source, const QueryLimits& limits,
                                       std::shared_ptr<QueryThreads> threads,
                                       std::shared_ptr<service::BufferCache> cache, uid_t user) {
  return std::make_unique<FedRun>(std::move(query), std::move(source), limits, std::move(threads), std::move(cache),
                                  user);
}

}  // namespace offpath::pool
