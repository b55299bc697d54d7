// Rows ordered by (identifier, step), written once and then read by any thread. A run is one block or, where runs may
// leave memory for the disk, several: some identifiers each, with all their rows in the run.
//
//   keys     k0    k1       k2        the identifiers there are, ascending
//   begins   0     3        5      9  where each one's rows begin
//   steps    0 1 2 1 2 ...            ascending for each identifier
//   columns  one dense array each, except the identifiers', which follow from keys and begins
//
// For long identifiers (split/key_form.h) `keys` has the first eight bytes, and two arrays follow: where each
// identifier's bytes begin, and the bytes.
//
// There are few identifiers compared with rows (a particle has a row for each step), so the index is small, and a
// look-up is one binary search in a hundredth of the run's memory. Of a run on disk only the list of its blocks is in
// memory: the first and last identifier of each, and a checksum. A look-up there reads one block.
//
// Read this first in src/sift/tracks, then tracks.h (the runs of an element), track_memory.h (which runs leave memory),
// compaction.h, track_reader.h, track_queries.h and track_writes.h (files of tracks).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sift/kept/journal.h"
#include "sift/tracks/compaction.h"

namespace offpath::sift {

// The pool's rows, and rows of an answer: the same columns after `step` (i64).
struct TrackForm {
  static constexpr std::string_view step_name = "step";
  std::shared_ptr<const RowForm> rows, answers;

  // Error::schema: a column has the name of the steps in answers, so neither could be named there.
  [[nodiscard]] static Status check_names(const frame::Schema& schema);

  [[nodiscard]] static Result<std::shared_ptr<const TrackForm>> of_frame(Bytes frame, const KeyRule& key);
  [[nodiscard]] static Result<std::shared_ptr<const TrackForm>> make(const frame::Schema& schema, const KeyRule& key);
  // `step` and some of the columns, in order.
  [[nodiscard]] Result<std::shared_ptr<const RowForm>> answers_of(const std::vector<std::uint32_t>& columns) const;
};

// Identifiers as numbers in the same order (split/key_form.h).
[[nodiscard]] inline std::uint64_t key_of(const RowForm& form, const std::byte* value) noexcept {
  return form.key().key_of(value);
}
[[nodiscard]] inline std::uint64_t key_of(const RowForm& form, std::uint64_t identifier) noexcept {
  return form.key().key_of(identifier);
}

struct RowRange {
  std::uint64_t first = 0, end = 0;
  std::uint64_t key_number = 0;  // in its block
};

class TrackBlock;

// Long identifiers one behind the other.
class FirstIdentifiers {
 public:
  void add(Bytes bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    ends_.push_back(bytes_.size());
  }
  [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }
  [[nodiscard]] Bytes operator[](std::size_t number) const noexcept {
    const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
    return Bytes(bytes_).subspan(begin, ends_[number] - begin);
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.size() + ends_.size() * sizeof(std::size_t); }
  void shrink_to_fit() {
    bytes_.shrink_to_fit();
    ends_.shrink_to_fit();
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> ends_;
};

// A stretch of one identifier's rows in one block: the unit of merges and answers.
struct Stretch {
  const TrackBlock* block = nullptr;
  std::uint64_t key_number = 0;  // in the block
  std::uint64_t first = 0, rows = 0;
};

// In memory.
class TrackBlock {
 public:
  // The block at `base` of the object, which is the run's memory or a copy of this block.
  TrackBlock(FramePtr object, std::byte* base, const RowForm& form, const RunBlock& block, bool is_copy);
  // A copy of these rows, in their order.
  [[nodiscard]] static Result<std::shared_ptr<const TrackBlock>> of(std::span<const Stretch> stretches,
                                                                    const RowForm& form, const FrameMemory& memory);

