// Implements query_run.h by the module of libarrow, which the first step of the first query loads, in its job.
#include <mutex>
#include <utility>

#include "mover/arrow_modules.h"
#include "pool/query/query_table.h"

namespace offpath::pool {

namespace {

Result<const QueryTable*> query_table() {
  return load_table<QueryTable>(mover::arrow_module("queries need Arrow"), query_table_name);
}

class LoadedThreads final : public QueryThreads {
 public:
  explicit LoadedThreads(unsigned threads) : threads_(threads) {}

  std::shared_ptr<QueryThreads> of(const QueryTable& table) {
    const std::lock_guard lock(mutex_);
    if (loaded_ == nullptr) loaded_ = table.make_threads(threads_);
    return loaded_;
  }

 private:
  const unsigned threads_;
  std::mutex mutex_;
  std::shared_ptr<QueryThreads> loaded_;
};

class LoadedRun final : public QueryRun {
 public:
  LoadedRun(Query query, std::vector<QuerySource> sources, const QueryLimits& limits,
            std::shared_ptr<QueryThreads> threads, std::shared_ptr<service::BufferCache> cache, uid_t user)
      : query_(std::move(query)),
        sources_(std::move(sources)),
        limits_(limits),
        threads_(std::static_pointer_cast<LoadedThreads>(std::move(threads))),
        cache_(std::move(cache)),
        user_(user) {}

  Result<QueryStep> step(std::stop_token stop) override {
    if (run_ == nullptr) {
      OFP_ASSIGN(const QueryTable* table, query_table());
      std::shared_ptr<QueryThreads> threads = threads_->of(*table);
      if (threads == nullptr) return fail(Error::no_memory, "there is no memory for the threads of queries");
      OFP_ASSIGN(run_, table->make_run(std::move(query_), std::move(sources_), limits_, std::move(threads),
                                       std::move(cache_), user_));
    }
    return run_->step(std::move(stop));
  }
  const QueryCounters& counters() const noexcept override { return run_ != nullptr ? run_->counters() : none_; }

 private:
  Query query_;
  std::vector<QuerySource> sources_;
  const QueryLimits limits_;
  const std::shared_ptr<LoadedThreads> threads_;
  std::shared_ptr<service::BufferCache> cache_;
  const uid_t user_;
  std::unique_ptr<QueryRun> run_;
  const QueryCounters none_;
};

}  // namespace

std::shared_ptr<QueryThreads> QueryThreads::make(unsigned threads) { return std::make_shared<LoadedThreads>(threads); }

Result<std::unique_ptr<QueryRun>> QueryRun::make(Query query, std::vector<QuerySource> sources,
                                                 const QueryLimits& limits, std::shared_ptr<QueryThreads> threads,
                                                 std::shared_ptr<service::BufferCache> cache, uid_t user) {
  return std::make_unique<LoadedRun>(std::move(query), std::move(sources), limits, std::move(threads), std::move(cache),
                                     user);
}

Result<Merged> merge(const std::vector<MergeHead>& heads, const MergeOrder& order, std::uint64_t frame_bytes_max,
                     service::BufferCache& cache, uid_t user, std::uint64_t memory_bytes_max) {
  OFP_ASSIGN(const QueryTable* table, query_table());
  return table->merge(heads, order, frame_bytes_max, cache, user, memory_bytes_max);
}

Result<FramePtr> combine(const Query& query, const std::vector<FramePtr>& partials, service::BufferCache& cache,
                         uid_t user, std::uint64_t memory_bytes_max) {
  OFP_ASSIGN(const QueryTable* table, query_table());
  return table->combine(query, partials, cache, user, memory_bytes_max);
}

Status same_schema(const FramePtr& one, const FramePtr& other) {
  OFP_ASSIGN(const QueryTable* table, query_table());
  return table->same_schema(one, other);
}

}  // namespace offpath::pool
