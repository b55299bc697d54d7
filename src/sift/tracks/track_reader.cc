#include "sift/tracks/track_reader.h"

#include <algorithm>

namespace offpath::sift {

TrackReader::TrackReader(TrackSnapshot snapshot, TrackQuery query, std::uint64_t rows_max)
    : snapshot_(std::move(snapshot)), query_(std::move(query)), rows_max_(std::max<std::uint64_t>(rows_max, 1)) {
  if (snapshot_.form() == nullptr) return;
  if (query_.identifiers) {
    const RowForm& form = *snapshot_.form()->rows;
    std::vector<std::uint64_t>& wanted = *query_.identifiers;
    std::ranges::sort(wanted, {}, [&](std::uint64_t identifier) { return key_of(form, identifier); });
    const auto same = [&](std::uint64_t a, std::uint64_t b) { return key_of(form, a) == key_of(form, b); };
    wanted.erase(std::unique(wanted.begin(), wanted.end(), same), wanted.end());
    return;
  }
  std::size_t order = 0;
  for (const TrackSnapshot::Group& group : snapshot_.groups())
    for (const auto& run : group.runs) heads_.push({run->keys()[0], order++, run.get(), 0});
}

RowRange TrackReader::clip(const TrackRun& run, RowRange range) const noexcept {
  const auto* const steps = run.steps().data();
  const auto* const first = std::lower_bound(steps + range.first, steps + range.end, query_.first_step);
  const auto* const end = std::upper_bound(first, steps + range.end, query_.last_step);
  return {static_cast<std::uint64_t>(first - steps), static_cast<std::uint64_t>(end - steps)};
}

bool TrackReader::find_more() {
  ranges_.clear();
  std::uint64_t key = 0;
  if (query_.identifiers) {
    if (next_identifier_ == query_.identifiers->size()) return false;
    const std::uint64_t identifier = (*query_.identifiers)[next_identifier_++];
    key = key_of(*snapshot_.form()->rows, identifier);
    if (const TrackSnapshot::Group* group = snapshot_.group_of(identifier))
      for (const auto& run : group->runs) ranges_.emplace_back(run.get(), clip(*run, run->find(key)));
  } else {
    if (heads_.empty()) return false;
    key = heads_.top().key;
    while (!heads_.empty() && heads_.top().key == key) {
      Head head = heads_.top();
      heads_.pop();
      ranges_.emplace_back(head.run, clip(*head.run, head.run->rows_of(head.key_number)));
      if (++head.key_number == head.run->keys().size()) continue;
      head.key = head.run->keys()[head.key_number];
      heads_.push(head);
    }
  }
  append_by_step(key, ranges_, found_);
  return true;
}

Result<FramePtr> TrackReader::next(const FrameMemory& memory) {
  if (snapshot_.form() == nullptr || query_.first_step > query_.last_step) return nullptr;
  std::uint64_t rows = 0;
  std::size_t taken = 0;   // of found_
  std::uint64_t left = 0;  // rows of the last one taken that did not fit
  while (rows < rows_max_) {
    if (taken == found_.size() && !find_more()) break;
    for (; taken < found_.size() && rows < rows_max_; ++taken) rows += found_[taken].rows;
  }
  if (rows == 0) return nullptr;
  if (rows > rows_max_) {
    left = rows - rows_max_;
    found_[taken - 1].rows -= left;
    rows = rows_max_;
  }
  const auto frame = answer({found_.data(), taken}, rows, memory);
  if (!frame) {
    found_[taken - 1].rows += left;
    return frame;
  }
  if (left > 0) {
    Stretch& split = found_[--taken];
    split.first += split.rows;
    split.rows = left;
  }
  found_.erase(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(taken));
  return frame;
}

Result<FramePtr> TrackReader::answer(std::span<const Stretch> stretches, std::uint64_t rows,
                                     const FrameMemory& memory) {
  const RowForm& form = *snapshot_.form()->rows;
  if (query_.columns && some_columns_ == nullptr) {
    OFP_ASSIGN(some_columns_, snapshot_.form()->answers_of(*query_.columns));
  }
  const RowForm& answers = query_.columns ? *some_columns_ : *snapshot_.form()->answers;
  OFP_ASSIGN(RowForm::Made made, answers.make_frame(rows, memory));
  copy_steps(stretches, made.columns[0]);
  for (std::size_t place = 1; place < made.columns.size(); ++place) {
    const std::size_t column = query_.columns ? (*query_.columns)[place - 1] : place - 1;
    std::byte* to = made.columns[place];
    if (column != form.key_column()) {
      copy_column(stretches, column, form.widths()[column], to);
      continue;
    }
    for (const Stretch& stretch : stretches)
      for (std::uint64_t i = 0; i < stretch.rows; ++i, to += form.key_bytes()) store_key(form, stretch.key, to);
  }
  return made.frame;
}

}  // namespace offpath::sift
