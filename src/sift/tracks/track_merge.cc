// Runs of tracks that are merged into one, and stretches of some runs that become a block.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "sift/tracks/track_layout.h"
#include "sift/tracks/track_run.h"

namespace offpath::sift {

namespace {

template <class Key>
Key key_in(const TrackBlock& block, std::size_t number) noexcept {
  if constexpr (std::is_same_v<Key, LongKey>)
    return block.long_key(number);
  else
    return block.keys()[number];
}
template <class Key>
Key key_at(const RunCursor& cursor) noexcept {
  if constexpr (std::is_same_v<Key, LongKey>)
    return cursor.long_key();
  else
    return cursor.key();
}

}  // namespace

void append_by_step(std::vector<std::pair<const TrackBlock*, RowRange>>& ranges, std::vector<Stretch>& stretches) {
  std::erase_if(ranges, [](const auto& each) { return each.second.first == each.second.end; });
  // The range with the smallest next step gives all its rows up to the next range's step; usually that is all of them,
  // because pieces of later steps arrive later.
  while (!ranges.empty()) {
    const auto step_of_range = [](const auto& each) { return each.first->steps()[each.second.first]; };
    const auto least = std::ranges::min_element(ranges, {}, step_of_range);
    std::int64_t next = INT64_MAX;
    bool before_next = true;  // rows of step `next` itself come first too, because this range precedes the one that has
                              // it
    for (auto each = ranges.begin(); each != ranges.end(); ++each) {
      if (each == least || step_of_range(*each) > next) continue;
      if (step_of_range(*each) < next) before_next = least < each;
      next = step_of_range(*each);
    }
    auto& [block, range] = *least;
    const std::span<const std::int64_t> steps = block->steps().subspan(range.first, range.end - range.first);
    std::uint64_t rows = steps.size();
    if (ranges.size() > 1) {
      const auto end = before_next ? std::ranges::upper_bound(steps, next) : std::ranges::lower_bound(steps, next);
      rows = static_cast<std::uint64_t>(end - steps.begin());
    }
    stretches.push_back({block, range.key_number, range.first, rows});
    range.first += rows;
    if (range.first == range.end) ranges.erase(least);
  }
}

void copy_column(std::span<const Stretch> stretches, std::size_t column, std::uint32_t value_bytes,
                 std::byte* to) noexcept {
  for (const Stretch& stretch : stretches) {
    const std::size_t bytes = stretch.rows * value_bytes;
    std::memcpy(to, stretch.block->column(column) + stretch.first * value_bytes, bytes);
    to += bytes;
  }
}

void copy_steps(std::span<const Stretch> stretches, std::byte* to) noexcept {
  for (const Stretch& stretch : stretches) {
    const std::size_t bytes = stretch.rows * sizeof(std::int64_t);
    std::memcpy(to, stretch.block->steps().data() + stretch.first, bytes);
    to += bytes;
  }
}

namespace {

// Calls `each` with the first stretch of every identifier.
template <class Key, class Each>
void each_first(std::span<const Stretch> stretches, const Each& each) {
  Key before{};
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const auto key = key_in<Key>(*stretches[i].block, stretches[i].key_number);
    if (i == 0 || key != before) each(i, key);
    before = key;
  }
}

}  // namespace

template <class Key>
Result<BlockPtr> TrackBlock::of_keys(std::span<const Stretch> stretches, const RowForm& form,
                                     const FrameMemory& memory) {
  RunBlock block;
  for (const Stretch& stretch : stretches) block.rows += stretch.rows;
  each_first<Key>(stretches, [&](std::size_t, const Key& key) {
    ++block.keys;
    block.bytes += long_bytes_in(key);
  });
  block.bytes = BlockLayout(form, block.rows, block.keys, block.bytes).bytes;
  OFP_ASSIGN(const FramePtr object, take_object(block.bytes, block.rows, memory));
  auto made = std::make_shared<const TrackBlock>(object, object->buffer.data(), form, block, true);
  const BlockFill fill(made);
  std::uint64_t row = 0, number = 0;
  std::size_t counted = 0;
  each_first<Key>(stretches, [&](std::size_t first, const Key& key) {
    for (; counted < first; ++counted) row += stretches[counted].rows;
    fill.put(number, key);
    fill.begins[number++] = row;
  });
  fill.begins[number] = block.rows;
  copy_steps(stretches, reinterpret_cast<std::byte*>(fill.steps));
  for (std::size_t column = 0; column < form.widths().size(); ++column)
    if (column != form.key_column()) copy_column(stretches, column, form.widths()[column], fill.columns[column]);
  return made;
}

