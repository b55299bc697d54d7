// Aggregates by loops: each thread reduces its pieces, and the threads' results are combined at the end.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <arrow/compute/api.h>

#include "pool/query/query_work.h"

namespace offpath::pool {

namespace {

constexpr std::size_t accumulators_of_each = 3;  // sum, least, most

// The neutral element, as wide as the lane's accumulator.
template <bool least>
std::uint64_t neutral(Lane lane) {
  const auto bits = [](auto value) { return std::bit_cast<std::uint64_t>(value); };
  using std::numeric_limits;
  switch (lane) {
    case Lane::i8:
      return bits(std::int64_t{least ? numeric_limits<std::int8_t>::max() : numeric_limits<std::int8_t>::min()});
    case Lane::i16:
      return bits(std::int64_t{least ? numeric_limits<std::int16_t>::max() : numeric_limits<std::int16_t>::min()});
    case Lane::i32:
      return bits(std::int64_t{least ? numeric_limits<std::int32_t>::max() : numeric_limits<std::int32_t>::min()});
    case Lane::i64:
      return bits(least ? numeric_limits<std::int64_t>::max() : numeric_limits<std::int64_t>::min());
    case Lane::u8:
      return least ? numeric_limits<std::uint8_t>::max() : 0;
    case Lane::u16:
      return least ? numeric_limits<std::uint16_t>::max() : 0;
    case Lane::u32:
      return least ? numeric_limits<std::uint32_t>::max() : 0;
    case Lane::u64:
      return least ? numeric_limits<std::uint64_t>::max() : 0;
    default:
      return bits(least ? numeric_limits<double>::infinity() : -numeric_limits<double>::infinity());
  }
}

// Reduces one value of each thread with the loops. The accumulators are of the lane's own kind, widened.
Lane wide(Lane lane) noexcept {
  if (lane == Lane::f32 || lane == Lane::f64) return Lane::f64;
  return lane <= Lane::i64 ? Lane::i64 : Lane::u64;
}

struct Reduced {
  std::uint64_t rows = 0;
  std::vector<std::uint64_t> accumulators;  // sum, least, most of each result
  std::vector<const std::byte*> places, gathered;
  std::vector<std::byte> registers, filter_registers, values;
  std::vector<std::uint16_t> numbers;
};

class AggregateLoops final : public QueryWay {
 public:
  explicit AggregateLoops(const LoopTable& loops) : loops_(loops), filter_(loops), program_(loops) {}

  bool compile(const QueryWork& work) {
    if (work.bound.filter) {
      const auto result = filter_.add(*work.bound.filter);
      if (!result || filter_.lane(*result) != Lane::mask) return false;
      has_filter_ = true;
    }
    for (const auto& aggregate : work.bound.aggregates) {
      std::uint16_t result = 0;
      if (aggregate.expression) {
        const auto lane = lane_of(*aggregate.expression->type());
        const auto added = lane ? program_.add(*aggregate.expression) : std::nullopt;
        if (!added || program_.lane(*added) != *lane || program_.is_constant(*added)) return false;
        result = *added;
      }
      results_.push_back(result);
      if (aggregate.expression) mark(aggregate.function, result);
    }
    return filter_.finish() && program_.finish();
  }

  Result<QueryStep> step(QueryWork& work, const std::stop_token& stop) override {
    std::vector<Reduced> threads(std::max(1u, work.limits.threads));
    for (Reduced& each : threads) start(each);
    OFP_TRY(work.for_pieces(0, work.pieces.size(), stop, [&](unsigned thread, std::size_t piece) -> Status {
      reduce(work.pieces[piece], threads[thread]);
      return {};
    }));
    Reduced& all = threads.front();
    for (auto each = threads.begin() + 1; each != threads.end(); ++each) join(*each, all);
    OFP_ASSIGN(const auto partial, partial_answer(work, all));
    return answer_aggregates(work, partial);
  }

 private:
  struct Needs {
    bool sum = false, least = false, most = false;
  };

  void mark(AggregateFunction function, std::uint16_t result) {
    needs_.resize(std::max<std::size_t>(needs_.size(), result + 1u));
    Needs& needs = needs_[result];
    needs.sum |= function == AggregateFunction::sum || function == AggregateFunction::mean;
    needs.least |= function == AggregateFunction::min;
    needs.most |= function == AggregateFunction::max;
  }

  void start(Reduced& each) const {
    for (std::size_t r = 0; r < needs_.size(); ++r) {
      const Lane lane = program_.lane(static_cast<std::uint16_t>(r));
      each.accumulators.insert(each.accumulators.end(), {0, neutral<true>(lane), neutral<false>(lane)});
    }
  }

