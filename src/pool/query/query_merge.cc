// Merges the ordered rows of several members.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <queue>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <arrow/compute/api.h>

#include "pool/query/query_arrow.h"

namespace offpath::pool {

namespace {

constexpr std::uint64_t sign_bit = 1ull << 63;

// `count` values without content, in the queries' memory.
template <class T>
Result<std::pair<std::shared_ptr<arrow::Buffer>, std::span<T>>> take(std::int64_t count, arrow::MemoryPool& memory) {
  OFP_ARROW_ASSIGN(std::shared_ptr<arrow::Buffer> buffer,
                   arrow::AllocateBuffer(count * static_cast<std::int64_t>(sizeof(T)), &memory), "merging answers");
  const std::span<T> values(reinterpret_cast<T*>(buffer->mutable_data()), static_cast<std::size_t>(count));
  return std::pair(std::move(buffer), values);
}

// A column's sort keys: numbers, signed or not, or bytes, in the order of its values. Bytes are in the column or in
// memory of their own.
struct Keys {
  std::span<std::uint64_t> numbers{};
  std::span<std::string_view> bytes{};
  std::vector<std::shared_ptr<arrow::Buffer>> memory{};  // of all of these

  template <class T>
  [[nodiscard]] Result<std::span<T>> add(std::int64_t count, arrow::MemoryPool& pool) {
    OFP_ASSIGN(auto taken, take<T>(count, pool));
    memory.push_back(std::move(taken.first));
    return taken.second;
  }
};

struct Head {
  std::shared_ptr<arrow::RecordBatch> rows;
  std::vector<Keys> keys;                                // of each column
  std::vector<std::shared_ptr<arrow::Array>> columns{};  // in which they lie

  [[nodiscard]] std::uint64_t count() const noexcept { return static_cast<std::uint64_t>(rows->num_rows()); }
};

bool before(const Head& a, std::uint64_t row, const Head& b, std::uint64_t other) noexcept {
  for (std::size_t column = 0; column < a.keys.size(); ++column) {
    const Keys &one = a.keys[column], &another = b.keys[column];
    if (!one.bytes.empty() && !another.bytes.empty()) {
      const int order = one.bytes[row].compare(another.bytes[other]);
      if (order != 0) return order < 0;
    } else if (one.numbers[row] != another.numbers[other]) {
      return one.numbers[row] < another.numbers[other];
    }
  }
  return false;
}

template <class T>
void put_numbers(const arrow::ArrayData& data, std::span<std::uint64_t> to) {
  const T* const values = data.GetValues<T>(1);
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = std::is_signed_v<T> ? static_cast<std::uint64_t>(static_cast<std::int64_t>(values[i])) ^ sign_bit
                                : static_cast<std::uint64_t>(values[i]);
}

// The order of sift pools (src/sift/split/key_form.h): -0.0 equals 0.0, and NaN is last.
template <class Float, class Bits>
void put_floats(const arrow::ArrayData& data, std::span<std::uint64_t> to) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  const Float* const values = data.GetValues<Float>(1);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto bits = std::bit_cast<Bits>(values[i]);
    if (std::isnan(values[i]))
      to[i] = std::numeric_limits<std::uint64_t>::max();
    else if (static_cast<Bits>(bits << 1) == 0)
      to[i] = sign;
    else
      to[i] = (bits & sign) != 0 ? static_cast<Bits>(~bits) : bits | sign;
  }
}

// Of at most eight bytes.
void put_bytes(const arrow::FixedSizeBinaryArray& column, std::span<std::uint64_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint64_t number = 0;
    for (const char byte : column.GetView(static_cast<std::int64_t>(i)))
      number = number << 8 | static_cast<std::uint8_t>(byte);
    to[i] = number;
  }
}

template <class Array>
void put_views(const arrow::Array& column, std::span<std::string_view> to) {
  const auto& values = static_cast<const Array&>(column);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = values.GetView(static_cast<std::int64_t>(i));
}