Result<BlockPtr> TrackBlock::of(std::span<const Stretch> stretches, const RowForm& form, const FrameMemory& memory) {
  return form.key().is_long() ? of_keys<LongKey>(stretches, form, memory)
                              : of_keys<std::uint64_t>(stretches, form, memory);
}

namespace {

// The identifiers of some runs in order, each with its ranges in the runs, oldest run first.
template <class Key>
class Merge {
 public:
  Merge(std::span<const std::shared_ptr<const TrackRun>> runs, const FrameMemory& memory) : memory_(memory) {
    for (const auto& run : runs) cursors_.emplace_back(*run);
  }
  // False at the end. Left blocks stay until `forget`, because `key` lies in them.
  [[nodiscard]] Result<bool> next() {
    ranges.clear();
    bool any = false;
    for (std::size_t run = 0; run < cursors_.size(); ++run) {
      RunCursor& cursor = cursors_[run];
      if (const Status opened = cursor.open(memory_); !opened) {
        if (opened.error().code == Error::io) unread = run;
        return tl::unexpected(opened.error());
      }
      if (cursor.at_end()) continue;
      const auto each = key_at<Key>(cursor);
      if (!any || each < key) key = each;
      any = true;
    }
    rows = 0;
    for (RunCursor& cursor : cursors_) {
      if (cursor.at_end() || key_at<Key>(cursor) != key) continue;
      ranges.emplace_back(cursor.block().get(), cursor.rows());
      rows += cursor.rows().end - cursor.rows().first;
      if (BlockPtr left = cursor.next()) left_.push_back(std::move(left));
    }
    return any;
  }
  void forget() { left_.clear(); }

  Key key{};
  std::uint64_t rows = 0;
  std::vector<std::pair<const TrackBlock*, RowRange>> ranges;
  std::optional<std::size_t> unread;  // the run of which a block could not be read

 private:
  const FrameMemory& memory_;
  std::vector<RunCursor> cursors_;
  std::vector<BlockPtr> left_;
};

}  // namespace

// Reads the identifiers first, to size the result's blocks, and then copies block by block. So it has one block of each
// run on disk in memory, and those that make up a block of the result.
template <class Key>
Result<std::shared_ptr<const TrackRun>> TrackRun::merge_by(std::span<const std::shared_ptr<const TrackRun>> runs,
                                                           const FrameMemory& memory, const RunNotes* notes,
                                                           std::uint64_t block_bytes,
                                                           std::optional<std::size_t>* unread) {
  const std::shared_ptr<const RowForm>& form = runs[0]->form_;
  Layout layout(*form, block_bytes);
  const auto next_of = [unread](Merge<Key>& merge) {
    auto more = merge.next();
    if (!more && unread != nullptr) *unread = merge.unread;
    return more;
  };
  for (Merge<Key> index(runs, memory);; index.forget()) {
    OFP_ASSIGN(const bool more, next_of(index));
    if (!more) break;
    layout.add(index.rows, index.key);
  }
  OFP_ASSIGN(const std::shared_ptr<TrackRun> made,
             make(form, std::move(layout), memory, notes, block_bytes != one_block));
  Merge<Key> rows(runs, memory);
  std::vector<Stretch> stretches;
  for (const BlockPtr& block : made->in_memory_) {
    const BlockFill fill(block);
    stretches.clear();
    std::uint64_t row = 0;
    for (std::uint64_t key = 0; key < block->keys().size(); ++key) {
      OFP_ASSIGN(const bool more, next_of(rows));
      OFP_ASSERT(more);
      fill.put(key, rows.key);
      fill.begins[key] = row;
      row += rows.rows;
      append_by_step(rows.ranges, stretches);
    }
    fill.begins[block->keys().size()] = row;
    copy_steps(stretches, reinterpret_cast<std::byte*>(fill.steps));
    for (std::size_t column = 0; column < form->widths().size(); ++column)
      if (column != form->key_column()) copy_column(stretches, column, form->widths()[column], fill.columns[column]);
    rows.forget();
  }
  made->finish(notes);
  return made;
}

Result<std::shared_ptr<const TrackRun>> TrackRun::merge(std::span<const std::shared_ptr<const TrackRun>> runs,
                                                        const FrameMemory& memory, const RunNotes* notes,
                                                        std::uint64_t block_bytes, std::optional<std::size_t>* unread) {
  OFP_ASSERT(!runs.empty());
  return runs[0]->form_->key().is_long() ? merge_by<LongKey>(runs, memory, notes, block_bytes, unread)
                                         : merge_by<std::uint64_t>(runs, memory, notes, block_bytes, unread);
}

}  // namespace offpath::sift
