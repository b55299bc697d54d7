// Which steps wait for which ranks.
#include "base/log.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

std::string FrameTable::describe_step(const std::string& pool, const std::string& row, const Step& step) const {
  const std::string gone = gone_ranks_.describe(pool, step.ended, step.ranks);
  std::string text = fmt::format("pool \"{}\": {} of {} ranks have ended step \"{}\"", pool, step.ended.size(),
                                 step.ranks, brief(row));
  return gone.empty() ? text : fmt::format("{}; {}; step \"{}\" waits for it", text, gone, brief(row));
}

void FrameTable::rank_ended(const std::string& name, std::uint32_t rank, GoneRank gone) {
  gone_ranks_.add(name, rank, std::move(gone));
  const auto at = pools_.find(name);
  if (at == pools_.end()) return;
  for (const auto& [row, step] : at->second.steps) {
    if (rank >= step.ranks || step.ended.contains(rank)) continue;
    log(LogLevel::warning, "{}", describe_step(name, row, step));
    return;  // one line for each rank: its steps wait for the same reason
  }
}

std::vector<PoolSteps> FrameTable::steps() const {
  std::vector<PoolSteps> all;
  for (const auto& [name, pool] : pools_) {
    PoolSteps& of_pool = all.emplace_back(PoolSteps{.pool = name, .newest = {}});
    if (!pool.by_sequence.empty()) of_pool.newest = brief(pool.by_sequence.rbegin()->second->first.first);
    of_pool.waiting = pool.steps.size();
    for (const auto& [row, step] : pool.steps) {
      if (of_pool.listed.size() == PoolSteps::listed_max) break;
      of_pool.listed.push_back({brief(row), static_cast<std::uint32_t>(step.ended.size()), step.ranks,
                                missing_ranks(step.ended, step.ranks, PoolSteps::ranks_listed_max),
                                gone_ranks_.describe(name, step.ended, step.ranks)});
    }
  }
  return all;
}

}  // namespace offpath::pool
