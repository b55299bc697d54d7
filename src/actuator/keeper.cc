#include "actuator/keeper.h"

#include <algorithm>

namespace offpath::actuator {

Keeper::Keeper(std::vector<Kept> kept) {
  for (Kept& each : kept) entries_.push_back({std::move(each), std::nullopt, never});
}

Result<std::uint64_t> Keeper::set(std::uint32_t actuator, std::uint64_t value, TimeNs until, TimeNs now) {
  if (actuator >= entries_.size())
    return fail(Error::not_found, "actuator {}, but there are {}", actuator, entries_.size());
  Entry& entry = entries_[actuator];
  const Kept& kept = entry.kept;
  if (until <= now) return fail(Error::timeout, "actuator {}: the lease has ended before it began", kept.name);
  value = std::clamp(value, kept.min, kept.max);
  const bool fresh = !entry.held;
  if (fresh) {
    OFP_ASSIGN(entry.held, kept.actuator->hold());
  }
  if (Status set = kept.actuator->set(value); !set) {
    // Of a cgroup that was removed there is nothing to return to; one made anew in its place is held next time.
    if (fresh || set.error().code == Error::not_found) {
      entry.held.reset();
      entry.until = never;
      kept.actuator->release();
    }
    return tl::unexpected(Failure{set.error().code, fmt::format("actuator {}: {}", kept.name, set.error().message)});
  }
  entry.until = std::min(until, now + kept.lease_ns);
  return value;
}

Status Keeper::restore(Entry& entry, TimeNs now) {
  const Status restored = entry.kept.actuator->restore(*entry.held);
  // A cgroup that no longer exists has nothing to return to.
  if (!restored && restored.error().code != Error::not_found) {
    entry.until = now + again_ns;
    return fail(restored.error().code, "actuator {}: {}", entry.kept.name, restored.error().message);
  }
  entry.kept.actuator->release();
  entry.held.reset();
  entry.until = never;
  return {};
}

Status Keeper::give_up(std::uint32_t actuator, TimeNs now) {
  if (actuator >= entries_.size())
    return fail(Error::not_found, "actuator {}, but there are {}", actuator, entries_.size());
  return entries_[actuator].held ? restore(entries_[actuator], now) : Status{};
}

Status Keeper::on_time(TimeNs now) {
  Status first;
  for (Entry& entry : entries_) {
    if (!entry.held || entry.until > now) continue;
    if (Status restored = restore(entry, now); !restored && first) first = std::move(restored);
  }
  return first;
}

TimeNs Keeper::next_deadline() const noexcept {
  TimeNs first = never;
  for (const Entry& entry : entries_)
    if (entry.held) first = std::min(first, entry.until);
  return first;
}

Status Keeper::restore_all(TimeNs now) {
  for (Entry& entry : entries_)
    if (entry.held) entry.until = now;
  return on_time(now);
}

bool Keeper::holds_any() const noexcept {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.held.has_value(); });
}

}  // namespace offpath::actuator
