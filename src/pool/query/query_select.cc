// Whole rows or computed columns, by loops, in two passes over pieces for a few frames. The first chooses rows; the
// second, knowing their number, writes their values straight into the answer's frames.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "pool/query/query_work.h"

namespace offpath::pool {

namespace {

// A column of the answer: copied from one of the input, or a result of the program.
struct Column {
  int copied = -1;
  std::uint16_t result = 0;
  std::size_t width = 0;
  std::optional<std::size_t> kept_at;  // bytes of a row kept before this column; nothing: the column is not kept
};

// Of a piece. If few rows are chosen, columns that both filter and answer need are copied while they are in the core's
// cache, so they are not read from memory again.
struct Chosen {
  bool all = false;
  std::vector<std::uint16_t> numbers;  // rows of the piece
  std::size_t count = 0;
  std::unique_ptr<arrow::Buffer> kept;  // column by column, each with room for kept_rows
  std::size_t kept_rows = 0;
};
constexpr std::size_t kept_part = 4;  // at most one of so many rows of a piece is kept

struct Scratch {
  std::vector<const std::byte*> places, gathered;
  std::vector<std::byte> registers, filter_registers, values;
  std::vector<std::uint8_t> mask;
};

class SelectLoops final : public QueryWay {
 public:
  SelectLoops(const LoopTable& loops) : loops_(loops), filter_(loops), program_(loops) {}

  bool compile(const QueryWork& work) {
    if (work.bound.filter) {
      const auto result = filter_.add(*work.bound.filter);
      if (!result || filter_.lane(*result) != Lane::mask) return false;
      has_filter_ = true;
      for (const int column : filter_.columns())
        filter_widths_.push_back(static_cast<std::size_t>(work.bound.input->field(column)->type()->byte_width()));
    }
    for (const auto& projection : work.bound.projections) {
      const auto* const parameter = projection.expression.parameter();
      const arrow::DataType& type = *projection.expression.type();
      Column column;
      if (parameter != nullptr && parameter->indices.size() == 1) {
        if (!arrow::is_primitive(type.id()) || type.id() == arrow::Type::BOOL || type.byte_width() > 8) return false;
        column.copied = parameter->indices[0];
        column.width = static_cast<std::size_t>(type.byte_width());
      } else {
        const auto lane = lane_of(type);
        const auto result = lane ? program_.add(projection.expression) : std::nullopt;
        if (!result || program_.lane(*result) != *lane || program_.is_constant(*result)) return false;
        column.result = *result;
        column.width = lane_bytes(*lane);
        computes_ = true;
      }
      row_bytes_ += column.width;
      if (column.copied >= 0 && std::ranges::count(filter_.columns(), column.copied) != 0)
        column.kept_at = std::exchange(kept_row_bytes_, kept_row_bytes_ + column.width);
      columns_.push_back(column);
    }
    return filter_.finish() && program_.finish();
  }

  Result<QueryStep> step(QueryWork& work, const std::stop_token& stop) override {
    QueryStep done;
    std::uint64_t answered = 0;
    do {
      OFP_TRY(take_wave(work, stop, done, answered));
    } while (next_ < work.pieces.size() && answered < work.limits.step_bytes);
    done.finished = next_ == work.pieces.size();
    if (done.frames.empty() && !answered_) {
      OFP_ASSIGN(OpenFrame none, open_frame(work.bound.output, 0, *work.cache, work.user, *work.memory));
      done.frames.push_back(std::move(none.frame));
    }
    answered_ |= !done.frames.empty();
    return done;
  }