  [[nodiscard]] std::span<const std::uint64_t> keys() const noexcept { return {keys_, keys_count_}; }
  // All bytes of a long identifier, in the form that is compared.
  [[nodiscard]] Bytes long_bytes(std::size_t key_number) const noexcept {
    return {long_bytes_ + long_begins_[key_number], long_begins_[key_number + 1] - long_begins_[key_number]};
  }
  [[nodiscard]] LongKey long_key(std::size_t key_number) const noexcept {
    return {keys_[key_number], long_bytes(key_number)};
  }
  [[nodiscard]] std::span<const std::int64_t> steps() const noexcept { return {steps_, rows_}; }
  [[nodiscard]] const std::byte* column(std::size_t number) const noexcept {
    return columns_[number];
  }  // null: the identifiers' column
  [[nodiscard]] RowRange rows_of(std::size_t key_number) const noexcept {
    return {begins_[key_number], begins_[key_number + 1], key_number};
  }
  [[nodiscard]] RowRange find(std::uint64_t key) const noexcept;
  [[nodiscard]] RowRange find(const LongKey& key) const noexcept;
  [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  // Error::protocol: its identifiers and the beginnings of their rows contradict each other. The source is not trusted.
  [[nodiscard]] Status check() const;
  // It has memory of its own.
  [[nodiscard]] bool is_copy() const noexcept { return is_copy_; }

 private:
  friend class TrackRun;
  friend struct BlockFill;
  template <class Key>
  [[nodiscard]] static Result<std::shared_ptr<const TrackBlock>> of_keys(std::span<const Stretch> stretches,
                                                                         const RowForm& form,
                                                                         const FrameMemory& memory);

  FramePtr object_;
  bool is_copy_;
  std::uint64_t rows_, keys_count_, bytes_;
  std::uint64_t *keys_, *begins_;
  std::uint64_t* long_begins_ = nullptr;
  std::byte* long_bytes_ = nullptr;
  std::uint64_t long_room_ = 0;   // that these bytes have
  std::uint32_t long_width_ = 0;  // of each long identifier; 0: any length
  std::int64_t* steps_;
  std::vector<std::byte*> columns_;
};
using BlockPtr = std::shared_ptr<const TrackBlock>;

class TrackRun {
 public:
  // The most bytes for each row that a sort takes beside its pieces and its run. Before a pool's first rows, whose form
  // is not known, of any form with rows of so many bytes.
  [[nodiscard]] static std::uint64_t sort_bytes_per_row(const RowForm& form) noexcept;
  [[nodiscard]] static std::uint64_t sort_bytes_per_row(std::uint64_t row_bytes) noexcept;
  static constexpr std::uint64_t one_block = UINT64_MAX;
  struct Layout;

  // `pieces` is not empty. With `notes` the run is an object that can be kept, followed by the notes; their shape is
  // set. With `block_bytes` it has blocks of about that many bytes.
  [[nodiscard]] static Result<std::shared_ptr<const TrackRun>> sort(std::shared_ptr<const RowForm> form,
                                                                    const std::vector<Piece>& pieces,
                                                                    const FrameMemory& memory,
                                                                    const RunNotes* notes = nullptr,
                                                                    std::uint64_t block_bytes = one_block);
  // Blocks if a run is on disk. `unread`: after Error::io, the run that could not be read.
  [[nodiscard]] static Result<std::shared_ptr<const TrackRun>> merge(
      std::span<const std::shared_ptr<const TrackRun>> runs, const FrameMemory& memory, const RunNotes* notes = nullptr,
      std::uint64_t block_bytes = one_block, std::optional<std::size_t>* unread = nullptr);
  // Opens a kept run. Checks all keys of a run in memory, or the list of blocks of a run on disk.
  [[nodiscard]] static Result<std::shared_ptr<const TrackRun>> open(std::shared_ptr<const RowForm> form,
                                                                    FramePtr object, const RunNotes& notes);
  // The most bytes that so many rows take in a run, if each has an identifier of its own. `long_bytes`: of their long
  // identifiers.
  [[nodiscard]] static std::uint64_t bytes_max(const RowForm& form, std::uint64_t rows,
                                               std::uint64_t long_bytes) noexcept;

  // The most bytes that a block takes in the list of blocks.
  [[nodiscard]] static std::uint64_t list_bytes_max(const KeyForm& key) noexcept;

  [[nodiscard]] std::span<const RunBlock> blocks() const noexcept { return blocks_; }
  // Which block has the identifier, if the run has it.
  [[nodiscard]] std::optional<std::size_t> find_block(std::uint64_t key) const noexcept;
  [[nodiscard]] std::optional<std::size_t> find_block(const LongKey& key) const noexcept;
  // Blocks if it is on disk. Error::io, which names the block and its file: it cannot be read, now or, if is_damaged(),
  // ever.
  [[nodiscard]] Result<BlockPtr> block(std::size_t number, const FrameMemory& memory) const;

