#include "sift/tracks/compaction.h"

#include <algorithm>
#include <cstring>

namespace offpath::sift {

std::vector<Segment> segments_of(const std::vector<Piece>& pieces) {
  std::vector<Segment> segments;
  for (std::uint32_t number = 0; number < pieces.size(); ++number) {
    std::uint64_t row = 0;
    for (const StepRun& run : pieces[number].runs) {
      segments.push_back({run.step, number, row, run.rows});
      row += run.rows;
    }
  }
  std::ranges::stable_sort(segments, {}, &Segment::step);
  return segments;
}

namespace {

constexpr std::uint64_t placed_rows = 1 << 14;  // at a time, where places are computed

// Calls `each` with stretches of the segment's rows: their places, and their first row in the piece.
template <class Each>
void each_stretch(const KeyForm& key, const Piece& piece, const Segment& segment, std::vector<std::uint64_t>& places,
                  const Each& each) {
  const std::byte* values = piece.view.ids.values + segment.first_row * piece.view.ids.value_bytes;
  if (key.is_placed_by_value())
    return each(Identifiers{values, piece.view.ids.value_bytes, segment.rows}, segment.first_row);
  for (std::uint64_t row = 0; row < segment.rows; row += placed_rows) {
    places.resize(std::min(placed_rows, segment.rows - row));
    if (key.is_long()) {
      for (std::size_t i = 0; i < places.size(); ++i)
        places[i] = key.place_of_value(piece.view.value_of_id(segment.first_row + row + i));
    } else {
      for (std::uint64_t& place : places) {
        place = key.place_of(key.key_of(values));
        values += key.value_bytes();
      }
    }
    each(Identifiers{reinterpret_cast<const std::byte*>(places.data()), sizeof(std::uint64_t), places.size()},
         segment.first_row + row);
  }
}

// A split that is under way.
class Split {
 public:
  Split(const RowForm& form, const std::vector<Piece>& pieces, SplitBits bits)
      : form_(form), pieces_(pieces), bits_(bits), segments_(segments_of(pieces)), all_(bits.parts()) {
    for (std::uint32_t column = 0; column < form.widths().size(); ++column)
      if (column != form.key_column() || !form.key().is_text()) moved_.push_back(column);
  }

  void count() {
    const std::uint32_t parts = bits_.parts();
    std::vector<std::uint64_t> counts(parts);
    totals_.resize(parts);
    text_bytes_.resize(parts);
    for (const Segment& segment : segments_) {
      std::ranges::fill(counts, 0);
      const Piece& piece = pieces_[segment.piece];
      each_stretch(form_.key(), piece, segment, places_, [&](const Identifiers& rows, std::uint64_t first) {
        count_parts(rows, bits_, counts);
        if (!form_.key().is_text()) return;
        for (std::size_t i = 0; i < places_.size(); ++i)
          text_bytes_[bits_.part_of(places_[i])] += piece.view.value_of_id(first + i).size();
      });
      for (std::uint32_t part = 0; part < parts; ++part) {
        if (counts[part] == 0) continue;
        totals_[part] += counts[part];
        std::vector<StepRun>& runs = all_[part].runs;
        if (!runs.empty() && runs.back().step == segment.step)
          runs.back().rows += counts[part];
        else
          runs.push_back({segment.step, counts[part]});
      }
    }
  }

  [[nodiscard]] Status lay_out(const FrameMemory& memory) {
    const std::uint32_t parts = bits_.parts();
    targets_.resize(moved_.size() * parts);
    made_.resize(parts);
    texts_.resize(form_.key().is_text() ? parts : 0);
    for (std::uint32_t part = 0; part < parts; ++part) {
      if (totals_[part] == 0) continue;
      OFP_ASSIGN(RowForm::Made made, form_.make_frame(totals_[part], memory, text_bytes_[part]));
      all_[part].number = part;
      all_[part].frame = std::move(made.frame);
      for (std::size_t i = 0; i < moved_.size(); ++i) targets_[i * parts + part] = made.columns[moved_[i]];
      std::byte* const ids = made.columns[form_.key_column()];
      if (!texts_.empty()) texts_[part] = {ids, made.text};
      made_[part].ids = {ids, form_.key_bytes(), totals_[part]};
      made_[part].text = made.text;
      made_[part].long_bytes = text_bytes_[part];
    }
    return {};
  }

  [[nodiscard]] std::vector<Part> fill() {
    Partition partition(bits_);
    std::vector<Column> sources(moved_.size());
    for (const Segment& segment : segments_) {
      const Piece& piece = pieces_[segment.piece];
      each_stretch(form_.key(), piece, segment, places_, [&](const Identifiers& rows, std::uint64_t first) {
        for (std::size_t i = 0; i < moved_.size(); ++i) {
          sources[i] = piece.view.columns[moved_[i]];
          sources[i].values += first * sources[i].value_bytes;
        }
        partition.split(rows, sources, targets_);
        for (std::size_t i = 0; i < places_.size() && !texts_.empty(); ++i)
          texts_[bits_.part_of(places_[i])].add(piece.view.value_of_id(first + i), form_.key_bytes());
      });
    }
    for (std::uint32_t part = 0; part < all_.size(); ++part)
      if (totals_[part] > 0) all_[part].crc32c_of_identifiers = crc32c_of_identifiers(made_[part]);
    std::erase_if(all_, [](const Part& part) { return part.frame == nullptr; });
    return std::move(all_);
  }

 private:
  const RowForm& form_;
  const std::vector<Piece>& pieces_;
  SplitBits bits_;
  std::vector<Segment> segments_;
  std::vector<Part> all_;  // by number, until those without rows are left out
  std::vector<std::uint64_t> totals_, text_bytes_, places_;
  std::vector<std::uint32_t> moved_;  // columns whose rows have the same number of bytes
  std::vector<std::byte*> targets_;   // of those, as Partition has them
  std::vector<TextTarget> texts_;     // of identifiers of any length, by part
  std::vector<RowsView> made_;        // the identifiers of each part
};

}  // namespace

Result<std::vector<Part>> split_pieces(const RowForm& form, const std::vector<Piece>& pieces, SplitBits bits,
                                       const FrameMemory& memory) {
  Split split(form, pieces, bits);
  split.count();
  OFP_TRY(split.lay_out(memory));
  return split.fill();
}

std::uint64_t parts_bytes_max(std::uint64_t rows, std::uint32_t row_bytes, std::uint32_t parts,
                              std::uint32_t overhead_bytes) noexcept {
  // A buffer has up to an eighth more than was requested, and ends on a page.
  const std::uint64_t bytes = rows * row_bytes + std::uint64_t{parts} * overhead_bytes;
  return bytes + bytes / 8 + std::uint64_t{parts} * 2 * page_bytes;
}

}  // namespace offpath::sift
