#include "sift/element.h"

#include <algorithm>

namespace offpath::sift {

Result<TakenSequences*> SourceHistory::life(const Source& source) {
  const auto found = std::ranges::find(lives_, source.incarnation, &Life::incarnation);
  if (found != lives_.end()) return &found->taken;
  if (std::ranges::find(forgotten_, source.incarnation) != forgotten_.end())
    return fail(Error::stale, "'{}' publishes in its life {:016x}, which is forgotten: it has had {} since", source.member, source.incarnation,
                lives_max);
  lives_.push_back(Life{source.incarnation, {}});
  if (lives_.size() > lives_max) {
    forgotten_.push_back(lives_.front().incarnation);
    lives_.pop_front();
    if (forgotten_.size() > forgotten_max) forgotten_.pop_front();
  }
  return &lives_.back().taken;
}

}  // namespace offpath::sift
