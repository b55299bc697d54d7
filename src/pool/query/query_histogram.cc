// Histograms: filter and axes are computed by libarrow's kernels, a piece of rows at a time, and a loop counts. Each
// thread has counts of its own, which are added at the end.
#include <algorithm>

#include <arrow/compute/api.h>

#include "pool/query/query_work.h"

namespace offpath::pool {

namespace cp = arrow::compute;

namespace {

// One axis: the bin of a value. Edges equal numpy.linspace's to the bit, because this file is compiled without
// contraction.
class Bins {
 public:
  explicit Bins(const HistogramAxis& axis)
      : low_(axis.low), high_(axis.high), step_((axis.high - axis.low) / axis.bins), last_(axis.bins - 1) {}

  // Adds the bin of each value, times `stride`, to its cell. Values in no bin make the cell `none`.
  void add_to(const double* values, std::size_t rows, std::uint32_t stride, std::uint32_t* cells) const {
    for (std::size_t i = 0; i < rows; ++i) {
      const double value = values[i];
      if (!(value >= low_ && value <= high_)) {  // NaN as well
        cells[i] = none;
        continue;
      }
      if (cells[i] == none) continue;
      cells[i] += bin_of(value) * stride;
    }
  }

  static constexpr std::uint32_t none = ~0u;

 private:
  [[nodiscard]] double edge(std::uint32_t bin) const { return bin > last_ ? high_ : bin * step_ + low_; }
  [[nodiscard]] std::uint32_t bin_of(double value) const {
    const double about = (value - low_) / step_;
    std::uint32_t bin = about < last_ ? static_cast<std::uint32_t>(about) : last_;
    if (value < edge(bin))
      --bin;
    else if (bin < last_ && value >= edge(bin + 1))
      ++bin;
    return bin;
  }

  double low_, high_, step_;
  std::uint32_t last_;
};

struct Counts {
  std::vector<std::shared_ptr<arrow::Buffer>> cells;  // of each histogram; int64
  std::vector<std::uint32_t> numbers;                 // of the cells of the rows at hand
};

std::int64_t* counts_in(arrow::Buffer& buffer) { return reinterpret_cast<std::int64_t*>(buffer.mutable_data()); }

class Histograms final : public QueryWay {
 public:
  Result<QueryStep> step(QueryWork& work, const std::stop_token& stop) override {
    std::vector<Counts> threads(std::max(1u, work.limits.threads));
    for (Counts& each : threads) OFP_TRY(start(work, each));
    std::vector<std::vector<Bins>> bins;
    for (const Aggregate& aggregate : work.query.aggregates)
      bins.emplace_back(aggregate.axes.begin(), aggregate.axes.end());
    OFP_TRY(work.for_pieces(0, work.pieces.size(), stop, [&](unsigned thread, std::size_t piece) -> Status {
      return count(work, bins, work.pieces[piece], threads[thread]);
    }));
    arrow::ArrayVector columns;
    for (std::size_t i = 0; i < work.query.aggregates.size(); ++i) {
      const auto cells = static_cast<std::int64_t>(cells_of(work.query.aggregates[i]));
      std::int64_t* const sums = counts_in(*threads.front().cells[i]);
      for (auto each = threads.begin() + 1; each != threads.end(); ++each) {
        const std::int64_t* const counts = counts_in(*each->cells[i]);
        for (std::int64_t cell = 0; cell < cells; ++cell) sums[cell] += counts[cell];
      }
      const auto flat = std::make_shared<arrow::Int64Array>(cells, threads.front().cells[i]);
      columns.push_back(
          std::make_shared<arrow::FixedSizeListArray>(work.bound.output->field(static_cast<int>(i))->type(), 1, flat));
    }
    return answer_aggregates(work, arrow::RecordBatch::Make(work.bound.output, 1, std::move(columns)));
  }

