#include "pool/peers/removals.h"

#include <algorithm>

#include "pool/directory/glob.h"
#include "pool/directory/placement.h"
#include "pool/peers/drops.h"

namespace offpath::pool {

void Removals::add(const Definition& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects) {
  // Living members, and absent ones that would be owners: their disks still have it when they return.
  const PoolOptions& options = pool.name.options;
  std::vector<std::string> named = options.members, holders = Directory::owners(pool, keys.first);
  std::erase_if(named, [](const std::string& each) { return glob_prefix(each) != each; });  // a pattern names no member
  std::ranges::sort(named);
  for (std::string& each : owners_of(pool.name.policy, options.replicas, keys.first, named))
    if (std::ranges::find(holders, each) == holders.end()) holders.push_back(std::move(each));
  std::erase(holders, context_.directory.self());
  if (holders.empty()) return;
  const Object object{pool.name.name, keys};
  if (objects_.size() >= objects_max) objects_.erase(objects_.begin());
  for (const std::string& holder : holders) objects_[object][holder] = never;
  count();
  for (const std::string& holder : holders) ask(object, holder, now, effects);
}

void Removals::erase(const std::string& pool, const FrameTable::Keys& keys) {
  objects_.erase({pool, keys});
  count();
}

void Removals::erase_pool(const std::string& pool) {
  std::erase_if(objects_, [&](const auto& each) { return each.first.first == pool; });
  count();
}

bool Removals::contains(const Place& place) const {
  return !objects_.empty() && objects_.contains({place.pool, {place.row_key, place.column_key}});
}

void Removals::add_pools(std::set<std::string_view>& names) const {
  for (const auto& [object, members] : objects_) names.insert(object.first);
}

void Removals::ask(const Object& object, const std::string& member, TimeNs now, Effects& effects) {
  if (!context_.directory.is_alive(member)) return;
  const auto& [pool, keys] = object;
  context_.requests.ask({Asking::Kind::removal, 0, member, {.pool = pool, .keys = keys}}, wire::EntryKind::peer_drop,
                        deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
                        compose_drop(context_.table.user_of(pool), context_.directory.text_of(pool),
                                     literal_glob(keys.first), literal_glob(keys.second)),
                        effects);
}

void Removals::on_newcomers(const std::vector<std::string>& newcomers, TimeNs now) {
  for (auto& [object, members] : objects_)
    for (const std::string& member : newcomers)
      if (const auto at = members.find(member); at != members.end()) context_.due(at->second = now);
}

void Removals::on_answer(const Asking& asked, const Status& status, TimeNs now) {
  const auto at = objects_.find({asked.get.pool, asked.get.keys});
  if (at == objects_.end()) return;
  if (!status && status.error().code != Error::not_found) {
    context_.due(at->second[asked.member] = deadline_after(now, context_.options.move_retry_ns));
    return;
  }
  at->second.erase(asked.member);
  if (at->second.empty()) objects_.erase(at);
  count();
}

void Removals::on_time(TimeNs now, Effects& effects) {
  std::vector<std::pair<Object, std::string>> ready;
  for (auto& [object, members] : objects_)
    for (auto& [member, again_at] : members)
      if (again_at <= now) {
        again_at = never;
        ready.emplace_back(object, member);
      } else {
        context_.due(again_at);
      }
  for (const auto& [object, member] : ready) ask(object, member, now, effects);
}

}  // namespace offpath::pool
