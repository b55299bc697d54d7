// How queries use libarrow. Only query_*.cc include this.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/compute/expression.h>
#include <arrow/compute/initialize.h>

#include "mover/arrow_memory.h"
#include "pool/query/query_run.h"

// The library's errors become ours: OFP_ARROW(call, "what it did"); OFP_ARROW_ASSIGN(auto value, call, "what it did");
#define OFP_ARROW(expression, step)                                             \
  do {                                                                          \
    if (arrow::Status ofp_status = (expression); !ofp_status.ok()) [[unlikely]] \
      return ::offpath::pool::fail_arrow(ofp_status, step);                     \
  } while (false)
#define OFP_ARROW_ASSIGN_(result, target, expression, step)    \
  auto result = (expression);                                  \
  if (!result.ok()) [[unlikely]]                               \
    return ::offpath::pool::fail_arrow(result.status(), step); \
  target = std::move(result).ValueUnsafe()
#define OFP_ARROW_ASSIGN(target, expression, step) \
  OFP_ARROW_ASSIGN_(OFP_CONCAT(ofp_arrow_, __LINE__), target, expression, step)

namespace offpath::pool {

using Batches = std::vector<std::shared_ptr<arrow::RecordBatch>>;

[[nodiscard]] tl::unexpected<Failure> fail_arrow(const arrow::Status& status, std::string_view step);

// Before a function of the library is called: an agent whose pools lie elsewhere combines answers, but ran no query.
[[nodiscard]] inline Status start_compute() {
  OFP_ARROW(arrow::compute::Initialize(), "starting");
  return {};
}

// The bound of libarrow's memory (mover::ArrowMemory) for all queries of a user together.
inline constexpr std::string_view queries_setting = "queries.memory_max";

// The batches of a frame over its own memory, which they hold. Offsets, dictionary indices and similar values are
// checked, because they may come from another process. Expanded bodies and realigned values are in `memory`.
[[nodiscard]] Result<std::pair<std::shared_ptr<arrow::Schema>, Batches>> import_frame(const QuerySource& source,
                                                                                      arrow::MemoryPool& memory);

// Bound to the schema, constants folded. Errors name a missing column, and the existing ones.
[[nodiscard]] Result<arrow::compute::Expression> bind_to(const Expression& expression, const arrow::Schema& schema,
                                                         arrow::MemoryPool& memory);

// A query whose names and types are those of one schema.
struct BoundQuery {
  struct Projection {
    std::string name;
    arrow::compute::Expression expression;
  };
  struct Aggregate {
    AggregateFunction function;
    std::string name;
    std::optional<arrow::compute::Expression> expression;
    std::vector<arrow::compute::Expression> axes{};  // of a histogram, all of float64
  };
  std::shared_ptr<arrow::Schema> input;  // the columns that are needed, in the frames' order
  std::vector<int> columns;              // their places in the frames
  std::optional<arrow::compute::Expression> filter;
  std::vector<Projection> projections;  // without aggregates: one for each column of the answer
  std::vector<Aggregate> aggregates;
  std::shared_ptr<arrow::Schema> output;  // with aggregates: of the partial answer
};
[[nodiscard]] Result<BoundQuery> bind_to(const Query& query, const std::shared_ptr<arrow::Schema>& schema,
                                         arrow::MemoryPool& memory);

// The names of the columns of aggregate `index` in a partial answer: "3.sum"; a mean is a sum and a count.
[[nodiscard]] std::vector<std::string> partial_names(std::size_t index, AggregateFunction function);
// The type of a histogram's counts.
[[nodiscard]] std::shared_ptr<arrow::DataType> histogram_type(const Aggregate& aggregate);

// ---- frames of the answer

// A frame whose columns are not filled yet: fixed width, without nulls.
struct OpenFrame {
  FramePtr frame;
  std::vector<std::byte*> columns;
};
[[nodiscard]] Result<OpenFrame> open_frame(const std::shared_ptr<arrow::Schema>& schema, std::uint64_t rows,
                                           service::BufferCache& cache, uid_t user, arrow::MemoryPool& memory);
[[nodiscard]] Result<FramePtr> write_frame(const arrow::RecordBatch& batch, service::BufferCache& cache, uid_t user,
                                           arrow::MemoryPool& memory);
// One row from partial answers, each a batch of one row of bound.output.
[[nodiscard]] Result<std::shared_ptr<arrow::RecordBatch>> combine_partials(const Query& query, const Batches& partials,
                                                                           arrow::MemoryPool& memory);
// Combines several partial answers into one.
[[nodiscard]] Result<std::shared_ptr<arrow::RecordBatch>> fold_partials(const Query& query, const Batches& partials,
                                                                        arrow::MemoryPool& memory);

}  // namespace offpath::pool