// Numbers with a sign, the lowest byte first. `changed` has room for all of them.
void put_long_numbers(const arrow::FixedSizeBinaryArray& column, std::span<char> changed,
                      std::span<std::string_view> to) {
  const auto width = static_cast<std::size_t>(column.byte_width());
  char* next = changed.data();
  for (std::size_t i = 0; i < to.size(); ++i, next += width) {
    const std::string_view value = column.GetView(static_cast<std::int64_t>(i));
    std::ranges::reverse_copy(value, next);
    *next = static_cast<char>(*next ^ '\x80');
    to[i] = {next, width};
  }
}

// Whether values are compared as bytes, and not as numbers.
bool is_long(const arrow::Array& column) {
  switch (column.type_id()) {
    case arrow::Type::FIXED_SIZE_BINARY:
      return static_cast<const arrow::FixedSizeBinaryArray&>(column).byte_width() > 8;
    case arrow::Type::BINARY:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
      return true;
    default:
      return false;
  }
}

Result<Keys> long_keys_of(const arrow::Array& column, arrow::MemoryPool& memory) {
  Keys keys;
  OFP_ASSIGN(keys.bytes, keys.add<std::string_view>(column.length(), memory));
  switch (column.type_id()) {
    case arrow::Type::FIXED_SIZE_BINARY:
      put_views<arrow::FixedSizeBinaryArray>(column, keys.bytes);
      break;
    case arrow::Type::BINARY:
    case arrow::Type::STRING:
      put_views<arrow::BinaryArray>(column, keys.bytes);
      break;
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_STRING:
      put_views<arrow::LargeBinaryArray>(column, keys.bytes);
      break;
    default: {
      const auto& numbers = static_cast<const arrow::FixedSizeBinaryArray&>(column);
      OFP_ASSIGN(const std::span<char> changed, keys.add<char>(numbers.length() * numbers.byte_width(), memory));
      put_long_numbers(numbers, changed, keys.bytes);
      break;
    }
  }
  return keys;
}

Result<Keys> keys_of(const arrow::Array& column, std::string_view name, arrow::MemoryPool& memory) {
  if (column.null_count() != 0) return fail(Error::schema, "column \"{}\", by which rows are ordered, has nulls", name);
  if (is_long(column)) return long_keys_of(column, memory);
  Keys keys;
  OFP_ASSIGN(keys.numbers, keys.add<std::uint64_t>(column.length(), memory));
  const arrow::ArrayData& data = *column.data();
  const std::span<std::uint64_t> numbers = keys.numbers;
  switch (column.type_id()) {
    case arrow::Type::INT8:
      put_numbers<std::int8_t>(data, numbers);
      break;
    case arrow::Type::INT16:
      put_numbers<std::int16_t>(data, numbers);
      break;
    case arrow::Type::UINT8:
      put_numbers<std::uint8_t>(data, numbers);
      break;
    case arrow::Type::UINT16:
      put_numbers<std::uint16_t>(data, numbers);
      break;
    case arrow::Type::FLOAT:
      put_floats<float, std::uint32_t>(data, numbers);
      break;
    case arrow::Type::DOUBLE:
      put_floats<double, std::uint64_t>(data, numbers);
      break;
    case arrow::Type::FIXED_SIZE_BINARY:
      put_bytes(static_cast<const arrow::FixedSizeBinaryArray&>(column), numbers);
      break;
    case arrow::Type::DATE32:
    case arrow::Type::TIME32:
    case arrow::Type::DECIMAL32:
    case arrow::Type::INT32:
      put_numbers<std::int32_t>(data, numbers);
      break;
    case arrow::Type::DATE64:
    case arrow::Type::TIME64:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::DURATION:
    case arrow::Type::DECIMAL64:
    case arrow::Type::INT64:
      put_numbers<std::int64_t>(data, numbers);
      break;
    case arrow::Type::UINT32:
      put_numbers<std::uint32_t>(data, numbers);
      break;
    case arrow::Type::UINT64:
      put_numbers<std::uint64_t>(data, numbers);
      break;
    default:
      return fail(Error::schema, "column \"{}\", by which rows are ordered, is {}", name, column.type()->ToString());
  }
  return keys;
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
    OFP_ASSIGN(Keys keys, keys_of(*column, name, memory));
    head.keys.push_back(std::move(keys));
    head.columns.push_back(column);
  }
  if (!order.hidden) return head;
  std::vector<int> kept;
  for (int i = 0; i + hidden < columns; ++i) kept.push_back(i);
  OFP_ARROW_ASSIGN(head.rows, head.rows->SelectColumns(kept), "merging answers");
  return head;
}

