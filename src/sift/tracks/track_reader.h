// Tracks in the order of (identifier, step), as Arrow frames of bounded size: of one identifier, of a list, or of all.
#pragma once

#include <optional>
#include <queue>
#include <vector>

#include "sift/tracks/tracks.h"

namespace offpath::sift {

struct TrackQuery {
  std::optional<std::vector<std::uint64_t>> identifiers;  // their bits; none: all identifiers
  std::int64_t first_step = INT64_MIN, last_step = INT64_MAX;
  // Some of the pool's columns, by number, ascending, including the identifiers'; none: all.
  std::optional<std::vector<std::uint32_t>> columns{};
};

// Belongs to one thread; its tracks may grow meanwhile.
class TrackReader {
 public:
  TrackReader(TrackSnapshot snapshot, TrackQuery query, std::uint64_t rows_max);

  // The next frame: `step` and the pool's columns, or those of the query, with at most rows_max rows. Null at the end.
  // An absent identifier has no rows, which is no failure.
  [[nodiscard]] Result<FramePtr> next(const FrameMemory& memory);
  // A frame without rows, of the same columns. A form is required.
  [[nodiscard]] Result<FramePtr> empty(const FrameMemory& memory) { return answer({}, 0, memory); }

 private:
  // The next key of a run: the smallest of all runs is on top. Exhausted runs have none.
  struct Head {
    std::uint64_t key;
    std::size_t order;  // of the run, so that older ones come first
    const TrackRun* run;
    std::size_t key_number;
    bool operator>(const Head& other) const noexcept { return std::tie(key, order) > std::tie(other.key, other.order); }
  };

  [[nodiscard]] bool find_more();  // the next identifier's stretches; false at the end
  [[nodiscard]] RowRange clip(const TrackRun& run, RowRange range) const noexcept;
  [[nodiscard]] Result<FramePtr> answer(std::span<const Stretch> stretches, std::uint64_t rows,
                                        const FrameMemory& memory);

  TrackSnapshot snapshot_;
  TrackQuery query_;
  std::shared_ptr<const RowForm> some_columns_;  // the form of answers with some columns, once there is one
  std::uint64_t rows_max_;
  std::size_t next_identifier_ = 0;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
  std::vector<std::pair<const TrackRun*, RowRange>> ranges_;
  std::vector<Stretch> found_;  // still to be answered
};

}  // namespace offpath::sift
