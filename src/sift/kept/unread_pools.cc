#include "sift/kept/unread_pools.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "sift/kept/journal.h"

namespace offpath::sift {

void UnreadPools::find(std::string_view self, TimeNs now) {
  for (const pool::FrameTable::PoolStatus& each : pools_.table().pools()) {
    if (!pool::is_reserved(each.name) || is_passing(each.name)) continue;
    for (const pool::FrameTable::Held& held : pools_.table().held(each.name)) {
      const auto& [row, column] = held.keys;
      if (column == identity_column && row.substr(0, row.find('#')) == self)
        unread_.emplace(each.name, Unread{row, each.user, now});
    }
  }
}

void UnreadPools::read(TimeNs now, service::Effects& effects) {
  std::vector<std::pair<std::string, std::string>> due;
  for (auto& [own, unread] : unread_) {
    if (unread.again_at > now) continue;
    unread.again_at = never;
    due.emplace_back(own, unread.row);
  }
  for (const auto& [own, row] : due)
    pools_.read(
        own, {row, std::string(identity_column)}, {},
        [this, name = own](const Result<service::FramePtr>& object, TimeNs then, service::Effects& more) {
          on_read(name, object, then, more);
        },
        now, effects);
}

void UnreadPools::on_read(const std::string& own, const Result<service::FramePtr>& object, TimeNs now,
                          service::Effects& effects) {
  if (!object && !is_lost(object.error().code)) {
    log(LogLevel::warning, "pool \"{}\": its kept objects cannot be read, and will be tried again: {}", own,
        object.error().message);
    unread_.at(own).again_at = deadline_after(now, second_ns);
    return;
  }
  const uid_t user = unread_.extract(own).mapped().user;
  found_(own, user, read_identity(object, user), now, effects);
}

TimeNs UnreadPools::next_deadline() const noexcept {
  TimeNs next = never;
  for (const auto& [own, unread] : unread_) next = std::min(next, unread.again_at);
  return next;
}

bool UnreadPools::may_have(std::string_view text) const {
  return std::ranges::any_of(unread_, [&](const auto& each) { return may_keep(each.first, text); });
}

}  // namespace offpath::sift
