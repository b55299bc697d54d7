// Tracks in the order of (identifier, step), as Arrow frames of bounded size: of one identifier, of a list, or of all.
//
// Of runs on disk a reader has one block of each in memory while it makes a frame, and those in which it found rows of
// this frame: when these are more than `found_bytes_max`, their rows are copied. Between frames it keeps no memory of a
// run that may leave memory, and gives up the blocks that it read if they have more than `found_bytes_max`.
#pragma once

#include <deque>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sift/tracks/tracks.h"

namespace offpath::sift {

struct TrackQuery {
  std::optional<std::vector<std::uint64_t>> identifiers;  // their bits; empty: all identifiers
  // Used instead where identifiers are long (split/key_form.h): their bytes in the form that is compared.
  std::optional<std::vector<std::string>> long_identifiers{};
  std::int64_t first_step = INT64_MIN, last_step = INT64_MAX;
  // Some of the pool's columns, by number, ascending, including the identifiers'; empty: all.
  std::optional<std::vector<std::uint32_t>> columns{};
};

// Belongs to one thread; its tracks may grow meanwhile. Blocks where runs are on disk.
class TrackReader {
 public:
  static constexpr std::uint64_t found_bytes_max = 16ull << 20;

  TrackReader(TrackSnapshot snapshot, TrackQuery query, std::uint64_t rows_max);

  // The next frame: `step` and the pool's columns, or those of the query, with at most rows_max rows. Null at the end.
  // An absent identifier has no rows, which is not an error. After a failed read each further call fails with the same
  // error, because later frames would lack rows.
  [[nodiscard]] Result<FramePtr> next(const FrameMemory& memory);
  // A frame without rows, of the same columns. A form is required.
  [[nodiscard]] Result<FramePtr> empty(const FrameMemory& memory) { return answer({}, 0, memory); }

 private:
  // The next key of a run: the smallest of all runs is on top. Exhausted runs have none.
  struct Head {
    std::uint64_t key;
    std::size_t order;  // of the run, so that older ones come first
  };
  // For long identifiers Head has the first eight bytes, and these have each run's whole next one.
  using LongHeads = std::vector<std::string>;
  struct ComesAfter {
    const LongHeads* long_heads;
    bool operator()(const Head& one, const Head& other) const noexcept {
      if (one.key != other.key) return one.key > other.key;
      if (!long_heads->empty())
        if (const int order = (*long_heads)[one.order].compare((*long_heads)[other.order]); order != 0)
          return order > 0;
      return one.order > other.order;
    }
  };
  struct Copied {
    BlockPtr block;
    std::size_t stretches;  // of found_ in it
  };
  struct Looked {
    std::size_t number;
    BlockPtr block;
  };

  // The next identifier's stretches; false at the end.
  [[nodiscard]] Result<bool> find_more(const FrameMemory& memory);
  template <class Key>
  [[nodiscard]] Status find_wanted(const Key& key, const TrackSnapshot::Group* group, const FrameMemory& memory);
  [[nodiscard]] Status find_next(const FrameMemory& memory);
  [[nodiscard]] Status open_long(const FrameMemory& memory);
  [[nodiscard]] Status push_head(std::size_t order, const FrameMemory& memory);
  [[nodiscard]] Result<const RowForm*> answers();
  [[nodiscard]] Result<std::uint64_t> text_rows(const Stretch& stretch, bool is_first, std::uint64_t rows);
  void fill_identifiers(std::span<const Stretch> stretches, std::byte* to, std::byte* text) const;
  [[nodiscard]] tl::unexpected<Failure> stop(Failure why);
  [[nodiscard]] Result<BlockPtr> look(const TrackRun& run, std::size_t number, const FrameMemory& memory);
  void leave(BlockPtr block);
  void answered(std::size_t taken);
  [[nodiscard]] Status copy_found(const FrameMemory& memory);
  [[nodiscard]] Status rest(const FrameMemory& memory);
  [[nodiscard]] RowRange clip(const TrackBlock& block, RowRange range) const noexcept;
  [[nodiscard]] Result<FramePtr> answer(std::span<const Stretch> stretches, std::uint64_t rows,
                                        const FrameMemory& memory);

  TrackSnapshot snapshot_;
  TrackQuery query_;
  std::shared_ptr<const RowForm> some_columns_;  // the form of answers with some columns, once there is one
  std::uint64_t rows_max_;
  std::uint64_t text_left_ = 0;  // bytes that the frame which is being made may still get
  bool may_leave_ = false;       // memory: some run may
  std::optional<Failure> failure_;
  std::size_t next_identifier_ = 0;
  std::vector<RunCursor> cursors_;
  std::unique_ptr<LongHeads> long_heads_ = std::make_unique<LongHeads>();
  bool long_open_ = false;
  std::priority_queue<Head, std::vector<Head>, ComesAfter> heads_{ComesAfter{long_heads_.get()}};
  std::unordered_map<const TrackRun*, Looked> looked_;  // the block of each run that was looked at last
  std::vector<std::pair<const TrackBlock*, RowRange>> ranges_;
  std::vector<Stretch> found_;  // still to be answered
  std::deque<Copied> copied_;   // blocks with the rows of found_ alone, from its front
  std::size_t copied_stretches_ = 0;
  std::vector<BlockPtr> left_;    // blocks in which others may be, beside those of cursors_ and looked_
  std::uint64_t left_bytes_ = 0;  // of those that were read
};

}  // namespace offpath::sift