 private:
  // Takes pieces until there is enough for a step's frames, by an estimate before they are read.
  Status take_wave(QueryWork& work, const std::stop_token& stop, QueryStep& done, std::uint64_t& answered) {
    const std::size_t begin = next_;
    const std::uint64_t row_bytes = std::max<std::uint64_t>(row_bytes_, 1);
    const std::uint64_t wave_bytes = work.limits.step_bytes * (has_filter_ ? 2 : 1);
    std::uint64_t rows = 0;
    while (next_ < work.pieces.size() && (next_ == begin || rows * row_bytes < wave_bytes))
      rows += work.pieces[next_++].rows;
    chosen_.clear();
    chosen_.resize(next_ - begin);
    scratch_.resize(std::max(1u, work.limits.threads));
    OFP_TRY(work.for_pieces(begin, next_, stop, [&](unsigned thread, std::size_t piece) -> Status {
      choose(work.pieces[piece], scratch_[thread], chosen_[piece - begin], *work.memory);
      return {};
    }));
    std::vector<OpenFrame> frames;
    std::vector<std::pair<std::size_t, std::size_t>> places;  // of each piece: its frame, and its first row there
    OFP_TRY(open_frames(work, frames, places, answered));
    OFP_TRY(work.for_pieces(begin, next_, stop, [&](unsigned thread, std::size_t piece) -> Status {
      const auto [frame, row] = places[piece - begin];
      Chosen& chosen = chosen_[piece - begin];
      if (chosen.count > 0) fill(work.pieces[piece], scratch_[thread], chosen, frames[frame].columns, row);
      chosen = {};
      return {};
    }));
    for (OpenFrame& frame : frames) done.frames.push_back(std::move(frame.frame));
    return {};
  }

  Status open_frames(QueryWork& work, std::vector<OpenFrame>& frames,
                     std::vector<std::pair<std::size_t, std::size_t>>& places, std::uint64_t& answered) {
    std::vector<std::uint64_t> rows;
    for (const Chosen& chosen : chosen_) {
      const bool full = !rows.empty() && (rows.back() + chosen.count) * row_bytes_ > work.limits.frame_bytes_max;
      if (chosen.count > 0 && (rows.empty() || full)) rows.push_back(0);
      places.emplace_back(rows.empty() ? 0 : rows.size() - 1, rows.empty() ? 0 : rows.back());
      if (!rows.empty()) rows.back() += chosen.count;
      answered += chosen.count * row_bytes_;
    }
    if (answered > work.limits.memory_bytes_max)
      return fail(Error::no_memory, "the query answers {} bytes at once, its limit is {} (queries.memory_max)",
                  answered, work.limits.memory_bytes_max);
    for (const std::uint64_t count : rows) {
      OFP_ASSIGN(OpenFrame frame, open_frame(work.bound.output, count, *work.cache, work.user, *work.memory));
      frames.push_back(std::move(frame));
    }
    return {};
  }

  void choose(const Piece& piece, Scratch& scratch, Chosen& chosen, arrow::MemoryPool& memory) const {
    if (!has_filter_) {
      chosen.all = true;
      chosen.count = piece.rows;
      return;
    }
    scratch.filter_registers.resize(filter_.register_bytes());
    chosen.numbers.resize(piece.rows);
    chosen.kept_rows = piece.rows / kept_part / 8 * 8;  // values stay aligned
    if (kept_row_bytes_ > 0)                            // without memory no column is kept
      chosen.kept = arrow::AllocateBuffer(static_cast<std::int64_t>(chosen.kept_rows * kept_row_bytes_), &memory)
                        .ValueOr(nullptr);
    for (std::size_t row = 0; row < piece.rows; row += chunk_rows) {
      const std::size_t rows = std::min(chunk_rows, piece.rows - row);
      column_places(*piece.batch, piece.begin + static_cast<std::int64_t>(row), scratch.places);
      fetch_ahead(scratch.places, rows, std::min(chunk_rows, piece.rows - row - rows));
      filter_.run(scratch.places.data(), scratch.filter_registers.data(), rows);
      const std::byte* const mask = filter_.result(0, scratch.places.data(), scratch.filter_registers.data());
      const std::size_t here = loops_.chosen(reinterpret_cast<const std::uint8_t*>(mask), rows,
                                             static_cast<std::uint16_t>(row), chosen.numbers.data() + chosen.count);
      if (chosen.count + here > chosen.kept_rows) chosen.kept.reset();
      if (chosen.kept) keep(scratch.places, row, chosen, here);
      chosen.count += here;
    }
    chosen.all = chosen.count == piece.rows;
  }

