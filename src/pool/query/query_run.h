// A query at work on frames of this agent. Two ways to compute, chosen for each query and equal in what they answer:
//
//   loops   fields and numbers without nulls: chunks of rows that stay in the core's cache run through vector loops,
//           and
//           what the filter chose is gathered straight into the frames of the answer      query_loops.inc,
//           query_select.cc
//   Acero   everything else: libarrow's plans, over pieces of the frames                                query_acero.cc
//
//   histograms   expressions by libarrow's kernels, counts by a loop                                query_histogram.cc
//
// A run goes in steps, each a job: it reads on until there is enough for a few frames, so that an answer streams back
// at the pace at which its frames are taken, and a slow taker holds memory of one step and no thread. Aggregates are
// one step.
//
// This header knows no libarrow; without one, make() is Error::unsupported.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "pool/query/query.h"
#include "pool/table/query_source.h"

namespace offpath::pool {

struct QueryLimits {
  unsigned threads = 2;                           // of one step, the job's own among them
  std::uint64_t memory_bytes_max = 512ull << 20;  // a step's answer; what libarrow holds for a user's queries
  std::uint64_t frame_bytes_max = 16ull << 20;    // of the answer: about, since the rows of a piece stay together
  std::uint64_t step_bytes = 64ull << 20;         // of the answer, after which a step ends
  bool loops = true;                              // false: Acero alone, to compare
};

// The threads that queries share. Thread-safe; outlives the runs that were made with it.
class QueryThreads {
 public:
  [[nodiscard]] static std::shared_ptr<QueryThreads> make(unsigned threads);
  virtual ~QueryThreads() = default;
};

// Frames that are made as they are read, where all of them at once would not fit memory.
class QueryFeed {
 public:
  virtual ~QueryFeed() = default;
  // Blocks: called in jobs, one at a time. The next frame, all of one schema; null at the end. There is one at least,
  // which may be empty. It may leave out columns that `query` does not read, and rows for which its filter cannot hold.
  [[nodiscard]] virtual Result<FramePtr> next(const Query& query) = 0;
  // Among how many members the rows are that are put in order where the query was asked: it has a frame of each.
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

  // Blocks: run it in a job, one at a time. The answer's first frame comes also if no row was chosen: it carries the
  // schema. Error::cancelled when `stop` was asked for. After an error or `finished` there are no more steps.
  [[nodiscard]] virtual Result<QueryStep> step(std::stop_token stop) = 0;
  [[nodiscard]] virtual const QueryCounters& counters() const noexcept = 0;
};

// A run over what a feed gives, by runs over as many of its frames as a step may hold.
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
  bool hidden = false;  // they are the last ones, and not of the answer
};
struct Merged {
  std::vector<FramePtr> frames;
  std::vector<MergeHead> heads;  // the rest of each; no frame where it is used up
};
// All rows that no later row of any head can come before; all of one head at least. Without rows it is one empty frame,
// which carries the schema.
[[nodiscard]] Result<Merged> merge(const std::vector<MergeHead>& heads, const MergeOrder& order,
                                   std::uint64_t frame_bytes_max, service::BufferCache& cache, uid_t user,
                                   std::uint64_t memory_bytes_max = QueryLimits{}.memory_bytes_max);

// The answer to a query of aggregates from partial answers of several members: one frame of one row, and partial itself
// if the query says so.
// A member that had no rows at all need not be among them. Pure: depends on its arguments alone.
[[nodiscard]] Result<FramePtr> combine(const Query& query, const std::vector<FramePtr>& partials,
                                       service::BufferCache& cache, uid_t user,
                                       std::uint64_t memory_bytes_max = QueryLimits{}.memory_bytes_max);

// Whether two frames have columns of the same names and types; Error::schema says what each has. Reads their schemas
// only.
[[nodiscard]] Status same_schema(const FramePtr& one, const FramePtr& other);

}  // namespace offpath::pool
