// Agreement on the definition of a sift pool. Agents that know different members make different definitions of one
// name, of which at most one may win.
//
//   - Nothing is taken into a pool before all of its living members have confirmed, within `heard_for_ns`, that they
//     have the same definition, and all other living members that they have no other one. Every agent that has a
//     definition asks all members, and again every second.
//   - A member that has confirmed does not take another definition for `bound_for_ns`, which is longer: by then it has
//     heard of the agreement.
//   - Of two definitions without agreement, the one with more members wins, or else the first in order; agents with the
//     other one take it. A member that was refused promises nothing, so a definition that cannot win disappears soon.
//   - A definition with agreement stays. If there are two, of members that could not reach each other, both keep their
//     objects. The one that does not win takes no more, and gives the reason in its answers, the log and the status,
//     until it is dropped.
//
// Absent members are not waited for: they are told when they are back.
#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "pool/directory/placement.h"
#include "sift/sift_service.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;

namespace {

constexpr TimeNs heard_for_ns = 5 * second_ns, bound_for_ns = 10 * second_ns;
constexpr TimeNs ask_every_ns = second_ns, tell_rivals_every_ns = 5 * second_ns;
constexpr TimeNs rival_believed_ns = 3 * tell_rivals_every_ns;
constexpr TimeNs refused_wait_ns = 15 * second_ns;  // for another definition, after a refusal
constexpr TimeNs meet_ns = 3 * second_ns;           // until unknown members of a definition count as absent
enum Answer : std::uint64_t { promised = 0, agreed_on = 1, unpromised = 2 };  // a member that has the same definition

bool has_member(const Settings& settings, std::string_view name) {
  return fmt::format(",{},", settings.members).find(fmt::format(",{},", name)) != std::string::npos;
}

Result<bool> comes_before(std::string_view text, std::string_view other) {
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  OFP_ASSIGN(const Settings others, parse_settings(other));
  const auto members = std::ranges::count(settings.members, ','),
             others_members = std::ranges::count(others.members, ',');
  return members != others_members ? members > others_members : text < other;
}

}  // namespace

bool SiftService::is_ready(const Pool& pool) noexcept { return pool.agreed && pool.sift->is_restored(); }

// For a pool that is not ready: whether it may become ready.
Status SiftService::may_put(const Pool& pool, TimeNs now) const {
  if (pool.agreed && now < pool.rival_until)
    return fail(
        Error::exists,
        "pool \"{}\" is \"{}\" here, and \"{}\" on other members, which wins: nothing more is accepted here. Read "
        "its tracks, "
        "and drop it here to use the other one",
        pool.name, pool.text, pool.rival);
  if (!pool.agreed && pool.refused_since != never && now >= pool.refused_since + refused_wait_ns &&
      !pool.refused.empty())
    return fail(Error::exists, "pool \"{}\" is different at member {}: {}", pool.text, pool.refused.begin()->first,
                pool.refused.begin()->second);
  return {};
}

// Members that live, or may live, and have not confirmed that they have no other definition.
std::vector<std::string> SiftService::missing(const Pool& pool, TimeNs now) const {
  std::vector<std::string> all;
  const auto look = [&](const std::string& member) {
    const auto heard = pool.heard.find(member);
    if (member != self_ && (heard == pool.heard.end() || heard->second + heard_for_ns < now)) all.push_back(member);
  };
  std::ranges::for_each(alive_, look);
  if (pool.told_at == never || now >= pool.told_at + meet_ns) return all;
  for (const std::string& member : pool.sift->geometry().members())
    if (!std::ranges::binary_search(alive_, member)) look(member);
  return all;
}

void SiftService::work_on_agreement(Pool& pool, TimeNs now, service::Effects& effects) {
  std::erase_if(pool.refused, [&](const auto& each) { return !std::ranges::binary_search(alive_, each.first); });
  std::erase_if(pool.asking, [&](const auto& each) { return !std::ranges::binary_search(alive_, each); });
  if (pool.refused.empty()) pool.refused_since = never;
  if (!pool.agreed && pool.refused.empty() && missing(pool, now).empty()) return agree(pool, now, effects);
  if (now < pool.ask_at && pool.ask_at != never) return;
  if (pool.agreed) {
    set_ask_at(pool, never);
    for (const std::string& member : alive_) {  // each once, and again those that have another definition
      if (member == self_ || pool.heard.contains(member)) continue;
      tell(pool, member, now, effects);
      set_ask_at(pool, deadline_after(now, tell_rivals_every_ns));
    }
    return;
  }
  for (const std::string& member : alive_)
    if (member != self_) tell(pool, member, now, effects);
  set_ask_at(pool, deadline_after(now, ask_every_ns));
  if (may_put(pool, now)) return;
  for (const Deferred& serve : std::exchange(pool.deferred, {})) serve(now, effects);  // these fail
}