 private:
  static Status start(const QueryWork& work, Counts& each) {
    for (const Aggregate& aggregate : work.query.aggregates) {
      const auto bytes = static_cast<std::int64_t>(cells_of(aggregate) * sizeof(std::int64_t));
      OFP_ARROW_ASSIGN(std::shared_ptr<arrow::Buffer> cells, arrow::AllocateBuffer(bytes, work.memory.get()),
                       "counting");
      std::fill_n(cells->mutable_data(), bytes, std::uint8_t{0});
      each.cells.push_back(std::move(cells));
    }
    each.numbers.resize(piece_rows_max);
    return {};
  }

  static Status count(const QueryWork& work, const std::vector<std::vector<Bins>>& bins, const Piece& piece,
                      Counts& into) {
    cp::ExecContext context(work.memory.get());
    context.set_use_threads(false);
    OFP_ASSIGN(const cp::ExecBatch rows, chosen(work, piece, context));
    if (rows.length == 0) return {};
    const auto length = static_cast<std::size_t>(rows.length);
    for (std::size_t i = 0; i < bins.size(); ++i) {
      std::fill_n(into.numbers.data(), length, 0u);
      std::uint32_t stride = 1;
      for (std::size_t axis = bins[i].size(); axis-- > 0;) {
        OFP_TRY(add_axis(work.bound.aggregates[i].axes[axis], bins[i][axis], rows, stride, context, into));
        stride *= work.query.aggregates[i].axes[axis].bins;
      }
      std::int64_t* const cells = counts_in(*into.cells[i]);
      for (std::size_t row = 0; row < length; ++row)
        if (into.numbers[row] != Bins::none) ++cells[into.numbers[row]];
    }
    return {};
  }

  // The rows of the piece that pass the filter.
  static Result<cp::ExecBatch> chosen(const QueryWork& work, const Piece& piece, cp::ExecContext& context) {
    std::shared_ptr<arrow::RecordBatch> batch = piece.batch->Slice(piece.begin, static_cast<std::int64_t>(piece.rows));
    if (work.bound.filter) {
      OFP_ARROW_ASSIGN(const arrow::Datum mask,
                       cp::ExecuteScalarExpression(*work.bound.filter, cp::ExecBatch(*batch), &context), "filtering");
      if (mask.is_scalar()) {
        const bool holds = mask.scalar()->is_valid && static_cast<const arrow::BooleanScalar&>(*mask.scalar()).value;
        return cp::ExecBatch(holds ? *batch : *batch->Slice(0, 0));
      }
      OFP_ARROW_ASSIGN(const arrow::Datum kept, cp::Filter(batch, mask, cp::FilterOptions::Defaults(), &context),
                       "filtering");
      batch = kept.record_batch();
    }
    return cp::ExecBatch(*batch);
  }

  static Status add_axis(const cp::Expression& axis, const Bins& bins, const cp::ExecBatch& rows, std::uint32_t stride,
                         cp::ExecContext& context, Counts& into) {
    OFP_ARROW_ASSIGN(const arrow::Datum found, cp::ExecuteScalarExpression(axis, rows, &context), "counting");
    std::shared_ptr<arrow::Array> values;
    if (found.is_scalar()) {
      OFP_ARROW_ASSIGN(values, arrow::MakeArrayFromScalar(*found.scalar(), rows.length, context.memory_pool()),
                       "counting");
    } else {
      values = found.make_array();
    }
    const auto& numbers = static_cast<const arrow::DoubleArray&>(*values);
    bins.add_to(numbers.raw_values(), static_cast<std::size_t>(rows.length), stride, into.numbers.data());
    if (numbers.null_count() == 0) return {};
    for (std::int64_t row = 0; row < rows.length; ++row)
      if (numbers.IsNull(row)) into.numbers[static_cast<std::size_t>(row)] = Bins::none;
    return {};
  }
};

}  // namespace

std::unique_ptr<QueryWay> make_histograms() { return std::make_unique<Histograms>(); }

}  // namespace offpath::pool
