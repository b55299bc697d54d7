// The bytes that are charged to a stage (StageBudgets) for its pieces. A piece is charged when it is admitted, before
// it is pulled, with everything it may need: itself, and either its rows again, in the frames of its parts, or the
// memory of a sort besides its run.
//
// Read this first in src/sift/arrival, then piece_checks.h (what is refused) and arrivals.h (pieces that wait).
#pragma once

#include <cstdint>

#include "sift/element.h"
#include "sift/sift_options.h"

namespace offpath::sift {

class Charges {
 public:
  // The references outlive this.
  Charges(const SiftOptions& options, const PoolForm& form) noexcept : options_(options), form_(form) {}

  [[nodiscard]] std::uint64_t of_piece(std::uint64_t frame_bytes, std::uint64_t rows) const noexcept;
  // Of a kept piece that comes back: for a sort only where it may be sorted, and never more than its stage can admit.
  [[nodiscard]] std::uint64_t of_kept_piece(const KeptItem& item, std::uint32_t stage) const noexcept;
  // Of a split beside its rows: the heads and padding of its parts. That is kept free for one split at a time.
  [[nodiscard]] std::uint64_t of_split(std::uint32_t stage) const noexcept;
  // Error::too_large: no stage could ever admit a piece with this charge.
  [[nodiscard]] Status check(std::uint64_t charge) const;

 private:
  // Of a sort of so many rows in a frame of so many bytes.
  [[nodiscard]] std::uint64_t of_sort(std::uint64_t frame_bytes, std::uint64_t rows) const noexcept;

  const SiftOptions& options_;
  const PoolForm& form_;
};

}  // namespace offpath::sift