void SiftService::tell(Pool& pool, const std::string& member, TimeNs now, service::Effects& effects) {
  if (!pool.asking.insert(member).second) return;
  const std::uint64_t token = work(Work::Kind::tell, &pool, 0);
  works_.at(service::number_of(token)).member = member;
  if (pool.agreed && pool.refused.contains(member)) {  // an empty flush, which says that this definition was agreed on
    effects.push_back(
        service::AskEffect{token, member, EntryKind::peer_flush, deadline_after(now, options_.ask_wait_ns), nullptr, 0,
                           [full = pool.text, user = pool.user](const AskedMemory&, std::vector<std::byte>& payload) {
                             wire::encode(wire::PeerFlush{user, 0, 1, full}, payload);
                           }});
    return;
  }
  effects.push_back(
      service::AskEffect{token, member, EntryKind::peer_define, deadline_after(now, options_.ask_wait_ns), nullptr, 0,
                         [full = pool.text, user = pool.user](const AskedMemory&, std::vector<std::byte>& payload) {
                           wire::encode(wire::PeerDefine{user, full}, payload);
                         }});
}

void SiftService::on_told(Pool& pool, const std::string& member, const Result<service::Answer>& answer, TimeNs now,
                          service::Effects& effects) {
  pool.asking.erase(member);
  wire::Done done{};
  const Status status = answer ? wire::decode(answer->payload, done) : Status(tl::unexpected(answer.error()));
  if (status) {
    if (done.value != unpromised) pool.heard[member] = now;
    pool.refused.erase(member);
    if (done.value == agreed_on) return agree(pool, now, effects);
    return work_on_agreement(pool, now, effects);
  }
  const bool takes_part = pool.sift->geometry().position_of(member) < pool.sift->geometry().members().size();
  switch (status.error().code) {
    case Error::exists:
    case Error::denied:
      pool.heard.erase(member);
      if (pool.refused.insert_or_assign(member, status.error().message).second)
        log(LogLevel::warning, "pool \"{}\": member {} has another definition: {}", pool.name, member,
            status.error().message);
      pool.refused_since = std::min(pool.refused_since, now);
      set_ask_at(pool, std::min(pool.ask_at, deadline_after(now, pool.agreed ? tell_rivals_every_ns : ask_every_ns)));
      return;
    case Error::too_large:
    case Error::invalid:
    case Error::no_memory:
    case Error::unsupported:
      if (takes_part && !pool.agreed)
        log(LogLevel::error, "pool \"{}\": member {} does not take part: {}", pool.name, member,
            status.error().message);
      pool.heard[member] = now;  // its pieces wait, and flushing programs get an error
      return work_on_agreement(pool, now, effects);
    default:
      return;  // asked again as long as it lives
  }
}

void SiftService::agree(Pool& pool, TimeNs now, service::Effects& effects) {
  if (std::exchange(pool.agreed, true)) return;
  set_ask_at(pool, deadline_after(now, tell_rivals_every_ns));
  if (!pool.own.empty()) set_due(pool, now);
  serve_deferred(pool, now, effects);
}

// Serves another member's definition. Answers whether all agreed on it, as far as is known here.
Result<std::uint64_t> SiftService::serve_definition(std::string_view text, uid_t user, TimeNs now,
                                                    service::Effects& effects) {
  const auto known = by_name_.find(name_in(text));
  if (known == by_name_.end() || known->second->text == text) {
    if (known != by_name_.end()) OFP_TRY(may_use(*known->second, user));
    OFP_ASSIGN(Pool* const pool, known != by_name_.end() ? known->second.get() : define(text, user, effects));
    if (known == by_name_.end()) pool->told_at = now;
    if (pool->agreed) return agreed_on;
    if (!pool->refused.empty()) return unpromised;
    pool->bound_until = deadline_after(now, bound_for_ns);
    return promised;
  }
  Pool& mine = *known->second;
  OFP_TRY(may_use(mine, user));
  OFP_ASSIGN(const bool wins, comes_before(text, mine.text));
  if (mine.agreed) {  // the sender and the members that agree with it have to learn that it was
    mine.heard.clear();
    set_ask_at(mine, std::min(mine.ask_at, deadline_after(now, ask_every_ns)));
  }
  if (mine.agreed || (!wins && mine.refused.empty()))
    return fail(Error::exists, "member {} has it as \"{}\"{}", self_, mine.text,
                mine.agreed ? "" : ", on which its members do not agree yet");
  if (now < mine.bound_until)
    return fail(Error::would_block, "member {} has it as \"{}\" for the moment", self_, mine.text);
  OFP_ASSIGN(Pool* const pool, replace(mine, text, user, now, effects));
  pool->told_at = now;
  pool->bound_until = deadline_after(now, bound_for_ns);
  return promised;
}

