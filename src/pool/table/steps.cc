#include "pool/table/steps.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "pool/directory/glob.h"
#include "wire/limits.h"

namespace offpath::pool {

Result<bool> Steps::end(const std::string& name, uid_t user, const std::string& row, std::uint32_t rank,
                        std::uint32_t ranks, TimeNs now) {
  rank_began(name, rank);  // the rank lives
  const auto pool = pools_.find(name);
  auto step = decltype(Pool::steps)::iterator{};
  const bool begun = pool != pools_.end() && (step = pool->second.steps.find(row)) != pool->second.steps.end();
  const bool repeated = begun && step->second.ended.contains(rank);
  const std::size_t others = begun ? step->second.ended.size() - (repeated ? 1 : 0) : 0;
  if (others + 1 >= std::max(ranks, begun ? step->second.ranks : 0)) {
    if (begun) forget(pool->second, step);
    if (begun && pool->second.steps.empty()) pools_.erase(pool);
    return true;
  }
  if (repeated) return false;
  const auto known = accounts_.find(user);
  const Account account = known != accounts_.end() ? known->second : Account{};
  if (account.ends >= limits_.user_ends_max)
    return fail(Error::too_large,
                "{} ends of steps of user {} wait for other ranks, which is the limit of each user "
                "(limits.user_steps_max); drop "
                "the rows whose ranks do not come",
                account.ends, user);
  if (!begun && account.key_bytes + row.size() > limits_.user_key_bytes_max)
    return fail(Error::too_large,
                "steps of user {} that wait for ranks have keys of {} bytes, at most {} are allowed; drop the rows "
                "whose ranks do "
                "not come",
                user, account.key_bytes, limits_.user_key_bytes_max);
  Account& changed = accounts_[user];
  if (!begun) changed.key_bytes += row.size();
  ++changed.ends;
  Pool& of_pool = pools_.try_emplace(name, Pool{user}).first->second;
  Step& waiting = of_pool.steps[row];
  if (!begun) waiting.since = now;
  waiting.ranks = std::max(waiting.ranks, ranks);
  waiting.ended.insert(rank);
  return false;
}

void Steps::forget(Pool& pool, std::map<std::string, Step>::iterator step) {
  const auto account = accounts_.find(pool.user);
  account->second.ends -= step->second.ended.size();
  account->second.key_bytes -= step->first.size();
  if (account->second.ends == 0) accounts_.erase(account);
  pool.steps.erase(step);
}

void Steps::drop(std::string_view name, std::string_view row_glob) {
  const auto pool = pools_.find(name);
  if (pool == pools_.end()) return;
  const std::string_view row_prefix = glob_prefix(row_glob);
  auto& steps = pool->second.steps;
  auto step = steps.lower_bound(std::string(row_prefix));
  while (step != steps.end() && step->first.starts_with(row_prefix)) {
    const auto dropped = step++;
    if (glob_matches(row_glob, dropped->first)) forget(pool->second, dropped);
  }
  if (steps.empty()) pools_.erase(pool);
}

const Steps::Step* Steps::find(std::string_view name, const std::string& row) const {
  const auto pool = pools_.find(name);
  if (pool == pools_.end()) return nullptr;
  const auto step = pool->second.steps.find(row);
  return step != pool->second.steps.end() ? &step->second : nullptr;
}

std::string Steps::describe(const std::string& pool, const std::string& row) const {
  const Step* const step = find(pool, row);
  return step != nullptr ? describe(pool, row, *step) : std::string();
}

std::string Steps::describe(const std::string& pool, const std::string& row, const Step& step) const {
  const std::string gone = gone_ranks_.describe(pool, step.ended, step.ranks);
  std::string text = fmt::format("pool \"{}\": {} of {} ranks have ended step \"{}\"", pool, step.ended.size(),
                                 step.ranks, brief(row));
  return gone.empty() ? text : fmt::format("{}; {}; step \"{}\" waits for it", text, gone, brief(row));
}

void Steps::rank_ended(const std::string& name, std::uint32_t rank, GoneRank gone) {
  gone_ranks_.add(name, rank, std::move(gone));
  const auto pool = pools_.find(name);
  if (pool == pools_.end()) return;
  for (const auto& [row, step] : pool->second.steps) {
    if (rank >= step.ranks || step.ended.contains(rank)) continue;
    log(LogLevel::warning, "{}", describe(name, row, step));
    return;  // one line for each rank: its steps wait for the same reason
  }
}

void Steps::list(const std::string& name, PoolSteps& of_pool) const {
  const auto pool = pools_.find(name);
  if (pool == pools_.end()) return;
  of_pool.waiting = pool->second.steps.size();
  using Waiting = decltype(Pool::steps)::value_type;
  std::vector<const Waiting*> longest;
  longest.reserve(of_pool.waiting);
  for (const Waiting& each : pool->second.steps) longest.push_back(&each);
  const std::size_t listed = std::min(longest.size(), PoolSteps::listed_max);
  std::ranges::partial_sort(
      longest, longest.begin() + static_cast<std::ptrdiff_t>(listed), {},
      [](const Waiting* each) { return std::pair(each->second.since, std::string_view(each->first)); });
  longest.resize(listed);
  for (const Waiting* each : longest) {
    const Step& step = each->second;
    of_pool.listed.push_back({brief(each->first), static_cast<std::uint32_t>(step.ended.size()), step.ranks,
                              missing_ranks(step.ended, step.ranks, PoolSteps::ranks_listed_max),
                              gone_ranks_.describe(name, step.ended, step.ranks), step.since});
  }
}

}  // namespace offpath::pool
