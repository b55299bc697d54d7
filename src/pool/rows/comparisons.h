// Owners compare their objects a while after members have changed, when rows have moved.
//
// Moves follow what each member believed of the others when they began. Members learn of a change at different times,
// so a row may have gone to one that is no owner any more, or have stayed where it was: each then sends what it has and
// does not own to the owners. What it does own it compares with each other owner, by digests of keys and versions; what
// differs it offers, and the other one takes what it has not, or has of an earlier put. Objects that members drop by
// themselves (`keep`, `ttl`) are not compared: they would come back.
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
  // Another member's.
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void on_answer(const Asking& asked, Result<std::uint64_t> differs, TimeNs now);
  // Those to be made, and answers that are awaited.
  [[nodiscard]] std::size_t waiting() const noexcept { return asked_ + (at_ != never ? 1 : 0); }

 private:
  using Digests = std::array<std::uint64_t, wire::compared_parts>;
  struct Compared {
    TimeNs at = 0;
    std::uint64_t view = 0;
    std::map<std::string, Digests> digests;  // by the member that owns the rows too
  };
  [[nodiscard]] const std::map<std::string, Digests>& digests_of(const Definition& definition, TimeNs now);

  PoolContext& context_;
  Moves& moves_;
  TimeNs at_ = never;
  std::size_t asked_ = 0;                                  // members
  std::map<std::string, Compared, std::less<>> compared_;  // by pool, for a while
};

}  // namespace offpath::pool
