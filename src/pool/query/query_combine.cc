// Combines partial answers: sums and counts are added, minima and maxima compared. A mean is divided at the end, so
// each member counts by its size.
#include <algorithm>

#include <fmt/format.h>

#include <arrow/compute/api.h>

#include "pool/query/query_arrow.h"

namespace offpath::pool {

namespace cp = arrow::compute;

namespace {

std::string function_of(const std::string& partial_name) {
  const std::string name = partial_name.substr(partial_name.find('.') + 1);
  return name == "count" ? "sum" : name;
}

Result<std::shared_ptr<arrow::Array>> one_value(const std::shared_ptr<arrow::Scalar>& scalar,
                                                arrow::MemoryPool& memory) {
  OFP_ARROW_ASSIGN(std::shared_ptr<arrow::Array> made, arrow::MakeArrayFromScalar(*scalar, 1, &memory),
                   "combining answers");
  return made;
}

// Counts are added cell by cell.
Result<std::shared_ptr<arrow::Array>> fold_histogram(const arrow::ChunkedArray& counts, arrow::MemoryPool& memory) {
  const auto cells = static_cast<const arrow::FixedSizeListType&>(*counts.type()).list_size();
  OFP_ARROW_ASSIGN(std::shared_ptr<arrow::Buffer> sums,
                   arrow::AllocateBuffer(cells * std::int64_t{sizeof(std::uint64_t)}, &memory), "combining answers");
  auto* const to = reinterpret_cast<std::uint64_t*>(sums->mutable_data());
  std::fill_n(to, cells, 0);
  for (const auto& chunk : counts.chunks()) {
    const auto& lists = static_cast<const arrow::FixedSizeListArray&>(*chunk);
    const auto& values = static_cast<const arrow::Int64Array&>(*lists.values());
    if (lists.null_count() != 0 || values.null_count() != 0)
      return fail(Error::protocol, "a histogram's answer has nulls");
    for (std::int64_t row = 0; row < lists.length(); ++row)
      for (std::int32_t cell = 0; cell < cells; ++cell)
        to[cell] += static_cast<std::uint64_t>(values.Value(lists.value_offset(row) + cell));
  }
  const auto flat = std::make_shared<arrow::Int64Array>(cells, std::move(sums));
  return std::make_shared<arrow::FixedSizeListArray>(counts.type(), 1, flat);
}

Result<std::shared_ptr<arrow::Array>> fold_column(const std::string& name,
                                                  const std::shared_ptr<arrow::ChunkedArray>& values,
                                                  arrow::MemoryPool& memory) {
  cp::ExecContext context(&memory);
  // Only nulls, without type if there was no row: stays null.
  OFP_ARROW_ASSIGN(const arrow::Datum folded, cp::CallFunction(function_of(name), {values}, &context),
                   "combining answers");
  OFP_ARROW_ASSIGN(const auto typed, folded.scalar()->CastTo(values->type()), "combining answers");
  return one_value(typed, memory);
}

Result<std::shared_ptr<arrow::Array>> divide(const arrow::Array& sum, const arrow::Array& count,
                                             arrow::MemoryPool& memory) {
  OFP_ARROW_ASSIGN(const auto number, sum.GetScalar(0), "combining answers");
  OFP_ARROW_ASSIGN(const auto counted, count.GetScalar(0), "combining answers");
  const auto& values = static_cast<const arrow::Int64Scalar&>(*counted);
  if (!number->is_valid || !values.is_valid || values.value == 0)
    return one_value(arrow::MakeNullScalar(arrow::float64()), memory);
  OFP_ARROW_ASSIGN(const auto real, number->CastTo(arrow::float64()), "combining answers");
  return one_value(
      arrow::MakeScalar(static_cast<const arrow::DoubleScalar&>(*real).value / static_cast<double>(values.value)),
      memory);
}

}  // namespace

Result<std::shared_ptr<arrow::RecordBatch>> fold_partials(const Query& query, const Batches& partials,
                                                          arrow::MemoryPool& memory) {
  if (partials.empty()) return fail(Error::invalid, "there are no answers to combine");
  OFP_TRY(start_compute());
  std::size_t expected = 0;
  for (const Aggregate& aggregate : query.aggregates) expected += partial_names(0, aggregate.function).size();
  const auto& schema = partials.front()->schema();
  if (static_cast<std::size_t>(schema->num_fields()) != expected)
    return fail(Error::protocol, "a partial answer has {} columns, the query's has {}", schema->num_fields(), expected);
  for (const auto& partial : partials)
    if (!partial->schema()->Equals(*schema, false))
      return fail(Error::schema, "one member answers {}, another one {}", schema->ToString(),
                  partial->schema()->ToString());
  OFP_ARROW_ASSIGN(const auto table, arrow::Table::FromRecordBatches(schema, partials), "combining answers");
  arrow::ArrayVector columns;
  const bool is_histogram = !query.aggregates.empty() && !query.aggregates.front().axes.empty();
  for (int i = 0; i < table->num_columns(); ++i) {
    if (is_histogram &&
        !schema->field(i)->type()->Equals(histogram_type(query.aggregates[static_cast<std::size_t>(i)])))
      return fail(Error::protocol, "a histogram's answer is of type {}", schema->field(i)->type()->ToString());
    OFP_ASSIGN(std::shared_ptr<arrow::Array> folded,
               is_histogram ? fold_histogram(*table->column(i), memory)
                            : fold_column(schema->field(i)->name(), table->column(i), memory));
    columns.push_back(std::move(folded));
  }
  return arrow::RecordBatch::Make(schema, 1, std::move(columns));
}

Result<std::shared_ptr<arrow::RecordBatch>> combine_partials(const Query& query, const Batches& partials,
                                                             arrow::MemoryPool& memory) {
  OFP_ASSIGN(const auto folded, fold_partials(query, partials, memory));
  arrow::FieldVector fields;
  arrow::ArrayVector columns;
  int at = 0;
  for (const Aggregate& aggregate : query.aggregates) {
    if (aggregate.function == AggregateFunction::mean) {
      if (folded->column(at + 1)->type_id() != arrow::Type::INT64)
        return fail(Error::protocol, "the count of mean \"{}\" is of type {}", aggregate.name,
                    folded->column(at + 1)->type()->ToString());
      OFP_ASSIGN(std::shared_ptr<arrow::Array> mean, divide(*folded->column(at), *folded->column(at + 1), memory));
      columns.push_back(std::move(mean));
      at += 2;
    } else {
      columns.push_back(folded->column(at++));
    }
    fields.push_back(arrow::field(aggregate.name, columns.back()->type()));
  }
  return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), 1, std::move(columns));
}

Result<FramePtr> combine(const Query& query, const std::vector<FramePtr>& partials, service::BufferCache& cache,
                         uid_t user, std::uint64_t memory_bytes_max) {
  mover::ArrowMemory memory(cache, user, memory_bytes_max, queries_setting);
  Batches batches;
  for (const FramePtr& partial : partials) {
    OFP_ASSIGN(const auto imported, import_frame({partial, "answer", fmt::format("{}", batches.size())}, memory));
    for (const auto& batch : imported.second) {
      if (batch->num_rows() != 1)
        return fail(Error::protocol, "a partial answer has {} rows, not one", batch->num_rows());
      batches.push_back(batch);
    }
  }
  OFP_ASSIGN(const auto combined,
             query.partial ? fold_partials(query, batches, memory) : combine_partials(query, batches, memory));
  return write_frame(*combined, cache, user, memory);
}

}  // namespace offpath::pool
