#include "sift/tracks/track_reader.h"

#include <algorithm>

namespace offpath::sift {

TrackReader::TrackReader(TrackSnapshot snapshot, TrackQuery query, std::uint64_t rows_max)
    : snapshot_(std::move(snapshot)), query_(std::move(query)), rows_max_(std::max<std::uint64_t>(rows_max, 1)) {
  if (snapshot_.form() == nullptr) return;
  for (const TrackSnapshot::Group& group : snapshot_.groups())
    for (const auto& run : group.runs) may_leave_ = may_leave_ || run->may_leave();
  const RowForm& form = *snapshot_.form()->rows;
  const bool is_long = form.key().is_long();
  if (is_long && query_.identifiers) query_.long_identifiers.emplace();  // numbers are not among them
  if (query_.long_identifiers) {
    std::vector<std::string>& wanted = *query_.long_identifiers;
    if (!is_long) wanted.clear();
    std::ranges::sort(wanted);
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    return;
  }
  if (query_.identifiers) {
    std::vector<std::uint64_t>& wanted = *query_.identifiers;
    std::erase_if(wanted, [&](std::uint64_t identifier) { return !form.key().is_identifier(identifier); });
    std::ranges::sort(wanted, {}, [&](std::uint64_t identifier) { return key_of(form, identifier); });
    const auto same = [&](std::uint64_t a, std::uint64_t b) { return key_of(form, a) == key_of(form, b); };
    wanted.erase(std::unique(wanted.begin(), wanted.end(), same), wanted.end());
    return;
  }
  for (const TrackSnapshot::Group& group : snapshot_.groups())
    for (const auto& run : group.runs) {
      cursors_.emplace_back(*run);
      if (is_long)
        long_heads_->emplace_back();
      else if (!cursors_.back().at_end())
        heads_.push({cursors_.back().key(), cursors_.size() - 1});
    }
}

RowRange TrackReader::clip(const TrackBlock& block, RowRange range) const noexcept {
  const auto* const steps = block.steps().data();
  const auto* const first = std::lower_bound(steps + range.first, steps + range.end, query_.first_step);
  const auto* const end = std::upper_bound(first, steps + range.end, query_.last_step);
  return {static_cast<std::uint64_t>(first - steps), static_cast<std::uint64_t>(end - steps), range.key_number};
}

// ---- blocks

// Identifiers ascend, so a run's blocks are looked at one after the other.
Result<BlockPtr> TrackReader::look(const TrackRun& run, std::size_t number, const FrameMemory& memory) {
  const auto known = looked_.find(&run);
  if (known != looked_.end() && known->second.number == number) return known->second.block;
  OFP_ASSIGN(BlockPtr block, run.block(number, memory));
  Looked& looked = looked_[&run];
  leave(std::exchange(looked.block, block));
  looked.number = number;
  return block;
}

void TrackReader::leave(BlockPtr block) {
  if (block == nullptr) return;
  if (block->is_copy()) left_bytes_ += block->bytes();
  left_.push_back(std::move(block));
}

// Found rows go into a block of their own, so that their original blocks can be given up.
Status TrackReader::copy_found(const FrameMemory& memory) {
  const std::span<Stretch> rest = std::span(found_).subspan(copied_stretches_);
  if (!rest.empty()) {
    OFP_ASSIGN(BlockPtr block, TrackBlock::of(rest, *snapshot_.form()->rows, memory));
    std::uint64_t row = 0, number = 0;
    for (Stretch& stretch : rest) {
      while (block->rows_of(number).end <= row) ++number;
      stretch.block = block.get();
      stretch.key_number = number;
      stretch.first = std::exchange(row, row + stretch.rows);
    }
    copied_.push_back({std::move(block), rest.size()});
    copied_stretches_ = found_.size();
  }
  left_.clear();
  left_bytes_ = 0;
  return {};
}

// So many stretches from the front of found_ are in a frame.
void TrackReader::answered(std::size_t taken) {
  found_.erase(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(taken));
  taken = std::min(taken, copied_stretches_);
  copied_stretches_ -= taken;
  while (taken > 0) {
    const std::size_t some = std::min(taken, copied_.front().stretches);
    taken -= some;
    if ((copied_.front().stretches -= some) == 0) copied_.pop_front();
  }
}

// Before the caller gets its frame, which it may keep for long.
Status TrackReader::rest(const FrameMemory& memory) {
  if (!may_leave_) {
    if (found_.empty()) left_.clear();
    return {};
  }
  OFP_TRY(copy_found(memory));
  std::uint64_t read_bytes = 0;
  const auto count = [&](const BlockPtr& block) {
    if (block != nullptr && block->is_copy()) read_bytes += block->bytes();
  };
  for (const RunCursor& cursor : cursors_) count(cursor.block());
  for (const auto& [run, looked] : looked_) count(looked.block);
  const bool all = read_bytes > found_bytes_max;
  for (RunCursor& cursor : cursors_) cursor.rest(all);
  std::erase_if(looked_, [&](const auto& each) { return all || !each.second.block->is_copy(); });
  return {};
}

// ---- rows

template <class Key>
Status TrackReader::find_wanted(const Key& key, const TrackSnapshot::Group* group, const FrameMemory& memory) {
  if (group == nullptr) return {};
  for (const auto& run : group->runs) {
    const auto number = run->find_block(key);
    if (!number) continue;
    OFP_ASSIGN(const BlockPtr block, look(*run, *number, memory));
    ranges_.emplace_back(block.get(), clip(*block, block->find(key)));
  }
  return {};
}

// A run whose head is not among heads_. The whole of a long identifier is in its block.
Status TrackReader::push_head(std::size_t order, const FrameMemory& memory) {
  RunCursor& cursor = cursors_[order];
  if (long_heads_->empty()) {
    if (!cursor.at_end()) heads_.push({cursor.key(), order});
    return {};
  }
  OFP_TRY(cursor.open(memory));
  if (cursor.at_end()) return {};
  const LongKey key = cursor.long_key();
  (*long_heads_)[order] = text_of(key.bytes);
  heads_.push({key.head, order});
  return {};
}

Status TrackReader::open_long(const FrameMemory& memory) {
  long_open_ = true;
  for (std::size_t order = 0; order < cursors_.size(); ++order) OFP_TRY(push_head(order, memory));
  return {};
}

Status TrackReader::find_next(const FrameMemory& memory) {
  const std::uint64_t key = heads_.top().key;
  const bool is_long = !long_heads_->empty();
  const std::string long_key = is_long ? (*long_heads_)[heads_.top().order] : std::string();
  while (!heads_.empty() && heads_.top().key == key && (!is_long || (*long_heads_)[heads_.top().order] == long_key)) {
    const std::size_t order = heads_.top().order;
    heads_.pop();
    RunCursor& cursor = cursors_[order];
    OFP_TRY(cursor.open(memory));
    ranges_.emplace_back(cursor.block().get(), clip(*cursor.block(), cursor.rows()));
    leave(cursor.next());
    OFP_TRY(push_head(order, memory));
  }
  return {};
}

Result<bool> TrackReader::find_more(const FrameMemory& memory) {
  ranges_.clear();
  if (query_.long_identifiers) {
    if (next_identifier_ == query_.long_identifiers->size()) return false;
    const Bytes identifier = bytes_of((*query_.long_identifiers)[next_identifier_++]);
    OFP_TRY(find_wanted(LongKey::of(identifier), snapshot_.group_of(identifier), memory));
  } else if (query_.identifiers) {
    if (next_identifier_ == query_.identifiers->size()) return false;
    const std::uint64_t identifier = (*query_.identifiers)[next_identifier_++];
    OFP_TRY(find_wanted(key_of(*snapshot_.form()->rows, identifier), snapshot_.group_of(identifier), memory));
  } else {
    if (!long_open_ && !long_heads_->empty()) OFP_TRY(open_long(memory));
    if (heads_.empty()) return false;
    OFP_TRY(find_next(memory));
  }
  append_by_step(ranges_, found_);
  if (left_bytes_ > found_bytes_max) OFP_TRY(copy_found(memory));
  return true;
}

tl::unexpected<Failure> TrackReader::stop(Failure why) {
  failure_ = std::move(why);
  return tl::unexpected(*failure_);
}

Result<FramePtr> TrackReader::next(const FrameMemory& memory) {
  if (failure_) return tl::unexpected(*failure_);
  if (snapshot_.form() == nullptr || query_.first_step > query_.last_step) return nullptr;
  std::uint64_t rows = 0;
  std::size_t taken = 0;   // of found_
  std::uint64_t left = 0;  // rows of the last one taken that did not fit
  const bool is_text = snapshot_.form()->rows->key().is_text();
  std::uint64_t text_rows_max = UINT64_MAX;  // where identifiers have any length, so that these fit
  while (rows < std::min(rows_max_, text_rows_max)) {
    if (taken == found_.size()) {
      auto more = find_more(memory);
      if (!more) return stop(std::move(more).error());
      if (!*more) break;
    }
    for (; taken < found_.size() && rows < std::min(rows_max_, text_rows_max); ++taken) {
      if (is_text) {
        OFP_ASSIGN(text_rows_max, text_rows(found_[taken], taken == 0, rows));
      }
      rows += found_[taken].rows;
    }
  }
  if (rows == 0) return nullptr;
  if (const std::uint64_t most = std::min(rows_max_, text_rows_max); rows > most) {
    left = rows - most;
    found_[taken - 1].rows -= left;
    rows = most;
  }
  auto frame = answer({found_.data(), taken}, rows, memory);
  if (!frame) {
    found_[taken - 1].rows += left;
    return frame;
  }
  if (left > 0) {
    Stretch& split = found_[--taken];
    split.first += split.rows;
    split.rows = left;
  }
  answered(taken);
  if (Status rested = rest(memory); !rested) return stop(std::move(rested).error());
  return frame;
}

Result<const RowForm*> TrackReader::answers() {
  if (!query_.columns) return snapshot_.form()->answers.get();
  if (some_columns_ == nullptr) {
    OFP_ASSIGN(some_columns_, snapshot_.form()->answers_of(*query_.columns));
  }
  return some_columns_.get();
}

// Identifiers of any length make rows larger than the form's. A frame has as many bytes as rows_max_ rows without them,
// and at least one row. `rows` are in it before this stretch.
Result<std::uint64_t> TrackReader::text_rows(const Stretch& stretch, bool is_first, std::uint64_t rows) {
  OFP_ASSIGN(const RowForm* const form, answers());
  if (is_first && !checked_mul(rows_max_, form->row_bytes(), text_left_)) text_left_ = UINT64_MAX;
  const std::uint64_t row_bytes = form->row_bytes() + stretch.block->long_bytes(stretch.key_number).size();
  const std::uint64_t fit = std::min(stretch.rows, text_left_ / row_bytes);
  text_left_ -= fit * row_bytes;
  return fit == stretch.rows ? UINT64_MAX : std::max<std::uint64_t>(rows + fit, 1);
}

void TrackReader::fill_identifiers(std::span<const Stretch> stretches, std::byte* to, std::byte* text) const {
  const RowForm& form = *snapshot_.form()->rows;
  const KeyForm& key = form.key();
  const std::uint32_t width = form.key_bytes();
  TextTarget texts{to, text};
  for (const Stretch& stretch : stretches) {
    if (key.is_text()) {
      const Bytes value = stretch.block->long_bytes(stretch.key_number);
      for (std::uint64_t i = 0; i < stretch.rows; ++i) texts.add(value, width);
    } else if (key.is_long()) {
      const Bytes ordered = stretch.block->long_bytes(stretch.key_number);
      for (std::uint64_t i = 0; i < stretch.rows; ++i, to += width) key.restore(ordered.data(), to);
    } else {
      const std::uint64_t short_key = stretch.block->keys()[stretch.key_number];
      for (std::uint64_t i = 0; i < stretch.rows; ++i, to += width) key.store(short_key, to);
    }
  }
}

Result<FramePtr> TrackReader::answer(std::span<const Stretch> stretches, std::uint64_t rows,
                                     const FrameMemory& memory) {
  const RowForm& form = *snapshot_.form()->rows;
  std::uint64_t text_bytes = 0;
  if (form.key().is_text())
    for (const Stretch& stretch : stretches)
      text_bytes += stretch.rows * stretch.block->long_bytes(stretch.key_number).size();
  OFP_ASSIGN(const RowForm* const answered, answers());
  OFP_ASSIGN(RowForm::Made made, answered->make_frame(rows, memory, text_bytes));
  copy_steps(stretches, made.columns[0]);
  for (std::size_t place = 1; place < made.columns.size(); ++place) {
    const std::size_t column = query_.columns ? (*query_.columns)[place - 1] : place - 1;
    if (column == form.key_column())
      fill_identifiers(stretches, made.columns[place], made.text);
    else
      copy_column(stretches, column, form.widths()[column], made.columns[place]);
  }
  return made.frame;
}

}  // namespace offpath::sift
