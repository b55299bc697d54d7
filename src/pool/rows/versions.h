// Which of two objects under the same keys stays: the later put, regardless of its way here. If the later put does not
// know the other, they were put on two sides of a partition: a conflict, counted and logged. Read put_id.h first.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "pool/directory/put_id.h"
#include "pool/peers/pool_context.h"
#include "pool/peers/removals.h"

namespace offpath::pool {

class Versions {
 public:
  Versions(PoolContext& context, const Removals& removals) : context_(context), removals_(removals) {}

  // Members changed: `stamp` is larger than those of earlier puts, as far as clocks agree.
  void begin_view(std::uint64_t stamp) noexcept {
    view_began_ = stamp;
    logged_ = 0;
  }
  // The answer to a put that is not needed here: 0, or the counter of a later put, after which it has to be stamped
  // again. Empty: the put is accepted. Reports conflicts.
  [[nodiscard]] std::optional<std::uint64_t> not_wanted(const Place& place, PutId& id);
  // Puts an accepted object of another member into the table. `file`: its file, if it is on disk already.
  [[nodiscard]] Status take(const Place& place, FramePtr frame, const PutId& id, TimeNs now, Effects& effects,
                            const RecordPtr& file = nullptr);
  // Puts an object back that was in the pool, and was lost here.
  [[nodiscard]] Status restore(const Place& place, FramePtr frame, const PutId& id, TimeNs now, Effects& effects);
  // Whether the object being put into the table was in the pool before.
  [[nodiscard]] bool takes_moved() const noexcept { return takes_moved_; }

 private:
  void note_conflict(const Place& place, const PutId& stays, const PutId& goes);

  PoolContext& context_;
  const Removals& removals_;
  bool takes_moved_ = false;
  std::uint64_t view_began_ = 0;
  std::uint64_t logged_ = 0;  // conflicts, since members changed
};

}  // namespace offpath::pool
