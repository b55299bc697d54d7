#include "pool/rows/waiting.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "base/config.h"
#include "base/log.h"
#include "pool/rows/gets.h"
#include "pool/rows/puts.h"

namespace offpath::pool {

WaitingPut Puts::waiting_put(const Put& put) const {
  WaitingPut waiting{.pool = put.place.pool,
                     .row = brief(put.place.row_key),
                     .column = brief(put.place.column_key),
                     .members = {},
                     .since = put.deadline - context_.options.put_wait_ns,
                     .why = put.last.message};
  for (const std::string& owner : put.owners)
    if (!put.done.contains(owner) && waiting.members.size() < WaitingPuts::members_listed_max)
      waiting.members.push_back(owner);
  // All owners have it: it waits for members that have to know the pool.
  if (const auto untold = untold_.find(put.place.pool); waiting.members.empty() && untold != untold_.end())
    for (const std::string& member : untold->second)
      if (waiting.members.size() < WaitingPuts::members_listed_max) waiting.members.push_back(member);
  return waiting;
}

std::string Puts::why_waits(std::uint64_t token) const {
  const auto number = by_token_.find(token);
  if (number == by_token_.end()) return {};
  const Put& put = puts_.at(number->second);
  const WaitingPut waiting = waiting_put(put);
  return fmt::format("pool \"{}\": the put of ({}, {}) waits for members {}: {}. It fails after {}",
                     context_.directory.text_of(put.place.pool), waiting.row, waiting.column,
                     fmt::join(waiting.members, ", "), waiting.why, format_duration(context_.options.put_wait_ns));
}

// Only those that have waited for a second; others are under way.
WaitingPuts Puts::waiting(TimeNs now) const {
  WaitingPuts all;
  for (const auto& [number, put] : puts_) {
    if (!put.waits() || put.deadline - context_.options.put_wait_ns > now - WaitsTold::silent_ns) continue;
    ++all.count;
    if (all.longest.size() < WaitingPuts::listed_max) all.longest.push_back(waiting_put(put));
  }
  return all;
}

void ListedGets::add(ListedGets others) {
  count += others.count;
  std::ranges::move(others.longest, std::back_inserter(longest));
  std::ranges::stable_sort(longest, {}, &ListedGet::since);
  if (longest.size() > listed_max) longest.resize(listed_max);
}

ListedGets Gets::waiting(TimeNs now) const {
  struct Waiting {
    const FrameTable::Get* get;
    const RemoteGet* remote;  // null: it waits in the table
    std::string disk{};       // the reason of the read from disk, if there is one
  };
  std::vector<Waiting> all;
  const auto add = [&](const FrameTable::Get& get, const RemoteGet* remote, std::string disk = {}) {
    if (get.asked_at <= now - WaitsTold::silent_ns) all.push_back({&get, remote, std::move(disk)});
  };
  for (const auto& [number, get] : context_.table.waiting().all()) add(get, nullptr);
  context_.table.visit_reads([&](const FrameTable::Get& get, std::string why) { add(get, nullptr, std::move(why)); });
  for (const auto& [number, remote] : gets_.all())
    if (!remote.copied && !remote.fetched) add(remote.get, &remote);
  const std::size_t listed = std::min(all.size(), ListedGets::listed_max);
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(listed), {},
                            [](const Waiting& each) { return each.get->asked_at; });
  ListedGets found{.count = all.size()};
  for (const auto& [get, remote, disk] : std::span(all).first(listed)) {
    const bool computes = remote != nullptr && remote->computation;
    std::string why = !disk.empty()       ? disk
                      : remote == nullptr ? context_.table.describe_absence(*get)
                      : remote->asking == 0
                          ? (remote->last.message.empty() ? "no member has been asked yet" : remote->last.message)
                      : computes ? fmt::format("member {} has been asked to call {}.{}", remote->owner,
                                               remote->computation->plugin, remote->computation->function)
                                 : fmt::format("member {} has been asked for it", remote->owner);
    found.longest.push_back({.pool = get->pool,
                             .row = brief(get->keys.first),
                             .column = brief(get->keys.second),
                             .channel = get->channel,
                             .since = get->asked_at,
                             .what = !disk.empty() ? "the disk"
                                     : computes    ? "the computation"
                                                   : "the object",
                             .why = std::move(why)});
  }
  return found;
}

// Returns when to look again.
TimeNs Puts::tell_of_waits(TimeNs now) {
  const auto first =
      std::find_if(puts_.upper_bound(told_.number), puts_.end(), [](const auto& each) { return each.second.waits(); });
  if (first == puts_.end()) return never;
  const TimeNs at =
      std::max(first->second.deadline - context_.options.put_wait_ns + WaitsTold::silent_ns, told_.next_at);
  if (now < at) return at;
  const WaitingPut put = waiting_put(first->second);
  log(LogLevel::warning, "pool \"{}\": a put of ({}, {}) has waited {} s for members {}: {}; {} puts wait in all",
      put.pool, put.row, put.column, (now - put.since) / second_ns, fmt::join(put.members, ", "), put.why,
      waiting(now).count);
  told_ = {puts_.rbegin()->first, now + WaitsTold::between_ns};
  return never;
}

}  // namespace offpath::pool
