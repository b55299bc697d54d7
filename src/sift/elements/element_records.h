// Records of elements in a kept pool (kept/journal.h): what a split or a run notes before it takes effect, and what
// becomes settled once it is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sift/arrival/charges.h"
#include "sift/effects.h"
#include "sift/element.h"
#include "sift/publish/publications.h"

namespace offpath::sift {

class ElementRecords {
 public:
  using Runs = std::span<const std::shared_ptr<const TrackRun>>;

  // The references outlive this.
  ElementRecords(const SiftOptions& options, const Geometry& geometry, const PoolForm& form, const Charges& charges,
                 StageBudgets& budgets, Publications& publications) noexcept
      : options_(options),
        geometry_(geometry),
        form_(form),
        charges_(charges),
        budgets_(budgets),
        publications_(publications) {}

  // ---- before the result is kept
  // The number and the notes of the run that a sort of the batch makes, or a merge of these runs.
  [[nodiscard]] RunNotes note_sort(Element& element, Batch& batch);
  [[nodiscard]] RunNotes note_merge(Element& element, Batch& batch, Runs merged);
  // The record of the batch's split. No other agent publishes to the elements of its parts.
  void note_split(Element& element, Batch& batch);

  // ---- once it is kept
  void settle_sort(Element& element, Batch& batch, Effects& effects);
  void settle_split(Element& element, Batch& batch, Effects& effects);
  static void settle_merge(Element& element, const Batch& batch, Runs merged);
  // The sequence of a part of a settled split; 0: the next one.
  [[nodiscard]] static std::uint64_t sequence_of(const Element& element, const Batch& batch, std::uint32_t part);
  // A part of that split was answered: after the last one its pieces are not needed any more.
  void on_answered(Element& element, std::uint64_t split, Effects& effects);

 private:
  // The settled sequences, with these pieces.
  [[nodiscard]] ElementRecord record_of(const Element& element, const std::vector<HeldPiece>& settled) const;
  [[nodiscard]] RunNotes note_run(Element& element, Batch& batch, const std::vector<HeldPiece>& settled, Runs merged);
  [[nodiscard]] std::vector<PieceKey> settle_pieces(Element& element, const Batch& batch);

  const SiftOptions& options_;
  const Geometry& geometry_;
  const PoolForm& form_;
  const Charges& charges_;
  StageBudgets& budgets_;
  Publications& publications_;
  std::vector<std::byte> schema_;  // a frame without rows, for the notes of runs
};

}  // namespace offpath::sift