// Values are compared by the type of the first head's column.
Status check_same_keys(const Head& first, const Head& other, const MergeOrder& order) {
  for (std::size_t i = 0; i < first.columns.size(); ++i) {
    const arrow::DataType &one = *first.columns[i]->type(), &another = *other.columns[i]->type();
    if (!one.Equals(another))
      return fail(Error::protocol, "column \"{}\", by which rows are ordered, is {} of one member and {} of another",
                  order.columns[i], one.ToString(), another.ToString());
  }
  return {};
}

// The numbers of rows of all heads in order, up to the first row that a later row of a head may precede. `chosen` has
// room for all rows; the result is how many there are.
std::int64_t choose_rows(const std::vector<Head>& heads, std::vector<std::uint64_t>& taken,
                         std::span<std::int64_t> chosen) {
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
  std::size_t count = 0;
  while (!next.empty()) {
    const std::size_t i = next.top();
    next.pop();
    do chosen[count++] = begins[i] + static_cast<std::int64_t>(taken[i]++);
    while (taken[i] < heads[i].count() && !before(*bound, bound->count() - 1, heads[i], taken[i]) &&
           (next.empty() || before(heads[i], taken[i], heads[next.top()], taken[next.top()])));
    offer(i);
  }
  return static_cast<std::int64_t>(count);
}

}  // namespace

Result<Merged> merge(const std::vector<MergeHead>& heads, const MergeOrder& order, std::uint64_t frame_bytes_max,
                     service::BufferCache& cache, uid_t user, std::uint64_t memory_bytes_max) {
  OFP_TRY(start_compute());
  mover::ArrowMemory memory(cache, user, memory_bytes_max, queries_setting);
  arrow::compute::ExecContext context(&memory);
  Merged merged;
  std::vector<Head> open;
  Batches batches;
  std::uint64_t bytes = 1;
  for (const MergeHead& each : heads) {
    OFP_ASSIGN(Head head, open_head(each, order, memory));
    if (!open.empty()) OFP_TRY(check_same_keys(open.front(), head, order));
    batches.push_back(head.rows);
    bytes += each.frame->bytes;
    open.push_back(std::move(head));
  }
  OFP_ARROW_ASSIGN(const auto table, arrow::Table::FromRecordBatches(batches.front()->schema(), batches),
                   "merging answers");
  OFP_ARROW_ASSIGN(const auto all, table->CombineChunksToBatch(&memory), "merging answers");
  std::vector<std::uint64_t> rows_taken(heads.size());
  OFP_ASSIGN(const auto chosen, take<std::int64_t>(all->num_rows(), memory));
  const std::int64_t count = choose_rows(open, rows_taken, chosen.second);
  for (std::size_t i = 0; i < heads.size(); ++i)
    merged.heads.push_back(rows_taken[i] < open[i].count() ? MergeHead{heads[i].frame, heads[i].row + rows_taken[i]}
                                                           : MergeHead{});
  const auto row_bytes = bytes / static_cast<std::uint64_t>(std::max<std::int64_t>(all->num_rows(), 1)) + 1;
  const auto rows_max = std::max<std::int64_t>(static_cast<std::int64_t>(frame_bytes_max / row_bytes), 1);
  std::int64_t row = 0;
  do {
    const std::int64_t rows = std::min(rows_max, count - row);
    const arrow::Int64Array numbers(rows, arrow::SliceBuffer(chosen.first, row * 8, rows * 8));
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
