// The pieces that one split, or one sort, takes from an element.
#pragma once

#include <cstdint>
#include <memory>

#include "sift/arrival/charges.h"
#include "sift/element.h"
#include "sift/tracks/track_memory.h"

namespace offpath::sift {

class Batches {
 public:
  // The references outlive this.
  Batches(const SiftOptions& options, const PoolForm& form, const Charges& charges, const TrackMemory& memory) noexcept
      : options_(options), form_(form), charges_(charges), memory_(memory) {}

  [[nodiscard]] static bool is_ready(const Element& element) noexcept {
    if (element.batch != nullptr) return false;
    return element.replays.empty() ? !element.pieces.empty() : element.replays.front().missing == 0;
  }
  // Takes the next pieces: as many as make parts that the next stage can admit, even if all rows go to one part, or as
  // many as a run may have. After a restart, those of the oldest split of that time.
  [[nodiscard]] std::shared_ptr<Batch> take(Element& element) const;
  // The most bytes of the run that the element's next batch makes.
  [[nodiscard]] std::uint64_t next_run_bytes(const Element& element) const;
  // The batch was not split: the element has its pieces again.
  static void put_back(Element& element, Batch& batch);

 private:
  [[nodiscard]] bool is_last(ElementId id) const noexcept { return id.stage == options_.settings.track_stage(); }
  [[nodiscard]] static std::shared_ptr<Batch> take_replay(Element& element);

  const SiftOptions& options_;
  const PoolForm& form_;
  const Charges& charges_;
  const TrackMemory& memory_;
};

}  // namespace offpath::sift
