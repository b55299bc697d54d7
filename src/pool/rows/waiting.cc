#include "pool/rows/waiting.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/log.h"
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
  return waiting;
}

// Those that have waited for a second: all others are on their way.
WaitingPuts Puts::waiting(TimeNs now) const {
  WaitingPuts all;
  for (const auto& [number, put] : puts_) {
    if (!put.waits() || put.deadline - context_.options.put_wait_ns > now - WaitsTold::silent_ns) continue;
    ++all.count;
    if (all.longest.size() < WaitingPuts::listed_max) all.longest.push_back(waiting_put(put));
  }
  return all;
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
