// Pieces that have arrived, or are on offer, and that no element has taken. Each waits until its stage has room, is
// then charged, fetched and checked, and at last taken into its element: once, however often it is offered. Pieces of a
// stage are admitted in the order in which they came.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sift/effects.h"
#include "sift/element.h"
#include "sift/sift_options.h"

namespace offpath::sift {

struct Arrival {
  std::vector<std::uint64_t> tokens;  // the members that offer it; the newest last
  PieceHeader header;
  std::uint64_t bytes = 0, charge = 0;
  FramePtr frame;
  std::optional<RowsView> view;  // once it is checked
  bool put = false;              // by a program: no sequence, no seal
  bool admitted = false;
  std::uint64_t pulled_from = 0;  // a token, while it is pulled
  bool pulling = false;
  std::uint64_t order = 0;  // in its element, once it has one
  // ---- for a kept pool
  PieceKey key{};
  bool kept = false;         // its object is kept: `frame` is that
  bool restored = false;     // taken before this agent restarted
  std::uint64_t replay = 0;  // and it belongs to this split of that life
};

class Arrivals {
 public:
  // The references outlive this. `next_token` gives the identifiers of pieces.
  Arrivals(const SiftOptions& options, StageBudgets& budgets, Elements& elements, std::uint64_t& next_token);

  // The piece waits for room.
  void add(Arrival arrival);
  // An offer that was checked, of a piece with rows. `taken`: the source's. False: it was answered, or joins an earlier
  // offer of its piece.
  [[nodiscard]] bool offer(std::uint64_t token, PieceHeader header, std::uint64_t bytes, std::uint64_t charge,
                           FramePtr frame, TakenSequences& taken, Effects& effects);
  // Charges the first piece that waits, if there is room for it and for `free_bytes` beside it. The first piece without
  // room delays the others of its stage, so that smaller ones do not overtake it forever.
  [[nodiscard]] std::optional<std::uint64_t> admit(std::uint32_t stage, std::uint64_t free_bytes);
  [[nodiscard]] bool any_waits(std::uint32_t stage) const noexcept { return !waiting_[stage - 1].empty(); }

  [[nodiscard]] Arrival& at(std::uint64_t id) { return arrivals_.at(id); }
  [[nodiscard]] Arrival* find(std::uint64_t id) noexcept;  // null: there is none
  [[nodiscard]] bool empty() const noexcept { return arrivals_.empty(); }

  // ---- offers
  // Pulls from the member that offered it last: the others may have given up.
  void pull(Arrival& arrival, Effects& effects);
  // The pull from the member with this token has ended. The piece; 0: it was not pulled from there.
  [[nodiscard]] std::uint64_t end_pull(std::uint64_t token);
  // After a failed pull: pulls from another member that offers the piece. False: there is none.
  [[nodiscard]] bool pull_elsewhere(std::uint64_t id, std::uint64_t failed, const Failure& why, Effects& effects);
  // The member that offered it is gone. The stage that has more room then; 0: none.
  [[nodiscard]] std::uint32_t withdraw(std::uint64_t token, Effects& effects);

  // ---- ends
  // The element takes the piece. False: the piece was refused, or had been taken before.
  [[nodiscard]] bool take(std::uint64_t id, TimeNs now, Effects& effects);
  void refuse(std::uint64_t id, const Failure& why, Effects& effects);
  void forget(std::uint64_t id);
  // Answers all offers and puts.
  void drop(const Status& status, Effects& effects);

 private:
  const SiftOptions& options_;
  StageBudgets& budgets_;
  Elements& elements_;
  std::uint64_t& next_token_;
  std::vector<std::deque<std::uint64_t>> waiting_;  // for room, by stage
  std::unordered_map<std::uint64_t, Arrival> arrivals_;
  std::unordered_map<std::uint64_t, std::uint64_t> arrival_of_token_;
};

}  // namespace offpath::sift
