#include "sift/element.h"

namespace offpath::sift {

Result<TakenSequences*> SourceHistory::life(const Source& source) {
  if (source.incarnation < forgotten_below_) {
    return fail(Error::stale, "'{}' publishes in its life {}, all before {} are forgotten", source.member, source.incarnation,
                forgotten_below_);
  }
  TakenSequences& taken = lives_[source.incarnation];
  if (lives_.size() <= lives_max) return &taken;
  const std::uint64_t oldest = lives_.begin()->first;
  lives_.erase(lives_.begin());
  forgotten_below_ = oldest + 1;
  if (oldest == source.incarnation) return fail(Error::stale, "'{}' publishes in its life {}, which is forgotten", source.member, oldest);
  return &taken;
}

}  // namespace offpath::sift
