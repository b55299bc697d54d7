// Owners compare their objects some time after members have changed, when rows have moved.
//
// Moves use each member's view of the group when they began. Members learn of a change at different times, so a row may
// have moved to a former owner, or not at all. Each member therefore sends rows that it has and does not own to the
// owners. It compares its own objects with each other owner, by digests of keys and versions, and offers those that
// differ. The other owner takes objects that it lacks or has from an earlier put. Objects that members drop by
// themselves (`keep`, `ttl`) are not compared: they would reappear.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "channel/ring.h"
#include "pool/peers/pool_context.h"
#include "pool/rows/moves.h"
#include "wire/messages/peer_messages.h"

namespace offpath::pool {

class Comparisons {
 public:
  Comparisons(PoolContext& context, Moves& moves) : context_(context), moves_(moves) {}

  void later(TimeNs at) noexcept { context_.due(at_ = at); }
  [[nodiscard]] TimeNs at() const noexcept { return at_; }
  void on_time(TimeNs now, Effects& effects);
  // Serves another member's comparison.
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void on_answer(const Asking& asked, Result<std::uint64_t> differs, TimeNs now);
  // Comparisons that are due, and answers under way.
  [[nodiscard]] std::size_t waiting() const noexcept { return asked_ + (at_ != never ? 1 : 0); }

 private:
  using Digests = std::array<std::uint64_t, wire::compared_parts>;
  struct Compared {
    TimeNs at = 0;
    std::uint64_t view = 0;
    std::map<std::string, Digests> digests;  // by the other owner
  };
  [[nodiscard]] const std::map<std::string, Digests>& digests_of(const Definition& definition, TimeNs now);

  PoolContext& context_;
  Moves& moves_;
  TimeNs at_ = never;
  std::size_t asked_ = 0;                                  // members
  std::map<std::string, Compared, std::less<>> compared_;  // by pool, for a while
};

}  // namespace offpath::pool
