#include "pool/table/gone_ranks.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

#include "base/clock.h"

namespace offpath::pool {

void GoneRanks::add(const std::string& pool, std::uint32_t rank, GoneRank gone) {
  remove(pool, rank);
  while (oldest_first_.size() >= kept_max) {
    gone_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  oldest_first_.emplace_back(pool, rank);
  gone_.emplace(oldest_first_.back(), std::move(gone));
}

void GoneRanks::remove(const std::string& pool, std::uint32_t rank) {
  if (gone_.empty()) return;
  const Key key{pool, rank};
  if (gone_.erase(key) > 0) oldest_first_.erase(std::ranges::find(oldest_first_, key));
}

const GoneRank* GoneRanks::find(const std::string& pool, std::uint32_t rank) const {
  const auto at = gone_.find({pool, rank});
  return at != gone_.end() ? &at->second : nullptr;
}

std::string describe(std::uint32_t rank, const GoneRank& gone) {
  std::string text = fmt::format("rank {} ({}, process {}", rank, gone.program, gone.pid);
  text += gone.host.empty() ? ")" : fmt::format(" on {})", gone.host);
  const auto seconds = static_cast<std::time_t>(gone.at_real_ns / second_ns);
  std::tm day{};
  char time[32] = "";
  if (gone.at_real_ns <= 0 || gmtime_r(&seconds, &day) == nullptr ||
      std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S UTC", &day) == 0)
    return text + " ended";
  return text + " ended at " + time;
}

std::string GoneRanks::describe(const std::string& pool, const std::set<std::uint32_t>& ended,
                                std::uint32_t ranks) const {
  std::string text;
  std::size_t count = 0;
  for (auto at = gone_.lower_bound({pool, 0}); at != gone_.end() && at->first.first == pool; ++at) {
    const std::uint32_t rank = at->first.second;
    if (rank >= ranks || ended.contains(rank)) continue;
    if (++count <= described_max) text += (count > 1 ? ", " : "") + pool::describe(rank, at->second);
  }
  if (count > described_max) text += fmt::format(" and {} more", count - described_max);
  return text;
}

std::vector<std::uint32_t> missing_ranks(const std::set<std::uint32_t>& ended, std::uint32_t ranks,
                                         std::size_t count_max) {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t rank = 0; rank < ranks && missing.size() < count_max; ++rank)
    if (!ended.contains(rank)) missing.push_back(rank);
  return missing;
}

}  // namespace offpath::pool
