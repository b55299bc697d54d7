#include "sift/element.h"

#include <algorithm>

namespace offpath::sift {

Result<TakenSequences*> SourceHistory::life(const Source& source) {
  const auto found = std::ranges::find(lives_, source.incarnation, &Life::incarnation);
  if (found != lives_.end()) return &found->taken;
  if (std::ranges::find(forgotten_, source.incarnation) != forgotten_.end())
    return fail(Error::stale,
                "'{}' publishes as its incarnation {:016x}, which is no longer known: it has had {} since",
                source.member, source.incarnation, lives_max);
  lives_.push_back(Life{source.incarnation, {}, {}});
  if (lives_.size() > lives_max) {
    forgotten_.push_back(lives_.front().incarnation);
    lives_.pop_front();
    if (forgotten_.size() > forgotten_max) forgotten_.pop_front();
  }
  return &lives_.back().taken;
}

TakenSequences* SourceHistory::settled(std::uint64_t incarnation) noexcept {
  const auto found = std::ranges::find(lives_, incarnation, &Life::incarnation);
  return found != lives_.end() ? &found->settled : nullptr;
}

ElementRecord::Source SourceHistory::record(std::uint32_t source) const {
  ElementRecord::Source made;
  made.source = source;
  for (const Life& life : lives_) made.lives.push_back({life.incarnation, life.settled});
  made.forgotten.assign(forgotten_.begin(), forgotten_.end());
  return made;
}

void SourceHistory::take_up(const ElementRecord::Source& record) {
  for (const std::uint64_t incarnation : record.forgotten)
    if (std::ranges::find(forgotten_, incarnation) == forgotten_.end()) forgotten_.push_back(incarnation);
  for (const ElementRecord::Life& life : record.lives) {
    if (std::ranges::find(forgotten_, life.incarnation) != forgotten_.end()) continue;
    auto found = std::ranges::find(lives_, life.incarnation, &Life::incarnation);
    if (found == lives_.end()) found = lives_.insert(lives_.end(), Life{life.incarnation, {}, {}});
    found->taken.take(life.settled);
    found->settled.take(life.settled);
  }
}

}  // namespace offpath::sift