  void reduce(const Piece& piece, Reduced& into) const {
    into.registers.resize(program_.register_bytes());
    into.filter_registers.resize(filter_.register_bytes());
    into.numbers.resize(chunk_rows);
    for (std::size_t row = 0; row < piece.rows; row += chunk_rows) {
      std::size_t rows = std::min(chunk_rows, piece.rows - row);
      column_places(*piece.batch, piece.begin + static_cast<std::int64_t>(row), into.places);
      const std::byte* const* columns = into.places.data();
      if (has_filter_) {
        filter_.run(columns, into.filter_registers.data(), rows);
        const std::byte* const mask = filter_.result(0, columns, into.filter_registers.data());
        const std::size_t count =
            loops_.chosen(reinterpret_cast<const std::uint8_t*>(mask), rows, 0, into.numbers.data());
        if (count == 0) continue;
        if (count < rows) columns = gather(piece, into, count);
        rows = count;
      }
      into.rows += rows;
      program_.run(columns, into.registers.data(), rows);
      for (std::size_t r = 0; r < needs_.size(); ++r) take(static_cast<std::uint16_t>(r), columns, rows, into);
    }
  }

  const std::byte* const* gather(const Piece& piece, Reduced& into, std::size_t count) const {
    into.gathered.resize(into.places.size());
    into.values.resize(program_.columns().size() * chunk_register_bytes);
    std::byte* values = into.values.data();
    for (const int number : program_.columns()) {
      const auto place = static_cast<std::size_t>(number);
      const auto width = static_cast<std::size_t>(piece.batch->schema()->field(number)->type()->byte_width());
      loops_.gather[std::countr_zero(width)](into.places[place], into.numbers.data(), count, values);
      into.gathered[place] = values;
      values += chunk_register_bytes;
    }
    return into.gathered.data();
  }

  void take(std::uint16_t result, const std::byte* const* columns, std::size_t rows, Reduced& into) const {
    const auto lane = static_cast<std::size_t>(program_.lane(result));
    const std::byte* const values = program_.result(result, columns, into.registers.data());
    std::uint64_t* const to = into.accumulators.data() + result * accumulators_of_each;
    if (needs_[result].sum) loops_.sum[lane](values, rows, to);
    if (needs_[result].least) loops_.least[lane](values, rows, to + 1);
    if (needs_[result].most) loops_.most[lane](values, rows, to + 2);
  }

  void join(const Reduced& from, Reduced& into) const {
    into.rows += from.rows;
    for (std::size_t r = 0; r < needs_.size(); ++r) {
      const auto lane = static_cast<std::size_t>(wide(program_.lane(static_cast<std::uint16_t>(r))));
      const std::uint64_t* const values = from.accumulators.data() + r * accumulators_of_each;
      std::uint64_t* const to = into.accumulators.data() + r * accumulators_of_each;
      loops_.sum[lane](values, 1, to);
      loops_.least[lane](values + 1, 1, to + 1);
      loops_.most[lane](values + 2, 1, to + 2);
    }
  }

  Result<std::shared_ptr<arrow::Scalar>> scalar_of(const arrow::DataType& type, std::uint16_t result, std::size_t which,
                                                   const Reduced& all) const {
    const std::uint64_t bits = all.accumulators[result * accumulators_of_each + which];
    std::shared_ptr<arrow::Scalar> made;
    switch (wide(program_.lane(result))) {
      case Lane::f64:
        made = arrow::MakeScalar(std::bit_cast<double>(bits));
        break;
      case Lane::i64:
        made = arrow::MakeScalar(std::bit_cast<std::int64_t>(bits));
        break;
      default:
        made = arrow::MakeScalar(bits);
        break;
    }
    OFP_ARROW_ASSIGN(made, made->CastTo(type.GetSharedPtr()), "answering an aggregate");
    return made;
  }

  Result<std::shared_ptr<arrow::RecordBatch>> partial_answer(const QueryWork& work, const Reduced& all) const {
    arrow::ArrayVector columns;
    const auto add = [&](const std::shared_ptr<arrow::Scalar>& scalar) -> Status {
      OFP_ARROW_ASSIGN(auto column, arrow::MakeArrayFromScalar(*scalar, 1, work.memory.get()),
                       "answering an aggregate");
      columns.push_back(std::move(column));
      return {};
    };
    for (std::size_t i = 0; i < work.bound.aggregates.size(); ++i) {
      const AggregateFunction function = work.bound.aggregates[i].function;
      const auto count = arrow::MakeScalar(static_cast<std::int64_t>(all.rows));
      if (function == AggregateFunction::count) {
        OFP_TRY(add(count));
        continue;
      }
      const auto type = work.bound.output->field(static_cast<int>(columns.size()))->type();
      const std::size_t which = function == AggregateFunction::min ? 1 : function == AggregateFunction::max ? 2 : 0;
      if (all.rows == 0) {
        OFP_TRY(add(arrow::MakeNullScalar(type)));
      } else {
        OFP_ASSIGN(const auto value, scalar_of(*type, results_[i], which, all));
        OFP_TRY(add(value));
      }
      if (function == AggregateFunction::mean) OFP_TRY(add(count));
    }
    return arrow::RecordBatch::Make(work.bound.output, 1, std::move(columns));
  }

  const LoopTable& loops_;
  VectorProgram filter_, program_;
  bool has_filter_ = false;
  std::vector<std::uint16_t> results_;  // of each aggregate
  std::vector<Needs> needs_;            // of each result
};

}  // namespace

std::unique_ptr<QueryWay> make_aggregate_loops(const QueryWork& work, const LoopTable& loops) {
  auto made = std::make_unique<AggregateLoops>(loops);
  if (!made->compile(work)) return nullptr;
  return made;
}

}  // namespace offpath::pool
