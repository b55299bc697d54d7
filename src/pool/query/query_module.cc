#include <utility>

#include "base/module/border.h"
#include "pool/query/query_table.h"

namespace offpath::pool {

namespace {

class RunAtBorder final : public QueryRun {
 public:
  explicit RunAtBorder(std::unique_ptr<QueryRun> run) : run_(std::move(run)) {}
  Result<QueryStep> step(std::stop_token stop) override {
    return at_border([&] { return run_->step(std::move(stop)); });
  }
  const QueryCounters& counters() const noexcept override { return run_->counters(); }

 private:
  std::unique_ptr<QueryRun> run_;
};

std::shared_ptr<QueryThreads> make_threads(unsigned threads) noexcept {
  return at_border([&]() -> Result<std::shared_ptr<QueryThreads>> { return QueryThreads::make(threads); })
      .value_or(nullptr);
}

Result<std::unique_ptr<QueryRun>> make_run(Query query, std::vector<QuerySource> sources, const QueryLimits& limits,
                                           std::shared_ptr<QueryThreads> threads,
                                           std::shared_ptr<service::BufferCache> cache, uid_t user) {
  return at_border([&]() -> Result<std::unique_ptr<QueryRun>> {
    OFP_ASSIGN(auto run, QueryRun::make(std::move(query), std::move(sources), limits, std::move(threads),
                                        std::move(cache), user));
    return std::make_unique<RunAtBorder>(std::move(run));
  });
}

Result<Merged> merge_at_border(const std::vector<MergeHead>& heads, const MergeOrder& order,
                               std::uint64_t frame_bytes_max, service::BufferCache& cache, uid_t user,
                               std::uint64_t memory_bytes_max) {
  return at_border([&] { return merge(heads, order, frame_bytes_max, cache, user, memory_bytes_max); });
}

Result<FramePtr> combine_at_border(const Query& query, const std::vector<FramePtr>& partials,
                                   service::BufferCache& cache, uid_t user, std::uint64_t memory_bytes_max) {
  return at_border([&] { return combine(query, partials, cache, user, memory_bytes_max); });
}

Status same_schema_at_border(const FramePtr& one, const FramePtr& other) {
  return at_border([&] { return same_schema(one, other); });
}

}  // namespace

}  // namespace offpath::pool

extern "C" __attribute__((visibility("default")))
const offpath::pool::QueryTable ofp_query{OFFPATH_MODULE_ID,
                                          offpath::pool::make_threads,
                                          offpath::pool::make_run,
                                          offpath::pool::merge_at_border,
                                          offpath::pool::combine_at_border,
                                          offpath::pool::same_schema_at_border};
