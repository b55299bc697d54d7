#include "exchange/interval_watch.h"

#include <algorithm>
#include <bit>

namespace offpath::exchange {

namespace {

constexpr std::uint64_t newest_eight = 0xFF;
constexpr std::size_t open_max = 4 * IntervalWatch::views;

// Without the views at the beginning and at the end without new records: the member was not there yet, or had gone.
std::uint64_t while_there(std::uint64_t late, std::uint64_t silent) {
  const int newest = std::countr_one(silent), oldest = std::countl_one(silent);
  if (newest + oldest >= static_cast<int>(IntervalWatch::views)) return 0;
  return late >> newest << (newest + oldest) >> oldest;
}

// Rounded up to two digits, so that it reads as a setting.
TimeNs rounded_up(TimeNs time) {
  TimeNs unit = 1;
  while (time / unit >= 100) unit *= 10;
  return (time + unit - 1) / unit * unit;
}

}  // namespace

std::optional<IntervalWatch::Judged> IntervalWatch::on_view(const View& view,
                                                            const std::function<bool(MemberIndex)>& is_alive) {
  if (interval_ns_ == 0 || view.entries.empty()) return std::nullopt;
  const std::size_t count = view.entries.back().member + std::size_t{1};
  if (members_.size() < count) members_.resize(count);
  for (const ViewEntry& entry : view.entries) {
    Member& member = members_[entry.member];
    member.late = member.late << 1 | (entry.present ? 0 : 1);
    member.silent = member.silent << 1 | (entry.epoch > member.epoch ? 0 : 1);
    member.epoch = std::max(member.epoch, entry.epoch);
  }
  open_.push_back({view.epoch, view.began_at});
  if (open_.size() > open_max) open_.erase(open_.begin());
  note_complete(view, is_alive);
  if (++seen_ < views) return std::nullopt;
  const Judged judged = judge(is_alive);
  seen_ = 0;
  took_.clear();
  return judged;
}

// All members that are there have records of these rounds, or of later ones.
void IntervalWatch::note_complete(const View& view, const std::function<bool(MemberIndex)>& is_alive) {
  std::uint64_t all_have = view.epoch;
  for (const ViewEntry& entry : view.entries)
    if (is_alive(entry.member) && (members_[entry.member].silent & newest_eight) != newest_eight)
      all_have = std::min(all_have, entry.epoch);
  while (!open_.empty() && open_.front().epoch <= all_have) {
    took_.push_back(view.given_at - open_.front().began_at);
    open_.erase(open_.begin());
  }
}

IntervalWatch::Judged IntervalWatch::judge(const std::function<bool(MemberIndex)>& is_alive) const {
  std::uint64_t incomplete = 0;
  for (MemberIndex i = 0; i < members_.size(); ++i)
    if (is_alive(i)) incomplete |= while_there(members_[i].late, members_[i].silent);
  Judged judged{views, views - static_cast<unsigned>(std::popcount(incomplete)), 0, false};
  if (judged.complete * 100 >= views * complete_percent) return judged;
  judged.is_measured = took_.size() >= views / 8;
  judged.holds_ns = 2 * interval_ns_;
  if (!judged.is_measured) return judged;
  std::vector<TimeNs> sorted = took_;
  std::ranges::sort(sorted);
  const TimeNs enough = sorted[std::min(sorted.size() * complete_percent / 100, sorted.size() - 1)];
  const double share = static_cast<double>(interval_ns_) / static_cast<double>(deadline_ns_);
  judged.holds_ns =
      rounded_up(std::max(static_cast<TimeNs>(static_cast<double>(enough) * share), interval_ns_ + interval_ns_ / 4));
  return judged;
}

}  // namespace offpath::exchange
