// Forgotten objects of services that other members may still hold: each member is asked to drop its copy until it
// confirms. An absent member is asked when it is back.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "pool/peers/pool_context.h"

namespace offpath::pool {

class Removals {
 public:
  // The number of objects is bounded: beyond it the first by name is not asked for again.
  static constexpr std::size_t objects_max = 1 << 16;

  explicit Removals(PoolContext& context) : context_(context) {}

  // Asks all members that may hold it; this agent's own copy is gone already.
  void add(const Definition& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects);
  // It is kept again, or its whole pool was dropped: no member is asked any more.
  void erase(const std::string& pool, const FrameTable::Keys& keys);
  void erase_pool(const std::string& pool);

  [[nodiscard]] bool contains(const Place& place) const;
  void add_pools(std::set<std::string_view>& names) const;

  // These members are asked at once to drop the copies they may hold.
  void on_newcomers(const std::vector<std::string>& members, TimeNs now);
  void on_answer(const Asking& asked, const Status& status, TimeNs now);
  void on_time(TimeNs now, Effects& effects);

 private:
  using Object = std::pair<std::string, FrameTable::Keys>;  // the pool's name
  // When each member is asked again; `never` while it is being asked or is absent.
  using Members = std::map<std::string, TimeNs>;
  void ask(const Object& object, const std::string& member, TimeNs now, Effects& effects);
  void count() noexcept { context_.counters.removals_waiting = objects_.size(); }

  PoolContext& context_;
  std::map<Object, Members> objects_;
};

}  // namespace offpath::pool