// Replaces a definition that was not agreed on, and so has no objects.
Result<SiftService::Pool*> SiftService::replace(Pool& mine, std::string_view text, uid_t user, TimeNs now,
                                                service::Effects& effects) {
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  if (!has_member(settings, self_))
    return fail(Error::unsupported, "pool \"{}\": this agent, {}, is not one of its members", text, self_);
  log(LogLevel::info, "pool \"{}\" is made as \"{}\"", mine.text, text);
  std::vector<Deferred> deferred = std::exchange(mine.deferred, {});
  std::set<std::string> replaced = std::exchange(mine.replaced, {});
  OFP_ASSIGN(const Settings before, parse_settings(mine.text));
  if (same_but_members(before, settings)) replaced.insert(mine.text);
  drop(mine, now, effects);
  auto made = define(text, user, effects);
  if (!made) {  // there is no memory for it
    for (const Deferred& serve : deferred) serve(now, effects);
    return made;
  }
  (*made)->replaced = std::move(replaced);
  for (Deferred& each : deferred) (*made)->deferred.push_back(std::move(each));
  serve_deferred(**made, now, effects);
  return made;
}

// A member sends other requests for the pool only after all have agreed on it.
Result<SiftService::Pool*> SiftService::define_agreed(std::string_view text, uid_t user, TimeNs now,
                                                      service::Effects& effects) {
  const auto known = by_name_.find(name_in(text));
  const bool other = known != by_name_.end() && known->second->text != text;
  if (other) {
    Pool& mine = *known->second;
    OFP_TRY(may_use(mine, user));
    OFP_ASSIGN(const bool wins, comes_before(text, mine.text));
    if (mine.agreed && wins) {
      if (now >= mine.rival_until)
        log(LogLevel::error, "pool \"{}\" is \"{}\" on other members, which wins: nothing more is accepted here",
            mine.text, text);
      mine.rival = text;
      mine.rival_until = deadline_after(now, rival_believed_ns);
    }
    if (mine.agreed) return fail(Error::exists, "member {} has it as \"{}\"", self_, mine.text);
    if (now < mine.bound_until)
      return fail(Error::would_block, "member {} has it as \"{}\" for the moment", self_, mine.text);
  }
  OFP_ASSIGN(Pool* const pool, other ? replace(*known->second, text, user, now, effects) : define(text, user, effects));
  agree(*pool, now, effects);
  return pool;
}

// ---- pools that wait for members

Result<std::string> SiftService::await(std::string_view text, uid_t user, const Failure& why) {
  const auto known = awaited_.find(name_in(text));
  if (known == awaited_.end()) {
    const auto own = std::ranges::count_if(awaited_, [&](const auto& each) { return each.second.user == user; });
    if (static_cast<std::size_t>(own) >= options_.user_pools_max)
      return fail(Error::too_large,
                  "{} sift pools of user {} wait for members, which is the limit of each user (limits.user_pools_max)",
                  own, user);
    awaited_.emplace(name_in(text), Awaited{std::string(text), user});
    log(LogLevel::info, "pool \"{}\" will be made later: {}", text, why.message);
    return std::string(text);
  }
  if (known->second.user != user && user != 0)
    return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", name_in(text), known->second.user,
                user);
  if (text.size() == name_in(text).size() || text == known->second.text) return known->second.text;
  return fail(Error::exists, "pool \"{}\" already waits for members, as \"{}\"", text, known->second.text);
}

void SiftService::make_awaited(TimeNs now, service::Effects& effects) {
  std::vector<std::pair<std::string, uid_t>> all;
  for (const auto& [name, awaited] : awaited_) all.emplace_back(awaited.text, awaited.user);
  for (const auto& [text, user] : all) {
    const auto made = define(text, user, effects);
    if (made || made.error().code == Error::would_block) continue;
    log(LogLevel::error, "{}", made.error().message);
    if (const auto awaited = awaited_.find(name_in(text)); awaited != awaited_.end())
      for (const Deferred& serve : std::exchange(awaited->second.deferred, {})) serve(now, effects);
  }
}

}  // namespace offpath::sift
