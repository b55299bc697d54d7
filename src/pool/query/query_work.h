// A run with open frames, and the two ways to continue. Only query_*.cc include this.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include <arrow/util/thread_pool.h>

#include "pool/query/query_arrow.h"
#include "pool/query/query_program.h"

namespace offpath::pool {

class ArrowThreads final : public QueryThreads {
 public:
  explicit ArrowThreads(std::shared_ptr<arrow::internal::ThreadPool> pool) : pool_(std::move(pool)) {}
  [[nodiscard]] arrow::internal::ThreadPool* pool() const noexcept { return pool_.get(); }

 private:
  std::shared_ptr<arrow::internal::ThreadPool> pool_;  // null: the job's thread alone
};

// Rows that one thread takes at once: of one batch, few enough that a place in them fits 16 bits.
struct Piece {
  const arrow::RecordBatch* batch;
  std::int64_t begin;
  std::size_t rows;
};
inline constexpr std::size_t piece_rows_max = 65536;

struct QueryWork {
  std::unique_ptr<mover::ArrowMemory> memory;  // first: what follows may lie in it
  Query query;
  BoundQuery bound;
  Batches batches;  // of bound.input
  std::vector<Piece> pieces;
  QueryLimits limits;
  std::shared_ptr<ArrowThreads> threads;
  std::shared_ptr<service::BufferCache> cache;
  uid_t user = 0;
  QueryCounters counters;

  // Calls `task(thread, piece)` for every piece of [begin, end) on up to limits.threads threads, this one among them.
  // The first failure, or a stop, ends it.
  [[nodiscard]] Status for_pieces(std::size_t begin, std::size_t end, const std::stop_token& stop,
                                  const std::function<Status(unsigned thread, std::size_t piece)>& task);
};

class QueryWay {
 public:
  virtual ~QueryWay() = default;
  [[nodiscard]] virtual Result<QueryStep> step(QueryWork& work, const std::stop_token& stop) = 0;
};

// Null if there are no loops for the query or its columns.
[[nodiscard]] std::unique_ptr<QueryWay> make_select_loops(const QueryWork& work, const LoopTable& loops);
[[nodiscard]] std::unique_ptr<QueryWay> make_aggregate_loops(const QueryWork& work, const LoopTable& loops);
[[nodiscard]] std::unique_ptr<QueryWay> make_acero();
[[nodiscard]] std::unique_ptr<QueryWay> make_histograms();  // for a query of histograms, with columns of any type

// The frame of an answer of aggregates, partial or whole as requested.
[[nodiscard]] Result<QueryStep> answer_aggregates(QueryWork& work, const std::shared_ptr<arrow::RecordBatch>& partial);

// Where each column's values begin at a row of a batch.
void column_places(const arrow::RecordBatch& batch, std::int64_t row, std::vector<const std::byte*>& places);

}  // namespace offpath::pool
