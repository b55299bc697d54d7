// Pieces on their way to the elements of the next stage. Each is offered to the owner of its element, and again after a
// failure, until it is answered: the pause doubles with each failure in a row (SiftOptions::retry_at). A stage has as
// many bytes under way as its credit; the others wait, in order.
//
// The mark of a flush is a piece without rows. It has the number of the next piece, without using it up, and leaves
// when all pieces before it were answered. Read this first in src/sift/publish, then piece_pulls.h.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "sift/effects.h"
#include "sift/sift_options.h"

namespace offpath::sift {

class Publications {
 public:
  // The references outlive this. `self`: this agent's position among the members.
  Publications(const SiftOptions& options, const Geometry& geometry, std::uint32_t self, StageBudgets& budgets);

  // `split`: in a kept pool, the split that made the piece and is charged for it. `sequence`: 0 for the next one.
  struct Rows {
    std::vector<StepRun> runs;
    FramePtr frame;
    std::uint32_t crc32c_of_identifiers = 0, overhead_bytes = 0;
    std::uint64_t split = 0, sequence = 0;
  };
  void publish(ElementId from, ElementId to, Rows rows);
  void publish_mark(ElementId from, ElementId to, std::uint64_t flush, std::uint32_t overhead_bytes);

  // Offers waiting pieces while their stage has room.
  void send(std::uint32_t stage, Effects& effects);
  // The answered piece; without one it will be offered again, or is unknown. `stage` has more room in any case.
  struct Answered {
    ElementId from;
    std::uint64_t split = 0;
    bool has_rows = false;
  };
  struct Outcome {
    std::uint32_t stage = 0;  // 0: the piece is unknown
    std::optional<Answered> answered{};
  };
  [[nodiscard]] Outcome on_published(std::uint64_t token, const Status& status, TimeNs now);
  // The stages whose pieces have to be offered again by now; send() them.
  [[nodiscard]] std::set<std::uint32_t> retry(TimeNs now);
  [[nodiscard]] TimeNs next_retry() const noexcept { return retries_.empty() ? never : retries_.begin()->first; }

  [[nodiscard]] bool empty() const noexcept { return outgoing_.empty(); }
  void clear();

  // ---- for a kept pool: sequences of pieces for the element from before this agent restarted
  [[nodiscard]] std::uint64_t next_sequence(ElementId to) { return targets_[to].next_sequence; }
  void set_next_sequence(ElementId to, std::uint64_t sequence) { targets_[to].next_sequence = sequence; }
  void await_answer(ElementId to, std::uint64_t sequence) { targets_[to].open.insert(sequence); }
  void await_no_answer(ElementId to, std::uint64_t sequence) { targets_[to].open.erase(sequence); }

 private:
  struct Piece {
    ElementId from;
    PieceHeader header;
    FramePtr frame;
    std::uint32_t crc32c_of_identifiers = 0;
    std::uint64_t bytes = 0, charge = 0;
    std::uint32_t attempts = 0;
    bool under_way = false;
    std::uint64_t split = 0;
  };
  struct Target {
    std::uint64_t next_sequence = 1;
    std::set<std::uint64_t> open;     // not answered
    std::deque<std::uint64_t> marks;  // pieces that wait for all before them to be answered
  };
  struct Stage {
    std::deque<std::uint64_t> waiting;  // pieces that may be offered and are not under way
    std::uint64_t under_way_bytes = 0;
  };

  [[nodiscard]] Piece piece(ElementId from, ElementId to, std::uint32_t overhead_bytes) const;
  void send_marks(Target& target);

  const SiftOptions& options_;
  const Geometry& geometry_;
  std::uint32_t self_;
  StageBudgets& budgets_;
  std::vector<Stage> stages_;
  std::map<ElementId, Target> targets_;
  std::unordered_map<std::uint64_t, Piece> outgoing_;
  std::multimap<TimeNs, std::uint64_t> retries_;
  std::uint64_t next_token_ = 1;
};

}  // namespace offpath::sift
