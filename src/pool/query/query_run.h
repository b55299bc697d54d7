// Runs a query on frames of this agent, in one of two ways with equal answers, chosen for each query:
//
//   loops   fields and numbers without nulls: chunks of rows that stay in the core's cache run through vector loops,
//           and
//           the chosen rows are gathered straight into the frames of the answer      query_loops.inc,
//           query_select.cc
//   Acero   everything else: libarrow's plans, over pieces of the frames                                query_acero.cc
//
//   histograms   expressions by libarrow's kernels, counts by a loop                                query_histogram.cc
//
// A run has steps, each a job that reads until there is enough for a few frames. So an answer streams at its reader's
// pace, and a slow reader holds the memory of one step and no thread. Aggregates are one step.
//
// This header needs no libarrow; without libarrow, make() is Error::unsupported.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "pool/query/query.h"
#include "pool/query/query_limits.h"
#include "pool/table/query_source.h"

namespace offpath::pool {

// The threads that queries share. Thread-safe; outlives the runs that were made with it.
class QueryThreads {
 public:
  [[nodiscard]] static std::shared_ptr<QueryThreads> make(unsigned threads);
  virtual ~QueryThreads() = default;
};

// Frames that are made while they are read, because all of them together would not fit into memory.
class QueryFeed {
 public:
  virtual ~QueryFeed() = default;
  // Blocks: called in jobs, one at a time. The next frame, all of one schema; null at the end. There is at least one
  // frame, which may be empty. A frame may leave out columns that `query` does not read, and rows that its filter
  // excludes.
  [[nodiscard]] virtual Result<FramePtr> next(const Query& query) = 0;
  // The number of members whose rows are merged where the query was asked, with one frame of each.
  [[nodiscard]] virtual std::size_t members() const noexcept = 0;
};

struct QueryStep {
  std::vector<FramePtr> frames;
  bool finished = false;
};

struct QueryCounters {
  std::uint64_t rows_read = 0, bytes_read = 0;  // bytes of the columns it needs
  std::uint64_t rows_answered = 0, bytes_answered = 0;
  bool loops = false;  // which way
};

class QueryRun {
 public:
  // `sources` in the order in which rows are answered; their schemas must be equal. Touches no frame yet.
  [[nodiscard]] static Result<std::unique_ptr<QueryRun>> make(Query query, std::vector<QuerySource> sources,
                                                              const QueryLimits& limits,
                                                              std::shared_ptr<QueryThreads> threads,
                                                              std::shared_ptr<service::BufferCache> cache, uid_t user);
  virtual ~QueryRun() = default;

  // Blocks: run it in a job, one at a time. The answer has a first frame even without rows, because it carries the
  // schema. Error::cancelled after `stop`. After an error or `finished` there are no more steps.
  [[nodiscard]] virtual Result<QueryStep> step(std::stop_token stop) = 0;
  [[nodiscard]] virtual const QueryCounters& counters() const noexcept = 0;
};

// A run over a feed, by runs over as many of its frames as a step may hold.
[[nodiscard]] std::unique_ptr<QueryRun> make_fed_run(Query query, QuerySource source, const QueryLimits& limits,
                                                     std::shared_ptr<QueryThreads> threads,
                                                     std::shared_ptr<service::BufferCache> cache, uid_t user);

// The rest of one member's answer: rows from `row` on. It is ordered by the columns of a MergeOrder, whole numbers
// all of them.
struct MergeHead {
  FramePtr frame;
  std::uint64_t row = 0;
};
struct MergeOrder {
  std::vector<std::string> columns;
  bool hidden = false;  // the last columns, which are not part of the answer
};
struct Merged {
  std::vector<FramePtr> frames;
  std::vector<MergeHead> heads;  // the rest of each member; no frame where it is used up
};
// All rows that no later row of any head can precede; at least all of one head. Without rows it is one empty frame with
// the schema.
[[nodiscard]] Result<Merged> merge(const std::vector<MergeHead>& heads, const MergeOrder& order,
                                   std::uint64_t frame_bytes_max, service::BufferCache& cache, uid_t user,
                                   std::uint64_t memory_bytes_max = QueryLimits{}.memory_bytes_max);

// The answer to a query of aggregates from partial answers of several members: one frame of one row, itself partial if
// the query asks for that. Members without rows may be missing. Pure: depends on its arguments alone.
[[nodiscard]] Result<FramePtr> combine(const Query& query, const std::vector<FramePtr>& partials,
                                       service::BufferCache& cache, uid_t user,
                                       std::uint64_t memory_bytes_max = QueryLimits{}.memory_bytes_max);

// Whether two frames have columns of the same names and types; Error::schema lists both. Reads their schemas only.
[[nodiscard]] Status same_schema(const FramePtr& one, const FramePtr& other);

}  // namespace offpath::pool
