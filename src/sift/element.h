// The state of one element on an agent: pieces that wait to be split, sequences that were taken from each source, and
// flushes under way.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sift/tracks/compaction.h"
#include "sift/tracks/tracks.h"

namespace offpath::sift {

// One source's pieces for one element, over its lives. Numbers of lives are random; their order is that of their first
// pieces.
class SourceHistory {
 public:
  static constexpr std::size_t lives_max = 4;       // whose sequences are kept
  static constexpr std::size_t forgotten_max = 64;  // earlier lives, from which nothing is taken

  struct Life {
    std::uint64_t incarnation;
    TakenSequences taken;
    TakenSequences settled;  // the sequences whose split was kept; in a kept pool
  };
  // Fails with Error::stale for a life whose sequences were dropped. Valid until the next call.
  [[nodiscard]] Result<TakenSequences*> life(const Source& source);
  // The same, but null for a life that was dropped.
  [[nodiscard]] TakenSequences* settled(std::uint64_t incarnation) noexcept;
  // The newest flush before which everything of this source was taken.
  std::uint64_t flushed = 0;

  // ---- the source's part of an element's record
  [[nodiscard]] ElementRecord::Source record(std::uint32_t source) const;
  // Sequences that are settled there become taken and settled here.
  void take_up(const ElementRecord::Source& record);

 private:
  std::deque<Life> lives_;
  std::deque<std::uint64_t> forgotten_;
};

struct HeldPiece {
  Piece piece;
  std::uint64_t bytes = 0;   // bytes of its frame
  std::uint64_t charge = 0;  // on the stage's budget
  TimeNs arrived_ns = 0;
  std::uint64_t order = 0;  // the order in which the element took its pieces
  PieceKey key{};           // of one that is kept
};

// The pieces that are being split, or sorted into the tracks. A job reads them while it runs.
struct Batch {
  std::vector<Piece> pieces;
  std::vector<HeldPiece> held;  // the original pieces: they go back if the job fails
  std::uint64_t charge = 0;
  std::vector<Part> parts;              // the job's result
  std::shared_ptr<const TrackRun> run;  // or this, in the last stage
  std::uint64_t run_bytes = 0;          // bytes of memory that were taken for it
  std::optional<std::size_t> unread{};  // after a failed merge: the run that could not be read

  // ---- for a kept pool
  std::uint64_t number = 0;  // of the element's splits and runs
  ElementRecord record{};
  bool again = false;  // the split was kept before a restart: its parts have their sequences
};

// Kept, and published: its pieces stay until all its parts are answered.
struct OpenSplit {
  std::vector<PieceKey> pieces;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> parts;
  std::size_t unanswered = 0;
  std::uint64_t charge = 0;
};

// A split that was kept before this agent restarted. Some of its parts may be unanswered; its pieces come back one by
// one.
struct Replay {
  std::uint64_t number = 0;
  std::vector<PieceKey> pieces;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> parts;
  std::map<PieceKey, HeldPiece> here;
  std::size_t missing = 0;
};

struct KeptRun {
  std::uint64_t number = 0;
  TakenSequences covers;
};

struct Element {
  ElementId id;
  std::deque<HeldPiece> pieces;
  std::uint64_t bytes = 0;
  std::uint64_t taken = 0;       // pieces since the beginning, which gives their order
  TakenSequences gone;           // pieces that went on to the next stage
  std::shared_ptr<Batch> batch;  // while a job splits it
  bool due = false;              // to be split as soon as there is room for the parts
  bool age_timer = false;
  std::uint32_t failures = 0;  // failed jobs in a row
  bool rests = false;          // after the last one

  std::map<std::string, SourceHistory, std::less<>> sources;
  std::map<std::pair<Source, std::uint64_t>, std::uint64_t> arriving;  // (source, sequence) -> arrival

  // members whose marks a flush waits for; computed when it is first needed
  std::optional<std::vector<std::string>> expected;
  struct Flush {
    std::uint64_t flush;
    std::uint64_t pieces;  // all pieces up to this one have to be split before it passes
  };
  std::deque<Flush> flushes;
  std::uint64_t newest_flush = 0;  // in `flushes`, or passed
  std::uint64_t passed = 0;

  // ---- in the last stage
  TrackRuns tracks;
  bool merge_waits = false;          // waits for room, or for sorts of other elements
  std::uint32_t merge_failures = 0;  // in a row
  TimeNs retry_at = 0;               // no merge begins before this time

  // ---- for a kept pool
  std::uint64_t number = 0;  // of the last split or run
  std::string kept_split;    // the name of the newest one
  std::map<std::uint64_t, OpenSplit> splits;
  std::deque<Replay> replays;  // oldest first; nothing else is split before them
  std::map<const TrackRun*, KeptRun> kept_runs;
  TakenSequences abandoned;  // runs that may have been kept although that failed: later ones cover them
};

// The elements of a pool on this agent, which begin when they are first asked for.
class Elements {
 public:
  using Map = std::map<ElementId, std::unique_ptr<Element>>;

  [[nodiscard]] Element& operator[](ElementId id) {
    std::unique_ptr<Element>& found = all_[id];
    if (found == nullptr) {
      found = std::make_unique<Element>();
      found->id = id;
    }
    return *found;
  }
  [[nodiscard]] const Map& all() const noexcept { return all_; }
  void clear() noexcept { all_.clear(); }

 private:
  Map all_;
};

// The properties that all frames of a pool share. Unknown until the first piece.
struct PoolForm {
  std::shared_ptr<const TrackForm> tracks;
  std::uint32_t overhead_bytes = 0;  // of a frame; 0: unknown
};

}  // namespace offpath::sift
