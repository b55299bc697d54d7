// Rows of several members, each in order, as rows of all in order.
#include <algorithm>
#include <limits>
#include <queue>

#include <fmt/format.h>

#include <arrow/compute/api.h>

#include "pool/query/query_arrow.h"

namespace offpath::pool {

namespace {

constexpr std::uint64_t sign_bit = 1ull << 63;

// The keys of a row, as numbers whose order is the columns', signed or not.
struct Head {
  std::shared_ptr<arrow::RecordBatch> rows;
  std::vector<std::vector<std::uint64_t>> keys;  // of each column

  [[nodiscard]] std::uint64_t count() const noexcept { return static_cast<std::uint64_t>(rows->num_rows()); }
};

bool before(const Head& a, std::uint64_t row, const Head& b, std::uint64_t other) noexcept {
  for (std::size_t column = 0; column < a.keys.size(); ++column)
    if (a.keys[column][row] != b.keys[column][other]) return a.keys[column][row] < b.keys[column][other];
  return false;
}

template <class T>
void append_numbers(const arrow::ArrayData& data, std::vector<std::uint64_t>& to) {
  const T* const values = data.GetValues<T>(1);
  for (std::int64_t i = 0; i < data.length; ++i)
    to.push_back(std::is_signed_v<T> ? static_cast<std::uint64_t>(static_cast<std::int64_t>(values[i])) ^ sign_bit
                                     : static_cast<std::uint64_t>(values[i]));
}

Result<std::vector<std::uint64_t>> numbers_of(const arrow::Array& column, std::string_view name) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(static_cast<std::size_t>(column.length()));
  if (column.null_count() != 0) return fail(Error::schema, "column \"{}\", by which rows are ordered, has nulls", name);
  switch (column.type_id()) {
    case arrow::Type::INT32:
      append_numbers<std::int32_t>(*column.data(), numbers);
      break;
    case arrow::Type::INT64:
      append_numbers<std::int64_t>(*column.data(), numbers);
      break;
    case arrow::Type::UINT32:
      append_numbers<std::uint32_t>(*column.data(), numbers);
      break;
    case arrow::Type::UINT64:
      append_numbers<std::uint64_t>(*column.data(), numbers);
      break;
    default:
      return fail(Error::schema, "column \"{}\", by which rows are ordered, is {}", name, column.type()->ToString());
  }
  return numbers;
}

Result<std::shared_ptr<arrow::RecordBatch>> rows_of(const MergeHead& head, arrow::MemoryPool& memory) {
  OFP_ASSIGN(const auto imported, import_frame({head.frame, "answer", ""}, memory));
  OFP_ARROW_ASSIGN(const auto table, arrow::Table::FromRecordBatches(imported.first, imported.second),
                   "merging answers");
  OFP_ARROW_ASSIGN(const auto batch, table->CombineChunksToBatch(&memory), "merging answers");
  if (head.row > static_cast<std::uint64_t>(batch->num_rows()))
    return fail(Error::protocol, "{} rows of an answer of {} were taken", head.row, batch->num_rows());
  return batch->Slice(static_cast<std::int64_t>(head.row));
}

Result<Head> open_head(const MergeHead& from, const MergeOrder& order, arrow::MemoryPool& memory) {
  Head head;
  OFP_ASSIGN(head.rows, rows_of(from, memory));
  const int columns = head.rows->num_columns(), hidden = static_cast<int>(order.columns.size());
  if (columns < hidden) return fail(Error::protocol, "an answer to be put in order has {} columns", columns);
  for (int i = 0; i < hidden; ++i) {
    const std::string& name = order.columns[static_cast<std::size_t>(i)];
    const auto column = order.hidden ? head.rows->column(columns - hidden + i) : head.rows->GetColumnByName(name);
    if (column == nullptr)
      return fail(Error::protocol, "an answer to be put in order has not got column \"{}\" once", name);
    OFP_ASSIGN(std::vector<std::uint64_t> numbers, numbers_of(*column, name));
    head.keys.push_back(std::move(numbers));
  }
  if (!order.hidden) return head;
  std::vector<int> kept;
  for (int i = 0; i + hidden < columns; ++i) kept.push_back(i);
  OFP_ARROW_ASSIGN(head.rows, head.rows->SelectColumns(kept), "merging answers");
  return head;
}

// Rows of all heads one behind the other, by number, in order; as far as no later row of a head can come before.
std::vector<std::int64_t> chosen_rows(const std::vector<Head>& heads, std::vector<std::uint64_t>& taken) {
  const Head* bound = nullptr;  // whose last row comes first
  std::vector<std::int64_t> begins;
  std::int64_t rows = 0;
  for (const Head& head : heads) {
    begins.push_back(rows);
    rows += head.rows->num_rows();
    if (head.count() > 0 && (bound == nullptr || before(head, head.count() - 1, *bound, bound->count() - 1)))
      bound = &head;
  }
  const auto later = [&](std::size_t a,
                         std::size_t b) {  // of two heads, by their next rows; of equal ones in the order of members
    if (before(heads[b], taken[b], heads[a], taken[a])) return true;
    return !before(heads[a], taken[a], heads[b], taken[b]) && a > b;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> next(later);
  const auto offer = [&](std::size_t i) {
    if (taken[i] < heads[i].count() && !before(*bound, bound->count() - 1, heads[i], taken[i])) next.push(i);
  };
  for (std::size_t i = 0; i < heads.size(); ++i) offer(i);
  std::vector<std::int64_t> chosen;
  while (!next.empty()) {
    const std::size_t i = next.top();
    next.pop();
    do chosen.push_back(begins[i] + static_cast<std::int64_t>(taken[i]++));
    while (taken[i] < heads[i].count() && !before(*bound, bound->count() - 1, heads[i], taken[i]) &&
           (next.empty() || before(heads[i], taken[i], heads[next.top()], taken[next.top()])));
    offer(i);
  }
  return chosen;
}

}  // namespace

Result<Merged> merge(const std::vector<MergeHead>& heads, const MergeOrder& order, std::uint64_t frame_bytes_max,
                     service::BufferCache& cache, uid_t user, std::uint64_t memory_bytes_max) {
  mover::ArrowMemory memory(cache, user, memory_bytes_max, queries_setting);
  arrow::compute::ExecContext context(&memory);
  Merged merged;
  std::vector<Head> open;
  Batches batches;
  std::uint64_t bytes = 1;
  for (const MergeHead& each : heads) {
    OFP_ASSIGN(Head head, open_head(each, order, memory));
    batches.push_back(head.rows);
    bytes += each.frame->bytes;
    open.push_back(std::move(head));
  }
  OFP_ARROW_ASSIGN(const auto table, arrow::Table::FromRecordBatches(batches.front()->schema(), batches),
                   "merging answers");
  OFP_ARROW_ASSIGN(const auto all, table->CombineChunksToBatch(&memory), "merging answers");
  std::vector<std::uint64_t> rows_taken(heads.size());
  const std::vector<std::int64_t> chosen = chosen_rows(open, rows_taken);
  for (std::size_t i = 0; i < heads.size(); ++i)
    merged.heads.push_back(rows_taken[i] < open[i].count() ? MergeHead{heads[i].frame, heads[i].row + rows_taken[i]}
                                                           : MergeHead{});
  const auto count = static_cast<std::int64_t>(chosen.size());
  const auto row_bytes = bytes / static_cast<std::uint64_t>(std::max<std::int64_t>(all->num_rows(), 1)) + 1;
  const auto rows_max = std::max<std::int64_t>(static_cast<std::int64_t>(frame_bytes_max / row_bytes), 1);
  std::int64_t row = 0;
  do {
    const std::int64_t rows = std::min(rows_max, count - row);
    const arrow::Int64Array numbers(
        rows, std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(chosen.data() + row), rows * 8));
    const auto taking = arrow::compute::TakeOptions::Defaults();
    OFP_ARROW_ASSIGN(const arrow::Datum taken,
                     arrow::compute::Take(arrow::Datum(all), arrow::Datum(numbers.data()), taking, &context),
                     "merging answers");
    OFP_ASSIGN(FramePtr frame, write_frame(*taken.record_batch(), cache, user, memory));
    merged.frames.push_back(std::move(frame));
    row += rows;
  } while (row < count);
  return merged;
}

}  // namespace offpath::pool
