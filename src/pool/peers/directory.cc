#include "pool/peers/directory.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "group/core_name.h"
#include "pool/directory/glob.h"
#include "pool/directory/placement.h"

namespace offpath::pool {

namespace {

// pause after a search without result: searching all pools for each refused name would take the loop's time
constexpr TimeNs sweep_again_ns = second_ns;
// an eighth of the removable pools at a time, so that one search serves many names
constexpr std::size_t share_that_goes = 8;

}  // namespace

// ---- members

bool Directory::is_alive(const std::string& member) const { return std::ranges::binary_search(alive_, member); }

void Directory::change_members(std::vector<std::string> alive, TimeNs now) {
  alive_ = std::move(alive);
  ++view_;
  settles_until_ = deadline_after(now, options_.settle_wait_ns);
  for (auto& [name, definition] : definitions_) {
    if (is_own(definition)) continue;
    std::vector<std::string> before = std::exchange(definition.members, members_now(definition.name));
    note_losses(definition, before);
    if (!is_joining()) definition.before = std::move(before);
  }
}

// If as many agents as there are copies go before rows have been copied again, the rows that only they had are lost.
// Members that return may have their disk or nothing.
void Directory::note_losses(Definition& definition, const std::vector<std::string>& before) const {
  const auto is_member = [&](const std::string& member) {
    return std::ranges::find(definition.members, member) != definition.members.end();
  };
  std::erase_if(definition.lost, is_member);
  std::erase_if(definition.missed, is_member);
  std::vector<std::string> gone;
  for (const std::string& member : before)
    if (!is_member(member)) gone.push_back(member);
  if (gone.empty()) return;
  if (!users_.has_moves(definition.name.name)) definition.missed.clear();
  definition.missed.insert(definition.missed.end(), gone.begin(), gone.end());
  if (group::agents_among(definition.missed) < definition.name.options.replicas) return;
  definition.lost.insert(definition.lost.end(), definition.missed.begin(), definition.missed.end());
  definition.missed.clear();
}

// ---- pools

const Definition* Directory::known(std::string_view name) const {
  const auto at = definitions_.find(name);
  return at != definitions_.end() ? &at->second : nullptr;
}

Definition* Directory::known(std::string_view name) {
  const auto at = definitions_.find(name);
  return at != definitions_.end() ? &at->second : nullptr;
}

Result<const Definition*> Directory::find(std::string_view text, std::optional<uid_t> user) const {
  const auto known = definitions_.find(text.substr(0, text.find('?')));
  // Without options, or with the options as members send them: no comparison is needed.
  if (known != definitions_.end() && (text == known->first || text == known->second.text)) return &known->second;
  OFP_ASSIGN(const PoolName name, parse_pool_name(text));
  if (known == definitions_.end()) return nullptr;
  if (name.has_options && name.options != known->second.name.options) {
    if (!user || !table_.may_use(known->first, *user, Access::read))
      return fail(Error::exists, "pool \"{}\" exists already, with other options", text);
    return fail(Error::exists, "pool \"{}\" exists already, as \"{}\"; leave the options out to use it", text,
                known->second.text);
  }
  return &known->second;
}

Result<Definition*> Directory::define(std::string_view text, uid_t user, Access access, By by, TimeNs now,
                                      Effects& effects) {
  OFP_ASSIGN(const Definition* const known, find(text, user));
  if (known != nullptr) {
    OFP_TRY(table_.may_use(known->name.name, user, access));
    Definition& there = definitions_.find(known->name.name)->second;
    there.named_at = now;
    return &there;
  }
  if (by != By::disk) OFP_TRY(make_room(user, now));
  Definition made;
  OFP_ASSIGN(made.name, parse_pool_name(text));
  made.text = made.name.text();
  if (made.name.options.spill != Spill::off && table_.disk() == nullptr)
    return fail(Error::unsupported,
                "pool \"{}\": agent {} has no directory for objects on disk (agent.spill_directory)", made.text, self_);
  made.members = members_now(made.name);
  made.before = made.members;
  // The cores of an agent share what a pool may have there.
  OFP_TRY(table_.define(made.name.name, made.name.options, user, std::max<std::size_t>(cores_.size(), 1)));
  made.named_at = now;
  Definition& definition = definitions_.emplace(made.name.name, std::move(made)).first->second;
  ++changes_;
  if (is_own(definition)) return &definition;
  if (const Status any = check_members(definition); !any && by == By::program)
    log(LogLevel::warning, "{}; puts into it fail until such a member joins", any.error().message);
  users_.on_pool_made(definition, user, by == By::program, now, effects);
  return &definition;
}

Result<Definition*> Directory::define_of_member(std::string_view text, std::uint64_t owner, std::uint64_t user,
                                                Access access, TimeNs now, Effects& effects) {
  const auto owner_there = static_cast<uid_t>(owner), acting = static_cast<uid_t>(user);
  OFP_ASSIGN(const Definition* const known, find(text, acting));
  if (known == nullptr) OFP_TRY(define(text, owner_there, Access::write, By::member, now, effects));
  OFP_ASSIGN(Definition* const here, define(text, acting, access, By::member, now, effects));
  if (const uid_t owner_here = table_.user_of(here->name.name); owner_here != owner_there)
    return fail(Error::exists, "pool \"{}\" belongs to user {} at member {}, and to user {} at the member that asks",
                here->name.name, owner_here, self_, owner_there);
  return here;
}

bool Directory::is_elsewhere(const Definition& definition) const noexcept {
  return !is_own(definition) && (definition.members.size() != 1 || definition.members.front() != self_);
}

std::vector<std::string> Directory::members_now(const PoolName& name) const {
  if (is_own(name)) return {self_};
  if (name.policy != Policy::local) {
    std::vector<std::string> members = members_of(name.options, alive_);
    // A service finds its rows by the names of all members. Cores that an agent has besides are not among them.
    if (is_reserved(name.name))
      std::erase_if(members, [&](const std::string& member) {
        return std::ranges::none_of(name.options.members,
                                    [&](const std::string& pattern) { return glob_matches(pattern, member); });
      });
    return members;
  }
  std::vector<std::string> living;
  for (const std::string& core : cores_)
    if (is_alive(core)) living.push_back(core);
  return living;
}

std::vector<std::string> Directory::others_of(const Definition& definition) const {
  if (is_own(definition)) return {};
  std::vector<std::string> others = definition.name.policy == Policy::local ? definition.members : alive_;
  std::erase(others, self_);
  return others;
}

Status Directory::may_be_named(std::string_view text) const {
  const bool is_shared = cores_.size() > 1 && !is_reserved(text.substr(0, text.find('?')));
  if (!text.starts_with("local:") || is_shared) return {};
  return fail(Error::denied, "pool \"{}\" is local to its agent: other members cannot use it", brief(text));
}

std::vector<std::string> Directory::owners(const Definition& definition, std::string_view row) {
  return owners_of(definition.name.policy, definition.name.options.replicas, row, definition.members);
}

Status Directory::make_room(uid_t user, TimeNs now) {
  const std::size_t pools = table_.pools_of(user);
  if (pools < options_.table.user_pools_max) return {};
  const auto full = [&]() -> Status {
    return fail(Error::too_large,
                "user {} has {} pools, which is the limit of each user (limits.user_pools_max); an empty pool that is "
                "not in use makes room; one on several members does once all of it was dropped",
                user, pools);
  };
  if (const auto swept = swept_at_.find(user); swept != swept_at_.end() && now < swept->second + sweep_again_ns)
    return full();
  std::set<std::string_view> used;
  users_.add_in_use(used);
  table_.add_waited_for(used);
  std::vector<const Definition*> unused;
  for (const auto& [name, definition] : definitions_) {
    const bool here_alone = !is_elsewhere(definition) && !is_reserved(name);
    if (definition.stays || definition.streams > 0 || !definition.lost.empty() || !(here_alone || definition.dropped))
      continue;
    if (table_.user_of(name) == user && table_.is_empty(name) && !used.contains(name)) unused.push_back(&definition);
  }
  if (unused.empty()) {
    swept_at_[user] = now;
    return full();
  }
  // Pools without options are the same when they are named again.
  std::ranges::sort(unused, {},
                    [](const Definition* each) { return std::pair(each->text != each->name.name, each->named_at); });
  unused.resize((unused.size() + share_that_goes - 1) / share_that_goes);
  log(LogLevel::info, "user {} has {} pools: {} that were empty and not in use made room", user, pools, unused.size());
  for (const Definition* each : unused) {
    const std::string name = each->name.name;
    table_.forget(name);
    users_.on_pool_gone(name);
    definitions_.erase(name);
    ++changes_;
  }
  swept_at_.erase(user);
  return {};
}

// A member that went may return. A member that never existed is not waited for, unless this agent has just started.
Status Directory::check_members(const Definition& definition) const {
  if (!definition.members.empty() || !definition.before.empty() || !definition.missed.empty() ||
      !definition.lost.empty() || is_joining())
    return {};
  return fail(Error::not_found, "pool \"{}\": no member's name matches members={}; the members are {}",
              definition.name.name, fmt::join(definition.name.options.members, ","), fmt::join(alive_, ", "));
}

bool Directory::owns(const Definition& definition, std::string_view row) const {
  const std::vector<std::string> all = owners(definition, row);
  return std::ranges::find(all, self_) != all.end();
}

bool Directory::is_first_owner(const Definition& definition, std::string_view row) const {
  const std::vector<std::string> all = owners(definition, row);
  return !all.empty() && all.front() == self_;
}

std::uint64_t Directory::view_of(const Definition& definition) {
  std::string all;
  for (const std::string& member : definition.members) all += member + '\n';
  return hash_of(all);
}

}  // namespace offpath::pool
