// Objects that another service keeps in a pool of its own. They survive this agent by the pool's owners, copies and
// disk.
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
  // Reserves memory for objects that other members keep in a pool here, until unreserve or forget_all.
  [[nodiscard]] Reserves& reserves() noexcept { return reserves_; }
  [[nodiscard]] const Reserves& reserves() const noexcept { return reserves_; }

  // Calls `kept` when all owners have it, on disk if the pool is durable; after a failure some owners may have it.
  // These methods may call back at once.
  void keep(const Place& place, FramePtr object, Kept kept, TimeNs now, Effects& effects);
  // Members that do not confirm, or are absent, are asked again until they do.
  void forget(const std::string& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects);
  void forget_all(const std::string& pool, TimeNs now, Effects& effects);  // here
  // Moves the object out of memory and returns its unread frame. Fails if it is not on this agent's disk.
  [[nodiscard]] Result<FramePtr> let_go(const std::string& pool, const FrameTable::Keys& keys);
  // `member`: a member that has it if this agent has not; may be empty.
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
