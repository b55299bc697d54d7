#include "sift/tracks/compaction.h"

#include <algorithm>

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

Identifiers ids_of(const Piece& piece, const Segment& segment) noexcept {
  Identifiers ids = piece.view.ids;
  ids.values += segment.first_row * ids.value_bytes;
  ids.rows = segment.rows;
  return ids;
}

}  // namespace

Result<std::vector<Part>> split_pieces(const RowForm& form, const std::vector<Piece>& pieces, SplitBits bits,
                                       const FrameMemory& memory) {
  const std::uint32_t parts = bits.parts();
  const std::size_t columns = form.widths().size();
  const std::vector<Segment> segments = segments_of(pieces);

  std::vector<Part> all(parts);
  std::vector<std::uint64_t> counts(parts), totals(parts);
  for (const Segment& segment : segments) {
    std::ranges::fill(counts, 0);
    count_parts(ids_of(pieces[segment.piece], segment), bits, counts);
    for (std::uint32_t part = 0; part < parts; ++part) {
      if (counts[part] == 0) continue;
      totals[part] += counts[part];
      std::vector<StepRun>& runs = all[part].runs;
      if (!runs.empty() && runs.back().step == segment.step)
        runs.back().rows += counts[part];
      else
        runs.push_back({segment.step, counts[part]});
    }
  }

  std::vector<std::byte*> targets(columns * parts);
  std::vector<const std::byte*> ids(parts);
  for (std::uint32_t part = 0; part < parts; ++part) {
    if (totals[part] == 0) continue;
    OFP_ASSIGN(RowForm::Made made, form.make_frame(totals[part], memory));
    all[part].number = part;
    all[part].frame = std::move(made.frame);
    ids[part] = made.columns[form.key_column()];
    for (std::size_t column = 0; column < columns; ++column) targets[column * parts + part] = made.columns[column];
  }

  Partition partition(bits);
  std::vector<Column> sources(columns);
  for (const Segment& segment : segments) {
    const Piece& piece = pieces[segment.piece];
    for (std::size_t column = 0; column < columns; ++column) {
      sources[column] = piece.view.columns[column];
      sources[column].values += segment.first_row * sources[column].value_bytes;
    }
    partition.split(ids_of(piece, segment), sources, targets);
  }
  for (std::uint32_t part = 0; part < parts; ++part)
    if (totals[part] > 0) all[part].crc32c_of_identifiers = crc32c({ids[part], totals[part] * form.key_bytes()});
  std::erase_if(all, [](const Part& part) { return part.frame == nullptr; });
  return all;
}

std::uint64_t parts_bytes_max(std::uint64_t rows, std::uint32_t row_bytes, std::uint32_t parts,
                              std::uint32_t overhead_bytes) noexcept {
  // A buffer has up to an eighth more than was requested, and ends on a page.
  const std::uint64_t bytes = rows * row_bytes + std::uint64_t{parts} * overhead_bytes;
  return bytes + bytes / 8 + std::uint64_t{parts} * 2 * page_bytes;
}

}  // namespace offpath::sift
