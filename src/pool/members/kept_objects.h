// Objects that a service beside this one has in a pool of its own, so that they survive this agent: by the pool's
// owners, its copies and its disk.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "pool/peers/pool_context.h"
#include "pool/peers/removals.h"
#include "pool/rows/gets.h"
#include "pool/rows/puts.h"
#include "pool/table/reserves.h"

namespace offpath::pool {

class KeptObjects {
 public:
  using Read = std::function<void(Result<FramePtr> object, TimeNs now, Effects& effects)>;

  KeptObjects(PoolContext& context, Puts& puts, Removals& removals, Gets& gets)
      : context_(context), puts_(puts), removals_(removals), gets_(gets) {}

  // The pool stays until forget_all.
  [[nodiscard]] Status open(const std::string& text, uid_t user, TimeNs now, Effects& effects);
  // Memory set aside for what other members keep in a pool here, until it is removed, or forget_all.
  [[nodiscard]] Reserves& reserves() noexcept { return reserves_; }
  [[nodiscard]] const Reserves& reserves() const noexcept { return reserves_; }

  // `kept` when all its owners have it, on disk if the pool is durable; after a failure some may have it. May call at
  // once, as the others.
  void keep(const Place& place, FramePtr object, Kept kept, TimeNs now, Effects& effects);
  // Members that do not confirm it, or are away, are asked again until they do.
  void forget(const std::string& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects);
  void forget_all(const std::string& pool, TimeNs now, Effects& effects);  // here
  // `member`: who has it, if this agent has not; may be empty.
  void read(const std::string& pool, const FrameTable::Keys& keys, const std::string& member, Read done, TimeNs now,
            Effects& effects);

 private:
  PoolContext& context_;
  Puts& puts_;
  Removals& removals_;
  Gets& gets_;
  Reserves reserves_{context_.options.reserved_bytes_max};
};

}  // namespace offpath::pool