  // Prefetches the filter's columns of the next chunk, `count` rows after these. Processors prefetch within a page
  // only, and a chunk of a column is not much more.
  void fetch_ahead(const std::vector<const std::byte*>& places, std::size_t rows, std::size_t count) const {
    constexpr std::size_t line_bytes = 64;
    for (std::size_t i = 0; i < filter_.columns().size(); ++i) {
      const std::byte* const next = places[static_cast<std::size_t>(filter_.columns()[i])] + rows * filter_widths_[i];
      for (std::size_t at = 0; at < count * filter_widths_[i]; at += line_bytes) __builtin_prefetch(next + at);
    }
  }

  // The `count` rows chosen last, from the chunk that begins at `row`.
  void keep(const std::vector<const std::byte*>& places, std::size_t row, Chosen& chosen, std::size_t count) const {
    for (const Column& column : columns_)
      if (column.kept_at)
        gather(places[static_cast<std::size_t>(column.copied)] - row * column.width, column.width, chosen, chosen.count,
               count, kept(chosen, column) + chosen.count * column.width);
  }

  static std::byte* kept(const Chosen& chosen, const Column& column) {
    return reinterpret_cast<std::byte*>(chosen.kept->mutable_data()) + *column.kept_at * chosen.kept_rows;
  }

  void gather(const std::byte* from, std::size_t width, const Chosen& chosen, std::size_t begin, std::size_t count,
              std::byte* to) const {
    if (chosen.all)
      std::memcpy(to, from + begin * width, count * width);
    else
      loops_.gather[std::countr_zero(width)](from, chosen.numbers.data() + begin, count, to);
  }

  void fill(const Piece& piece, Scratch& scratch, const Chosen& chosen, const std::vector<std::byte*>& to,
            std::size_t row) const {
    column_places(*piece.batch, piece.begin, scratch.places);
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const Column& column = columns_[c];
      if (column.kept_at && chosen.kept)
        std::memcpy(to[c] + row * column.width, kept(chosen, column), chosen.count * column.width);
      else if (column.copied >= 0)
        gather(scratch.places[static_cast<std::size_t>(column.copied)], column.width, chosen, 0, chosen.count,
               to[c] + row * column.width);
    }
    if (computes_) compute(piece, scratch, chosen, to, row);
  }

  // The program's inputs are gathered chunk by chunk, so it computes only for rows that are chosen.
  void compute(const Piece& piece, Scratch& scratch, const Chosen& chosen, const std::vector<std::byte*>& to,
               std::size_t row) const {
    scratch.registers.resize(program_.register_bytes());
    scratch.gathered.resize(scratch.places.size());
    scratch.values.resize(program_.columns().size() * chunk_register_bytes);
    for (std::size_t begin = 0; begin < chosen.count; begin += chunk_rows) {
      const std::size_t count = std::min(chunk_rows, chosen.count - begin);
      std::byte* values = scratch.values.data();
      for (const int number : program_.columns()) {
        const auto place = static_cast<std::size_t>(number);
        const auto width = static_cast<std::size_t>(piece.batch->schema()->field(number)->type()->byte_width());
        gather(scratch.places[place], width, chosen, begin, count, values);
        scratch.gathered[place] = values;
        values += chunk_register_bytes;
      }
      program_.run(scratch.gathered.data(), scratch.registers.data(), count);
      for (std::size_t c = 0; c < columns_.size(); ++c)
        if (const Column& column = columns_[c]; column.copied < 0)
          std::memcpy(to[c] + (row + begin) * column.width,
                      program_.result(column.result, scratch.gathered.data(), scratch.registers.data()),
                      count * column.width);
    }
  }

  const LoopTable& loops_;
  VectorProgram filter_, program_;
  std::vector<Column> columns_;
  std::vector<std::size_t> filter_widths_;  // of the columns that the filter reads
  bool has_filter_ = false, computes_ = false, answered_ = false;
  std::uint64_t row_bytes_ = 0, kept_row_bytes_ = 0;
  std::size_t next_ = 0;
  std::vector<Chosen> chosen_;
  std::vector<Scratch> scratch_;
};

}  // namespace

std::unique_ptr<QueryWay> make_select_loops(const QueryWork& work, const LoopTable& loops) {
  auto made = std::make_unique<SelectLoops>(loops);
  if (!made->compile(work)) return nullptr;
  return made;
}

}  // namespace offpath::pool
