#include "actuator/keeper.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace offpath::actuator {

Keeper::Keeper(std::vector<Kept> kept, std::function<void(const std::string&)> say)
    : say_(say ? std::move(say) : [](const std::string&) {}) {
  for (Kept& each : kept) entries_.push_back({.kept = std::move(each)});
}

void Keeper::recover(TimeNs now) {
  for (Entry& entry : entries_) {
    const Kept& kept = entry.kept;
    if (!kept.actuator->was_left()) continue;
    const Status held = kept.actuator->hold();
    if (held) {
      entry.is_held = true;
      entry.until = now;
      say_(fmt::format("actuator {}: an earlier keeper was killed; the former setting is restored", kept.name));
    } else if (held.error().code != Error::not_found && held.error().code != Error::exists) {
      say_(fmt::format("actuator {}: {}", kept.name, held.error().message));
    }
  }
  (void)on_time(now);
}

Result<std::uint64_t> Keeper::set(std::uint32_t actuator, std::uint64_t value, TimeNs until, TimeNs now) {
  if (actuator >= entries_.size())
    return fail(Error::not_found, "actuator {}, but there are {}", actuator, entries_.size());
  Entry& entry = entries_[actuator];
  const Kept& kept = entry.kept;
  if (until <= now) return fail(Error::timeout, "actuator {}: the lease has ended before it began", kept.name);
  value = std::clamp(value, kept.min, kept.max);
  const bool fresh = !entry.is_held;
  const auto set_it = [&]() -> Status {
    if (fresh) OFP_TRY(kept.actuator->hold());
    entry.is_held = true;
    return kept.actuator->set(value);
  };
  if (const Status set = set_it(); !set) {
    // A removed cgroup has no setting to restore; a new one in its place is held next time.
    if (entry.is_held && (fresh || set.error().code == Error::not_found)) forget(entry);
    return fail(set.error().code, "actuator {}: {}", kept.name, set.error().message);
  }
  entry.until = std::min(until, now + kept.lease_ns);
  return value;
}

void Keeper::forget(Entry& entry) {
  entry.kept.actuator->release();
  entry.is_held = entry.has_said = false;
  entry.until = never;
}

Status Keeper::restore(Entry& entry, TimeNs now) {
  const auto restored = entry.kept.actuator->restore();
  // A cgroup that no longer exists has nothing to return to.
  if (!restored && restored.error().code != Error::not_found) {
    const std::string why = fmt::format("actuator {}: {}", entry.kept.name, restored.error().message);
    if (!std::exchange(entry.has_said, true)) say_(why);
    // Ended before the lease ends, when no caller relies on it.
    entry.until = std::min(entry.until > now ? entry.until : never, now + again_ns);
    return fail(restored.error().code, "{}", why);
  }
  if (restored && *restored)
    say_(fmt::format("actuator {}: another process has set '{}', which is not changed", entry.kept.name, **restored));
  forget(entry);
  return {};
}

Status Keeper::give_up(std::uint32_t actuator, TimeNs now) {
  if (actuator >= entries_.size())
    return fail(Error::not_found, "actuator {}, but there are {}", actuator, entries_.size());
  return entries_[actuator].is_held ? restore(entries_[actuator], now) : Status{};
}

Status Keeper::on_time(TimeNs now) {
  Status first;
  for (Entry& entry : entries_) {
    if (!entry.is_held || entry.until > now) continue;
    if (Status restored = restore(entry, now); !restored && first) first = std::move(restored);
  }
  return first;
}

TimeNs Keeper::next_deadline() const noexcept {
  TimeNs first = never;
  for (const Entry& entry : entries_)
    if (entry.is_held) first = std::min(first, entry.until);
  return first;
}

Status Keeper::restore_all(TimeNs now) {
  for (Entry& entry : entries_)
    if (entry.is_held) entry.until = now;
  return on_time(now);
}

bool Keeper::holds_any() const noexcept {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.is_held; });
}

}  // namespace offpath::actuator
