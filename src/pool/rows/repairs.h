// Objects that were lost here because their file is unreadable: another owner's copy replaces them. Owners are asked
// again until one has a copy, or all report that they have no copy.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "pool/peers/pool_context.h"
#include "pool/rows/arrivals.h"
#include "pool/rows/gets.h"

namespace offpath::pool {

class Repairs {
 public:
  Repairs(PoolContext& context, Versions& versions, Gets& gets, Arrivals& arrivals)
      : context_(context), versions_(versions), gets_(gets), arrivals_(arrivals) {}

  void on_lost(const RecordPtr& record, TimeNs now, Effects& effects);
  void on_time(TimeNs now, Effects& effects);

  [[nodiscard]] std::size_t size() const noexcept { return lost_.size(); }
  template <class Matches>
  [[nodiscard]] bool any(const std::string& pool, Matches matches) const {
    for (auto at = lost_.lower_bound({pool, {}}); at != lost_.end() && at->first.first == pool; ++at)
      if (matches(at->first.second.first)) return true;
    return false;
  }

 private:
  struct Lost {
    RecordPtr record;
    TimeNs again_at = never;  // when owners are asked again; `never` while one is being asked
  };
  void ask(const RecordPtr& record, TimeNs now, Effects& effects);
  void end(const RecordPtr& record, const Status& status, bool again, TimeNs now);
  void repair(const RecordPtr& record, const std::string& from, FramePtr frame, TimeNs now, Effects& effects);

  PoolContext& context_;
  Versions& versions_;
  Gets& gets_;
  Arrivals& arrivals_;
  std::map<std::pair<std::string, FrameTable::Keys>, Lost> lost_;  // by the pool's name
};

}  // namespace offpath::pool
