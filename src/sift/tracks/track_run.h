// Rows ordered by (identifier, step), written once and then read by any thread.
//
//   keys     k0    k1       k2        the identifiers there are, ascending
//   begins   0     3        5      9  where each one's rows begin
//   steps    0 1 2 1 2 ...            ascending for each identifier
//   columns  one dense array each, but for the identifiers': keys and begins say it all
//
// There are few identifiers beside rows (a particle has a row for each step), so the index is small, and a look-up is
// one binary search in a hundredth of the run's memory.
//
// Read this first in src/sift/tracks, then tracks.h (the runs of an element), compaction.h, track_reader.h,
// track_queries.h and track_writes.h (files of tracks).
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "sift/kept/journal.h"
#include "sift/tracks/compaction.h"

namespace offpath::sift {

// The pool's rows, and rows of an answer: the same columns after `step` (i64).
struct TrackForm {
  std::shared_ptr<const RowForm> rows, answers;

  [[nodiscard]] static Result<std::shared_ptr<const TrackForm>> of_frame(Bytes frame, std::string_view key);
  [[nodiscard]] static Result<std::shared_ptr<const TrackForm>> make(const frame::Schema& schema, std::string_view key);
  // `step` and some of the columns, in order.
  [[nodiscard]] Result<std::shared_ptr<const RowForm>> answers_of(const std::vector<std::uint32_t>& columns) const;
};

// Identifiers as numbers in the same order, signed or not; and back to the bytes of the column.
[[nodiscard]] std::uint64_t key_of(const RowForm& form, const std::byte* value) noexcept;
[[nodiscard]] std::uint64_t key_of(const RowForm& form, std::uint64_t identifier) noexcept;
void store_key(const RowForm& form, std::uint64_t key, std::byte* value) noexcept;

struct RowRange {
  std::uint64_t first = 0, end = 0;
};

class TrackRun {
 public:
  static constexpr std::uint64_t sort_bytes_per_row = 32;

  // `pieces` is not empty. With `notes` the run is an object that can be kept, followed by the notes; their shape is
  // set.
  [[nodiscard]] static Result<std::shared_ptr<const TrackRun>> sort(std::shared_ptr<const RowForm> form,
                                                                    const std::vector<Piece>& pieces,
                                                                    const FrameMemory& memory,
                                                                    const RunNotes* notes = nullptr);
  [[nodiscard]] static Result<std::shared_ptr<const TrackRun>> merge(
      std::span<const std::shared_ptr<const TrackRun>> runs, const FrameMemory& memory,
      const RunNotes* notes = nullptr);
  // Opens a kept run; checks all keys.
  [[nodiscard]] static Result<std::shared_ptr<const TrackRun>> open(std::shared_ptr<const RowForm> form,
                                                                    FramePtr object, const RunNotes& notes);
  [[nodiscard]] const FramePtr& object() const noexcept { return object_; }

  [[nodiscard]] std::span<const std::uint64_t> keys() const noexcept { return {keys_, keys_count_}; }
  [[nodiscard]] std::span<const std::int64_t> steps() const noexcept { return {steps_, rows_}; }
  [[nodiscard]] const std::byte* column(std::size_t number) const noexcept {
    return columns_[number];
  }  // null: the identifiers' column
  [[nodiscard]] RowRange rows_of(std::size_t key_number) const noexcept {
    return {begins_[key_number], begins_[key_number + 1]};
  }
  [[nodiscard]] RowRange find(std::uint64_t key) const noexcept;
  [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return object_->buffer.capacity(); }

 private:
  [[nodiscard]] static Result<std::shared_ptr<TrackRun>> make(std::shared_ptr<const RowForm> form, std::uint64_t rows,
                                                              std::uint64_t keys, const FrameMemory& memory,
                                                              const RunNotes* notes);
  void lie_in(FramePtr object, std::shared_ptr<const RowForm> form, std::uint64_t rows, std::uint64_t keys);

  std::shared_ptr<const RowForm> form_;
  FramePtr object_;
  std::uint64_t rows_ = 0, keys_count_ = 0;
  std::uint64_t *keys_ = nullptr, *begins_ = nullptr;
  std::int64_t* steps_ = nullptr;
  std::vector<std::byte*> columns_;
};

// A stretch of one identifier's rows in one run: the unit of merges and answers.
struct Stretch {
  const TrackRun* run = nullptr;
  std::uint64_t key = 0;
  std::uint64_t first = 0, rows = 0;
};

// Appends one identifier's rows of several runs ordered by step; rows of one step in the order of `ranges`, which is
// consumed.
void append_by_step(std::uint64_t key, std::vector<std::pair<const TrackRun*, RowRange>>& ranges,
                    std::vector<Stretch>& stretches);
// Copies a column of all stretches to `to`. Not for the identifiers'.
void copy_column(std::span<const Stretch> stretches, std::size_t column, std::uint32_t value_bytes,
                 std::byte* to) noexcept;
void copy_steps(std::span<const Stretch> stretches, std::byte* to) noexcept;

}  // namespace offpath::sift
