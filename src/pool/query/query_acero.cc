// Queries that the loops do not support, by libarrow's plans. Each plan runs over some pieces, so a stop takes effect
// between plans and the memory of a plan is bounded by its input.
#include <algorithm>

#include <arrow/acero/exec_plan.h>
#include <arrow/acero/options.h>
#include <arrow/compute/api.h>
#include <arrow/util/byte_size.h>

#include "pool/query/query_work.h"

namespace offpath::pool {

namespace ac = arrow::acero;
namespace cp = arrow::compute;

namespace {

constexpr std::uint64_t plan_rows = 1 << 18;

bool has_dense_union(const arrow::DataType& type) {
  return type.id() == arrow::Type::DENSE_UNION ||
         std::ranges::any_of(type.fields(), [](const auto& field) { return has_dense_union(*field->type()); });
}

// A slice of a dense union keeps its whole children, so concatenated slices, and frames of an answer, would repeat
// them. The rows are taken instead, with the values they refer to.
Result<std::shared_ptr<arrow::Array>> with_own_children(std::shared_ptr<arrow::Array> array,
                                                        arrow::MemoryPool& memory) {
  if (!has_dense_union(*array->type())) return array;
  cp::ExecContext context(&memory);
  arrow::Int64Builder rows(&memory);
  OFP_ARROW(rows.Reserve(array->length()), "putting the answer together");
  for (std::int64_t row = 0; row < array->length(); ++row) rows.UnsafeAppend(row);
  OFP_ARROW_ASSIGN(const auto all, rows.Finish(), "putting the answer together");
  OFP_ARROW_ASSIGN(array, cp::Take(*array, *all, cp::TakeOptions::NoBoundsCheck(), &context),
                   "putting the answer together");
  return array;
}

// Each thread runs plans of its own, one at a time. A plan over several threads would still be destroyed on some of
// them after its answer has arrived, so its inputs would have to live longer.
class Acero final : public QueryWay {
 public:
  Result<QueryStep> step(QueryWork& work, const std::stop_token& stop) override {
    return work.bound.aggregates.empty() ? select(work, stop) : aggregate(work, stop);
  }

 private:
  struct Group {  // the pieces of one plan
    std::size_t begin = 0, end = 0;
    std::vector<FramePtr> frames;
    std::shared_ptr<arrow::RecordBatch> partial;
  };

  std::vector<Group> next_groups(const QueryWork& work) {
    std::vector<Group> groups;
    while (groups.size() < std::max<std::size_t>(1, work.limits.threads) &&
           (next_ < work.pieces.size() || groups.empty())) {
      groups.push_back({next_, next_, {}, {}});
      for (std::uint64_t rows = 0; next_ < work.pieces.size() && rows < plan_rows; groups.back().end = ++next_)
        rows += work.pieces[next_].rows;
    }
    return groups;
  }

  Result<QueryStep> select(QueryWork& work, const std::stop_token& stop) {
    QueryStep done;
    std::uint64_t answered = 0;
    while (next_ < work.pieces.size() && answered < work.limits.step_bytes) {
      std::vector<Group> groups = next_groups(work);
      OFP_TRY(work.for_pieces(0, groups.size(), stop, [&](unsigned, std::size_t number) -> Status {
        Group& group = groups[number];
        OFP_ASSIGN(const auto table, run(work, group, select_plan(work)));
        return table->num_rows() > 0 ? write(work, *table, group) : Status{};
      }));
      for (Group& group : groups)
        for (FramePtr& frame : group.frames) {
          answered += frame->bytes;
          done.frames.push_back(std::move(frame));
        }
      if (answered > work.limits.memory_bytes_max)
        return fail(Error::no_memory, "the query answers {} bytes at once, its limit is {} (queries.memory_max)",
                    answered, work.limits.memory_bytes_max);
    }
    done.finished = next_ == work.pieces.size();
    if (done.frames.empty() && !answered_) {
      OFP_ARROW_ASSIGN(const auto none, arrow::RecordBatch::MakeEmpty(work.bound.output, work.memory.get()),
                       "answering");
      OFP_ASSIGN(FramePtr frame, write_frame(*none, *work.cache, work.user, *work.memory));
      done.frames.push_back(std::move(frame));
    }
    answered_ |= !done.frames.empty();
    return done;
  }

  Result<QueryStep> aggregate(QueryWork& work, const std::stop_token& stop) {
    Batches partials;
    do {  // also without rows: the answer needs types
      std::vector<Group> groups = next_groups(work);
      OFP_TRY(work.for_pieces(0, groups.size(), stop, [&](unsigned, std::size_t number) -> Status {
        OFP_ASSIGN(const auto table, run(work, groups[number], aggregate_plan(work)));
        OFP_ARROW_ASSIGN(const auto partial, table->CombineChunksToBatch(work.memory.get()), "aggregating");
        OFP_ASSIGN(groups[number].partial, with_types(work, *partial, work.bound.output));
        return {};
      }));
      for (Group& group : groups) partials.push_back(std::move(group.partial));
    } while (next_ < work.pieces.size());
    OFP_ASSIGN(const auto folded, fold_partials(work.query, partials, *work.memory));
    return answer_aggregates(work, folded);
  }

