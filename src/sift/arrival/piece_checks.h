// Checks of pieces before an element takes them: of a program's frame, of an offer, of a frame that was pulled, and of
// a kept one that comes back. The pool has the columns of its first rows.
#pragma once

#include <functional>
#include <string_view>

#include "sift/arrival/arrivals.h"
#include "sift/arrival/charges.h"
#include "sift/split/geometry.h"

namespace offpath::sift {

class PieceChecks {
 public:
  // The references outlive this. `self`: this agent's position among the members. `form` is learnt from the first rows.
  PieceChecks(const SiftOptions& options, const Geometry& geometry, std::uint32_t self, PoolForm& form,
              const Charges& charges) noexcept
      : options_(options), geometry_(geometry), self_(self), form_(form), charges_(charges) {}

  // Fails if this member does not hold stage 1, which takes puts.
  [[nodiscard]] Status may_put() const;
  // Fills the arrival. Without rows it has only a view.
  [[nodiscard]] Status put(std::string_view row_key, const FramePtr& frame, Arrival& arrival);
  [[nodiscard]] Status offer(const PieceHeader& header, std::uint64_t bytes);
  // Whether the frame of an offered piece has what was offered.
  [[nodiscard]] Status frame(Arrival& arrival);
  // The same for the object of a kept piece, which becomes the arrival's frame.
  [[nodiscard]] Status kept_frame(Arrival& arrival, FramePtr object);

  // ---- checks of the rows themselves, which may run on any thread
  // Whether the identifiers are so many that no call looks at all of them.
  [[nodiscard]] bool is_done_in_job(const RowsView& view) const noexcept {
    return view.ids.rows * view.ids.value_bytes + view.text_bytes() >= options_.check_in_job_bytes;
  }
  [[nodiscard]] std::function<Status()> of_rows(const Arrival& arrival) const;
  [[nodiscard]] std::function<Status()> of_kept_rows(const Arrival& arrival) const;

 private:
  const SiftOptions& options_;
  const Geometry& geometry_;
  std::uint32_t self_;
  PoolForm& form_;
  const Charges& charges_;
};

}  // namespace offpath::sift
