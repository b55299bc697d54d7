#include "sift/flush_rounds.h"

#include <algorithm>

namespace offpath::sift {

FlushRounds::Round FlushRounds::begin(std::uint64_t id, service::ChannelNumber channel, std::uint64_t ticket,
                                      TimeNs deadline) {
  return next_round(flushes_.emplace(id, Flush{channel, ticket, deadline}).first->second);
}

// Numbers grow, and differ between members. A restarted member may not know the newest number: the others tell it.
FlushRounds::Round FlushRounds::next_round(Flush& flush) noexcept {
  newest_ = (std::max(newest_, flush.newer) / members_ + 1) * members_ + self_;
  flush.open = members_;
  flush.newer = 0;
  return {newest_, flush.deadline};
}

FlushRounds::Outcome FlushRounds::on_answer(std::uint64_t id, const Result<std::uint64_t>& newer, TimeNs now) {
  const auto at = flushes_.find(id);
  if (at == flushes_.end()) return std::monostate{};
  Flush& flush = at->second;
  const auto over = [&](Status status) {
    Over ended{flush.channel, flush.ticket, std::move(status)};
    flushes_.erase(at);
    return ended;
  };
  // Living members that wait for a lost one hear of its loss as this one does. After other failures they end by
  // themselves.
  if (!newer && newer.error().code == Error::peer_lost) return over(tl::unexpected(newer.error()));
  if (!newer && flush.status) flush.status = tl::unexpected(newer.error());
  if (newer) flush.newer = std::max(flush.newer, *newer);
  if (--flush.open > 0) return std::monostate{};
  if (!flush.status || flush.newer == 0) return over(std::move(flush.status));
  if (now < flush.deadline) return next_round(flush);
  return over(fail(Error::timeout, "pool \"{}\": later flushes began before this one", pool_));
}

std::vector<FlushRounds::Over> FlushRounds::end_all(const Failure& why) {
  std::vector<Over> over;
  for (const auto& [id, flush] : flushes_) over.push_back({flush.channel, flush.ticket, tl::unexpected(why)});
  flushes_.clear();
  return over;
}

std::optional<std::uint64_t> FlushRounds::begin_of_member(std::uint64_t number) noexcept {
  if (number <= newest_) return newest_;
  newest_ = number;
  return std::nullopt;
}

}  // namespace offpath::sift
