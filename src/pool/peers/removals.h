// Objects of services that were forgotten, and that other members may still hold: each member is asked to drop its copy
// until it confirms. One that is away is asked when it is back.
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
  // It is kept anew, or all of its pool was dropped: nobody is asked for it any more.
  void erase(const std::string& pool, const FrameTable::Keys& keys);
  void erase_pool(const std::string& pool);

  [[nodiscard]] bool contains(const Place& place) const;
  void add_pools(std::set<std::string_view>& names) const;

  // They are asked at once for what they still hold.
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