  static Result<std::shared_ptr<arrow::RecordBatch>> with_types(const QueryWork& work, const arrow::RecordBatch& batch,
                                                                const std::shared_ptr<arrow::Schema>& schema) {
    arrow::ArrayVector columns;
    cp::ExecContext context(work.memory.get());
    for (int i = 0; i < batch.num_columns(); ++i) {
      OFP_ARROW_ASSIGN(auto column,
                       cp::Cast(*batch.column(i), schema->field(i)->type(), cp::CastOptions::Safe(), &context),
                       "aggregating");
      columns.push_back(std::move(column));
    }
    return arrow::RecordBatch::Make(schema, batch.num_rows(), std::move(columns));
  }

  static std::vector<ac::Declaration> filter_of(const QueryWork& work) {
    std::vector<ac::Declaration> nodes;
    if (work.bound.filter) nodes.emplace_back("filter", ac::FilterNodeOptions(*work.bound.filter));
    return nodes;
  }

  static std::vector<ac::Declaration> select_plan(const QueryWork& work) {
    std::vector<ac::Declaration> nodes = filter_of(work);
    if (work.query.projections.empty()) return nodes;  // whole rows: their fields as they are
    std::vector<cp::Expression> expressions;
    std::vector<std::string> names;
    for (const auto& projection : work.bound.projections) {
      expressions.push_back(projection.expression);
      names.push_back(projection.name);
    }
    nodes.emplace_back("project", ac::ProjectNodeOptions(std::move(expressions), std::move(names)));
    return nodes;
  }

  static std::vector<ac::Declaration> aggregate_plan(const QueryWork& work) {
    std::vector<ac::Declaration> nodes = filter_of(work);
    std::vector<cp::Expression> expressions;
    std::vector<std::string> names;
    std::vector<cp::Aggregate> aggregates;
    for (std::size_t i = 0; i < work.bound.aggregates.size(); ++i) {
      const auto& aggregate = work.bound.aggregates[i];
      const auto place = static_cast<int>(expressions.size());
      if (aggregate.expression) {
        expressions.push_back(*aggregate.expression);
        names.push_back(fmt::format("{}", i));
      }
      for (const std::string& name : partial_names(i, aggregate.function)) {
        const std::string function = name.substr(name.find('.') + 1);
        if (aggregate.expression)
          aggregates.emplace_back(function, nullptr, arrow::FieldRef(place), name);
        else
          aggregates.emplace_back("count_all", name);
      }
    }
    // A plan needs a column to count rows by.
    if (expressions.empty()) {
      expressions.push_back(cp::literal(true));
      names.emplace_back("rows");
    }
    nodes.emplace_back("project", ac::ProjectNodeOptions(std::move(expressions), std::move(names)));
    nodes.emplace_back("aggregate", ac::AggregateNodeOptions(std::move(aggregates)));
    return nodes;
  }

  Result<std::shared_ptr<arrow::Table>> run(const QueryWork& work, const Group& group,
                                            std::vector<ac::Declaration> nodes) {
    Batches batches;
    for (std::size_t i = group.begin; i < group.end; ++i) {
      const Piece& piece = work.pieces[i];
      batches.push_back(piece.batch->Slice(piece.begin, static_cast<std::int64_t>(piece.rows)));
    }
    OFP_ARROW_ASSIGN(const auto table, arrow::Table::FromRecordBatches(work.bound.input, batches), "reading frames");
    nodes.insert(nodes.begin(), ac::Declaration("table_source", ac::TableSourceNodeOptions(table, piece_rows_max)));
    ac::QueryOptions options;
    options.memory_pool = work.memory.get();
    options.use_threads = false;
    auto made = ac::DeclarationToTable(ac::Declaration::Sequence(std::move(nodes)), std::move(options));
    if (!made.ok() && made.status().IsOutOfMemory())
      return fail(Error::no_memory, "the query needs more than {} bytes at once (queries.memory_max)",
                  work.limits.memory_bytes_max);
    if (!made.ok()) return fail_arrow(made.status(), "computing");
    return std::move(made).ValueUnsafe();
  }

  Status write(const QueryWork& work, const arrow::Table& table, Group& group) {
    arrow::ChunkedArrayVector columns;
    for (const auto& column : table.columns()) {
      arrow::ArrayVector chunks = column->chunks();
      for (auto& chunk : chunks) {
        OFP_ASSIGN(chunk, with_own_children(chunk, *work.memory));
      }
      columns.push_back(std::make_shared<arrow::ChunkedArray>(std::move(chunks), column->type()));
    }
    const auto answer = arrow::Table::Make(work.bound.output, std::move(columns), table.num_rows());
    OFP_ARROW_ASSIGN(const auto batch, answer->CombineChunksToBatch(work.memory.get()), "putting the answer together");
    const auto bytes = static_cast<std::uint64_t>(arrow::util::TotalBufferSize(*batch));
    const auto frames = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / work.limits.frame_bytes_max));
    const std::int64_t rows = (batch->num_rows() + frames - 1) / frames;
    for (std::int64_t row = 0; row < batch->num_rows(); row += rows) {
      auto part = batch->Slice(row, rows);
      arrow::ArrayVector arrays = part->columns();
      for (auto& array : arrays) {
        if (frames == 1) break;
        OFP_ASSIGN(array, with_own_children(array, *work.memory));
      }
      part = arrow::RecordBatch::Make(work.bound.output, part->num_rows(), std::move(arrays));
      OFP_ASSIGN(FramePtr frame, write_frame(*part, *work.cache, work.user, *work.memory));
      group.frames.push_back(std::move(frame));
    }
    return {};
  }

  std::size_t next_ = 0;
  bool answered_ = false;
};

}  // namespace

std::unique_ptr<QueryWay> make_acero() { return std::make_unique<Acero>(); }

}  // namespace offpath::pool
