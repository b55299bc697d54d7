// How many pools a user has. A pool that is empty and that nobody uses goes when its user has as many as are allowed
// and names another: not before, for a program may name it without its options again. One that other members have, too,
// may not be empty there: it goes only after all of it was dropped.
#include <algorithm>

#include "base/log.h"
#include "pool/members/pools.h"

namespace offpath::pool {

namespace {

// where nothing could go: a look at all pools for each refused name would take the loop's time
constexpr TimeNs sweep_again_ns = second_ns;
// of those that can, an eighth at a time: so that one look is for many names
constexpr std::size_t share_that_goes = 8;

}  // namespace

// The pools that something under way means.
std::set<std::string_view> Pools::in_use() const {
  std::set<std::string_view> names;
  for (const auto& [number, put] : puts_) names.insert(put.place.pool);
  for (const auto& [number, remote] : gets_.all()) names.insert(remote.get.pool);
  for (const auto& [number, gather] : gathers_) names.insert(gather.pool);
  for (const auto& [number, listing] : listings_) names.insert(listing.pool);
  for (const auto& [removed, members] : removals_) names.insert(removed.first);
  for (const auto& [pool, reserve] : reserves_.pools()) names.insert(pool);
  for (const Incoming& incoming : waiting_) names.insert(incoming.place.pool);
  for (const auto& [number, incoming] : incoming_) names.insert(incoming.place.pool);
  for (const auto& [number, move] : reading_) names.insert(move.pool);
  moves_.add_pools(names);
  context_.table.add_waited_for(names);
  return names;
}

Status Pools::make_room(uid_t user) {
  const std::size_t pools = context_.table.pools_of(user);
  if (pools < context_.options.table.user_pools_max) return {};
  const auto full = [&]() -> Status {
    return fail(Error::too_large,
                "user {} has {} pools, which is the limit of each user (limits.user_pools_max); one that is empty and "
                "not in use "
                "makes room, on several members after all of it was dropped",
                user, pools);
  };
  if (const auto swept = swept_at_.find(user);
      swept != swept_at_.end() && context_.now < swept->second + sweep_again_ns)
    return full();
  const std::set<std::string_view> used = in_use();
  std::vector<const Definition*> unused;
  for (const auto& [name, definition] : definitions_) {
    const bool here_alone = !is_elsewhere(definition) && !is_reserved(name);
    if (definition.stays || definition.streams > 0 || !definition.lost.empty() || !(here_alone || definition.dropped))
      continue;
    if (context_.table.user_of(name) == user && context_.table.is_empty(name) && !used.contains(name))
      unused.push_back(&definition);
  }
  if (unused.empty()) {
    swept_at_[user] = context_.now;
    return full();
  }
  // Those without options are the same when they are named again.
  std::ranges::sort(unused, {},
                    [](const Definition* each) { return std::pair(each->text != each->name.name, each->named_at); });
  unused.resize((unused.size() + share_that_goes - 1) / share_that_goes);
  log(LogLevel::info, "user {} has {} pools: {} that were empty and not in use made room", user, pools, unused.size());
  for (const Definition* each : unused) {
    const std::string name = each->name.name;
    context_.table.forget(name);
    arriving_bytes_.erase(name);
    definitions_.erase(name);
  }
  swept_at_.erase(user);
  return {};
}

// ---- of the configuration

Status Pools::make(const std::string& text, uid_t user, Effects& effects) {
  OFP_TRY(check_not_reserved(text));
  OFP_ASSIGN(Definition* const definition, define(text, user, Access::write, By::program, effects));
  definition->stays = true;
  return {};
}

}  // namespace offpath::pool