  [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }  // that it takes in memory
  // The bytes in memory of a run on disk: the list of its blocks.
  [[nodiscard]] std::uint64_t list_bytes() const noexcept {
    return blocks_.size() * sizeof(RunBlock) + firsts_.bytes();
  }
  // A block on disk is corrupt, or its file is gone. All other blocks are read as before; it is not merged any more.
  [[nodiscard]] bool is_damaged() const noexcept { return damaged_; }
  [[nodiscard]] bool may_leave() const noexcept { return may_leave_; }  // memory: its blocks have checksums
  // The object, or its frame on disk.
  [[nodiscard]] FramePtr object() const;
  // From now on it is read from there. Holders of a block keep its memory.
  void leave_memory(FramePtr unread) const;
  [[nodiscard]] bool is_in_memory() const;

 private:
  [[nodiscard]] static Result<std::shared_ptr<TrackRun>> make(std::shared_ptr<const RowForm> form, Layout layout,
                                                              const FrameMemory& memory, const RunNotes* notes,
                                                              bool may_leave);
  template <class Key>
  [[nodiscard]] static Result<std::shared_ptr<const TrackRun>> merge_by(
      std::span<const std::shared_ptr<const TrackRun>> runs, const FrameMemory& memory, const RunNotes* notes,
      std::uint64_t block_bytes, std::optional<std::size_t>* unread);
  [[nodiscard]] Status check_blocks(const RunNotes& notes, std::uint64_t bytes) const;
  void note_blocks(RunNotes& notes) const;
  void lie_in(FramePtr object);
  void finish(const RunNotes* notes);  // once its blocks are filled
  [[nodiscard]] Result<BlockPtr> read_block(std::size_t number, const service::Unread& from,
                                            const FrameMemory& memory) const;
  [[nodiscard]] tl::unexpected<Failure> damaged(std::size_t number, const service::Unread& in,
                                                std::string_view why) const;

  std::shared_ptr<const RowForm> form_;
  std::uint64_t rows_ = 0, bytes_ = 0;
  bool may_leave_ = false;
  std::vector<RunBlock> blocks_;
  FirstIdentifiers firsts_;  // of the blocks, where identifiers are long and there may be several

  mutable std::atomic<bool> damaged_ = false;
  mutable std::mutex mutex_;
  mutable FramePtr object_;
  mutable std::vector<BlockPtr> in_memory_;  // empty: on disk
};

// The identifiers of a run in order, block by block.
class RunCursor {
 public:
  explicit RunCursor(const TrackRun& run) : run_(&run) {}

  // Reads the block, if it is not there. Then at_end(), or rows().
  [[nodiscard]] Status open(const FrameMemory& memory);
  [[nodiscard]] bool at_end() const noexcept { return number_ == run_->blocks().size(); }
  // Before a block is opened, its first key; not after `rest`.
  [[nodiscard]] std::uint64_t key() const noexcept {
    return block_ ? block_->keys()[key_] : run_->blocks()[number_].first_key;
  }
  // Once its block is opened.
  [[nodiscard]] LongKey long_key() const noexcept { return block_->long_key(key_); }
  [[nodiscard]] RowRange rows() const noexcept { return block_->rows_of(key_); }
  [[nodiscard]] const BlockPtr& block() const noexcept { return block_; }
  // Moves to the next identifier. Returns the block that was left, if any: rows found in it may still be needed.
  [[nodiscard]] BlockPtr next();
  // Gives up the run's memory, so that it may leave memory, or all memory. `open` comes next.
  void rest(bool all) {
    if (block_ && (all || !block_->is_copy())) block_.reset();
  }

 private:
  const TrackRun* run_;
  std::size_t number_ = 0, key_ = 0;
  BlockPtr block_;
};

// Appends one identifier's rows of several blocks ordered by step; rows of one step in the order of `ranges`, which is
// consumed.
void append_by_step(std::vector<std::pair<const TrackBlock*, RowRange>>& ranges, std::vector<Stretch>& stretches);
// Copies a column of all stretches to `to`. Not for the identifiers'.
void copy_column(std::span<const Stretch> stretches, std::size_t column, std::uint32_t value_bytes,
                 std::byte* to) noexcept;
void copy_steps(std::span<const Stretch> stretches, std::byte* to) noexcept;

}  // namespace offpath::sift
