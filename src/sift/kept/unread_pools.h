// Pools that this agent finds on its disk when it starts, until it has read their identities.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "pool/members/pools.h"
#include "sift/kept/identity.h"

namespace offpath::sift {

class UnreadPools {
 public:
  // Called with the identity of the pool `own` of this user, or with the reason why it cannot be read.
  using Found = std::function<void(const std::string& own, uid_t user, Result<Identity> identity, TimeNs now,
                                   service::Effects& effects)>;
  // `pools` outlives this.
  UnreadPools(pool::Pools& pools, Found found) : pools_(pools), found_(std::move(found)) {}

  // Finds all pools with a row of this agent, `self`.
  void find(std::string_view self, TimeNs now);
  // Reads the identities that are due. A read that may succeed later is repeated after a second.
  void read(TimeNs now, service::Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  // Whether a pool of the name in `text` may be among them: making it anew would replace its objects.
  [[nodiscard]] bool may_have(std::string_view text) const;

 private:
  struct Unread {
    std::string row;
    uid_t user;
    TimeNs again_at;  // never: it is being read
  };
  void on_read(const std::string& own, const Result<service::FramePtr>& object, TimeNs now, service::Effects& effects);

  pool::Pools& pools_;
  Found found_;
  std::map<std::string, Unread> unread_;  // by the names of the pools that keep them
};

}  // namespace offpath::sift
