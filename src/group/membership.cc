#include "group/membership.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/backoff.h"
#include "base/hash/mix.h"

namespace offpath::group {

using wire::MemberEntry;
using wire::MemberTable;

namespace {

// Bound of posts of changes within a beat: an event spreads fast, and many events cause no storm.
constexpr TimeNs posts_of_a_beat = 8;
constexpr TimeNs beats_lately = 3;  // all posts contain a change for so long
// Digests that have differed for so long are compared by whole tables, regardless of other changes.
constexpr TimeNs beats_of_difference = 4;
constexpr TimeNs beats_between_posts_max = 8;                       // to a member whose table differs
constexpr std::uint64_t beats_between_dead = 4;                     // of posts to the dead, in turns
constexpr std::array<std::size_t, 3> neighbour_distances{1, 2, 4};  // on each side
constexpr std::size_t steps_to_neighbours_max = 64;

static_assert(static_cast<int>(MemberState::alive) == static_cast<int>(MemberEntry::State::alive));
static_assert(static_cast<int>(MemberState::suspect) == static_cast<int>(MemberEntry::State::suspect));
static_assert(static_cast<int>(MemberState::left) == static_cast<int>(MemberEntry::State::left));
static_assert(static_cast<int>(MemberState::dead) == static_cast<int>(MemberEntry::State::dead));
MemberEntry::State told(MemberState state) noexcept { return static_cast<MemberEntry::State>(state); }
MemberState heard(MemberEntry::State state) noexcept { return static_cast<MemberState>(state); }

// The order of two entries of one name, except for their states.
std::tuple<std::uint64_t, std::uint64_t> rank(const MemberEntry& entry) noexcept {
  return {entry.incarnation, entry.process};
}
std::tuple<std::uint64_t, std::uint64_t> rank(const Member& member) noexcept {
  return {member.id.incarnation, member.id.process};
}

std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = text.size();
  for (const char each : text) hash = mix((hash ^ static_cast<unsigned char>(each)) + golden_ratio);
  return hash;
}

// Equal for equal entries on every machine, because machines compare it.
std::uint64_t digest_of(const Member& member) noexcept {
  std::uint64_t digest = hash_of(member.id.name);
  for (const std::uint64_t part :
       {member.id.incarnation, member.id.process, static_cast<std::uint64_t>(member.state), member.refuted,
        hash_of(member.id.address), hash_of(member.id.http), hash_of(member.id.flight), hash_of(member.id.host),
        hash_of(member.id.rack), static_cast<std::uint64_t>(member.id.role)})
    digest = mix((digest ^ part) + golden_ratio);
  return digest;
}

bool is_live(MemberState state) noexcept { return state == MemberState::alive || state == MemberState::suspect; }
bool is_live(MemberEntry::State state) noexcept { return is_live(heard(state)); }

std::tuple<std::uint64_t, std::string_view> position(const Member& member) noexcept {
  return {member.place, member.id.name};
}

double seconds(TimeNs time) { return static_cast<double>(time) / second_ns; }

}  // namespace

MemberEntry entry_of(const Member& member) {
  return {told(member.state), member.id.incarnation, member.id.process, member.refuted,
          member.id.name,     member.id.address,     member.id.http,    member.id.flight,
          member.id.host,     member.id.rack,        member.id.role};
}

std::string_view state_name(MemberState state) noexcept {
  constexpr std::string_view names[] = {"alive", "suspect", "left", "dead"};
  return names[static_cast<std::size_t>(state)];
}

std::string_view role_name(Role role) noexcept { return role == Role::dpu ? "dpu" : "host"; }

Membership::Membership(Identity self, const MembershipOptions& options, TimeNs now)
    : beat_ns_(std::max<TimeNs>(options.dead_after_ns / beats_of_death, 1)),
      last_time_(now),
      next_beat_(now),
      last_spread_(now) {
  self_.id = std::move(self);
  self_.place = hash_of(self_.id.name);
  self_.since = self_.heard_at = self_.changed_at = changed_at_ = now;
  digest_ = self_.digest = digest_of(self_);
  for (const std::string& address : options.seeds)
    if (address != self_.id.address) seeds_.push_back({address});
}

const Member* Membership::find(std::string_view name) const noexcept {
  if (name == self_.id.name) return &self_;
  const auto at = others_.find(name);
  return at != others_.end() ? &at->second : nullptr;
}

bool Membership::alone() const noexcept { return others_.empty() && std::ranges::all_of(seeds_, &Seed::self); }

TimeNs Membership::next_deadline() const noexcept {
  if (!active()) return never;
  const TimeNs due = alone() ? never : std::min(next_beat_, judge_at_);
  return early_at_ ? std::min(*early_at_, due) : due;
}

std::vector<std::byte> Membership::table(bool whole, TimeNs now) const {
  MemberTable table;
  table.sender = self_.id.name;
  table.digest = digest_;
  table.members = static_cast<std::uint32_t>(others_.size() + 1);
  table.entries.push_back(entry_of(self_));
  for (auto at = !whole && all_is_old(now) ? others_.end() : others_.begin(); at != others_.end(); ++at) {
    const Member& member = at->second;
    if (whole || member.state == MemberState::suspect || now - member.changed_at < beats_lately * beat_ns_)
      table.entries.push_back(entry_of(member));
  }
  std::vector<std::byte> bytes;
  wire::encode(table, bytes);
  return bytes;
}

// The table says only that this member lives.
bool Membership::all_is_old(TimeNs now) const noexcept {
  return suspects_ == 0 && now - changed_at_ >= beats_lately * beat_ns_;
}

void Membership::set_flight(std::string address, TimeNs now) {
  self_.id.flight = std::move(address);
  note_change(self_, now);
}

// ---- time

// This process or its loop was stopped: the silence is its own, so it judges no member.
void Membership::notice_standstill(TimeNs now) {
  if (const TimeNs gap = now - last_time_; gap > 2 * beat_ns_) {
    for (auto& [name, member] : others_) {
      member.heard_at += gap - beat_ns_;
      if (member.state == MemberState::suspect) member.since += gap - beat_ns_;
    }
  }
  last_time_ = std::max(last_time_, now);
}

void Membership::hurry(TimeNs now) noexcept {
  const TimeNs at = std::max(now, last_spread_ + beat_ns_ / posts_of_a_beat);
  early_at_ = early_at_ ? std::min(*early_at_, at) : at;
}

void Membership::owe(const std::string& name, const std::string& address, bool whole, TimeNs now) {
  // The address counts: an earlier process of this name may have had another one.
  const auto at = std::ranges::find(owed_, address, &MembershipEffects::Post::address);
  if (at == owed_.end())
    owed_.push_back({name, address, whole});
  else
    at->whole |= whole;
  early_at_ = early_at_ ? std::min(*early_at_, now) : now;
}

void Membership::on_time(TimeNs now, MembershipEffects& effects) {
  if (!active()) return;
  notice_standstill(now);
  const bool beat = !alone() && now >= next_beat_;
  if (beat) {
    self_.heard_at = now;
    next_beat_ = next_beat_ + beat_ns_ > now ? next_beat_ + beat_ns_ : now + beat_ns_;
    choose_neighbours(now);
  }
  if (beat || now >= judge_at_) judge(now, effects);
  if (!beat && (!early_at_ || now < *early_at_)) return;
  early_at_.reset();
  // Before other posts to the same members, which may be of the whole table.
  for (const MembershipEffects::Post& owed : std::exchange(owed_, {}))
    add_post(effects, owed.name, owed.address, owed.whole);
  if (spreads_ && (beat || now >= last_spread_ + beat_ns_ / posts_of_a_beat)) {
    spreads_ = false;
    last_spread_ = now;
    post_to_successors(effects);
  }
  if (spreads_) hurry(now);
  if (!beat) return;
  post_to_neighbours(now, effects);
  post_in_turns(effects);
}

void Membership::judge(TimeNs now, MembershipEffects& effects) {
  judge_at_ = never;
  for (Member* const member : neighbours_) {
    if (member->state != MemberState::alive) continue;
    const TimeNs due = member->heard_at + beats_until_suspect * beat_ns_;
    if (now < due)
      judge_at_ = std::min(judge_at_, due);
    else
      suspect(*member, fmt::format("no sign of life for {:.1f} s", seconds(now - member->heard_at)), now, effects);
  }
  if (suspects_ == 0) return;
  for (auto& [name, member] : others_) {
    if (member.state != MemberState::suspect) continue;
    const TimeNs due = std::max(member.since, member.heard_at) + beats_to_refute * beat_ns_;
    if (now < due)
      judge_at_ = std::min(judge_at_, due);
    else
      set_state(member, MemberState::dead,
                fmt::format("it did not refute a suspicion for {:.1f} s", seconds(now - member.since)), now, effects);
  }
}

// Its digest, and that of the whole table, follow; all members are told.
void Membership::note_change(Member& member, TimeNs now) {
  digest_ -= member.digest;
  member.digest = digest_of(member);
  digest_ += member.digest;
  member.changed_at = changed_at_ = now;
  ++changes_;
  spreads_ = true;
  hurry(now);
}

void Membership::set_state(Member& member, MemberState state, std::string why, TimeNs now, MembershipEffects& effects) {
  order_is_stale_ = true;
  for (auto& [counted, count] : {std::pair(MemberState::suspect, &suspects_), {MemberState::dead, &dead_}}) {
    *count -= member.state == counted ? 1 : 0;
    *count += state == counted ? 1 : 0;
  }
  member.state = state;
  member.since = now;
  member.why = std::move(why);
  note_change(member, now);
  effects.changes.push_back({member.id, state, member.why});
}

void Membership::suspect(Member& member, std::string why, TimeNs now, MembershipEffects& effects) {
  set_state(member, MemberState::suspect, std::move(why), now, effects);
  judge_at_ = std::min(judge_at_, now + beats_to_refute * beat_ns_);
}

void Membership::on_lost(std::uint64_t process, std::string_view why, TimeNs now, MembershipEffects& effects) {
  notice_standstill(now);
  for (auto& [name, member] : others_) {
    if (member.id.process != process || member.state != MemberState::alive) continue;
    member.heard_at = std::min(member.heard_at, now - beats_until_suspect * beat_ns_);
    suspect(member, std::string(why), now, effects);
    owe(name, member.id.address, false, now);  // so that it can refute it
  }
}

void Membership::on_taken(std::uint64_t process, TimeNs since) {
  for (Member* const member : neighbours_)
    if (member->id.process == process) member->heard_at = std::max(member->heard_at, since);
}

void Membership::leave(TimeNs now, MembershipEffects& effects) {
  if (!active()) return;
  set_state(self_, MemberState::left, "it was stopped", now, effects);
  for (const auto& [name, member] : others_)
    if (member.state == MemberState::alive) add_post(effects, name, member.id.address);
}

// ---- tables of others

Status Membership::on_table(const MemberTable& table, TimeNs now, MembershipEffects& effects) {
  if (!active()) return fail(Error::closed, "member {} has left the group", self_.id.name);
  const auto sender = std::ranges::find(table.entries, table.sender, &MemberEntry::name);
  if (sender == table.entries.end())
    return fail(Error::protocol, "a table of members without its sender, \"{}\"", table.sender);
  if (alone()) last_time_ = next_beat_ = now;  // there was no member to judge or to send beats to
  notice_standstill(now);
  if (sender->process == self_.id.process) return {};  // this member's own address was among those given
  bool is_as_new = true;
  for (const MemberEntry& entry : table.entries) {
    const bool as_new = merge(entry, now, effects);
    if (entry.name == sender->name) is_as_new &= as_new;
  }
  if (table.sender != self_.id.name)
    hear_sender(table, *sender, is_as_new, now);
  else if (!is_as_new)
    owe(self_.id.name, std::string(sender->address), true, now);  // another process of this name
  return {};
}

// Besides its entries, a post shows that its sender lives, and by its digest whether it lacks entries.
void Membership::hear_sender(const MemberTable& table, const MemberEntry& sender, bool is_as_new, TimeNs now) {
  const std::string name(table.sender), address(sender.address);
  if (const auto known = others_.find(name); known != others_.end() && known->second.id.process == sender.process) {
    known->second.heard_at = std::max(known->second.heard_at, now);
    if (known->second.state == MemberState::suspect) owe(name, address, false, now);  // it refutes what it reads
  }
  if (table.digest == digest_) {
    differences_.erase(address);
    return;
  }
  if (differences_.size() > wire::members_max) differences_.clear();
  Difference& difference = differences_.try_emplace(address, Difference{.began = now}).first->second;
  if (difference.here != digest_ || difference.there != table.digest) {
    difference.here = digest_;
    difference.there = table.digest;
    difference.since = now;
    difference.repeated = 0;
  }
  const bool lacks = !is_as_new || table.members<others_.size() + 1, has_more = table.members> others_.size() + 1;
  // While changes spread, tables differ for a moment.
  const bool lasts = now - difference.since >= beat_ns_ || now - difference.began >= beats_of_difference * beat_ns_;
  if (now < difference.next_post || !(lacks || has_more || lasts)) return;
  difference.next_post = now + backoff_ns(beat_ns_, difference.repeated++, beats_between_posts_max * beat_ns_);
  owe(name, address, lacks || lasts, now);
}

bool Membership::merge(const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  if (entry.name == self_.id.name) return merge_self(entry, now, effects);
  const auto at = others_.find(entry.name);
  if (at == others_.end()) return add(entry, now, effects);
  Member& member = at->second;
  if (rank(entry) < rank(member)) return false;
  if (rank(entry) > rank(member)) {
    take(member, entry, now, effects);
    return true;
  }
  if (is_live(entry.state) && is_live(member.state)) return merge_live(member, entry, now, effects);
  if (entry.state > told(member.state)) set_state(member, heard(entry.state), "other members report it", now, effects);
  return entry.state == told(member.state);
}

bool Membership::merge_live(Member& member, const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  const bool is_suspect = entry.state == MemberEntry::State::suspect;
  if (entry.refuted < member.refuted) return false;
  if (entry.refuted == member.refuted) {
    if (is_suspect && member.state == MemberState::alive) suspect(member, "other members report it", now, effects);
    return is_suspect || member.state == MemberState::alive;
  }
  member.refuted = entry.refuted;
  member.heard_at = now;  // it has refuted something since
  if (is_suspect) {
    suspect(member, "other members report it", now, effects);
  } else if (member.state == MemberState::suspect) {
    set_state(member, MemberState::alive, "it was heard from again", now, effects);
  } else {
    note_change(member, now);
  }
  return true;
}

bool Membership::add(const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  // Full: the member stays unknown here. Names are never forgotten, because a dead entry could come back.
  if (others_.size() + 2 > wire::members_max) return false;
  Member& added = others_[std::string(entry.name)];
  added.place = hash_of(entry.name);
  take(added, entry, now, effects);
  return true;
}

void Membership::take(Member& member, const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  const bool same_process = member.id.process == entry.process;
  std::optional<Identity> before;
  if (!member.id.name.empty() && is_live(member.state)) before = std::move(member.id);
  member.id = {std::string(entry.name),    entry.incarnation,       entry.process,
               std::string(entry.address), std::string(entry.http), std::string(entry.flight),
               std::string(entry.host),    std::string(entry.rack), entry.role};
  member.refuted = entry.refuted;
  member.heard_at = now;
  const char* const why = !before ? "" : same_process ? "the same process continues" : "it restarted";
  if (entry.state == MemberEntry::State::suspect)
    suspect(member, why, now, effects);
  else
    set_state(member, heard(entry.state), why, now, effects);
  effects.changes.back().instead_of = std::move(before);
}

bool Membership::merge_self(const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  if (rank(entry) < rank(self_)) return false;
  if (rank(entry) == rank(self_)) {
    if (is_live(entry.state)) {
      known_ = true;
      if (entry.incarnation == 0) {
        go_on_as(1, "the others know it", now, effects);
        known_ = true;
        return false;
      }
      const bool is_suspect = entry.state == MemberEntry::State::suspect;
      if (is_suspect ? entry.refuted >= self_.refuted : entry.refuted > self_.refuted) {
        self_.refuted = entry.refuted + (is_suspect ? 1 : 0);
        note_change(self_, now);
      }
      return !is_suspect && entry.refuted == self_.refuted;
    }
    go_on_as(entry.incarnation + 1, fmt::format("it was taken for {}", state_name(heard(entry.state))), now, effects);
    return false;
  }
  // The larger entry belongs to an earlier process of this name, or to another present one. Two cannot listen at one
  // address.
  if (!known_ || !is_live(entry.state) || entry.process == self_.id.process || entry.address == self_.id.address) {
    go_on_as(entry.incarnation + 1, "an earlier process of this name had as large an incarnation", now, effects);
    return false;
  }
  self_.state = MemberState::dead;
  self_.since = now;
  self_.why =
      fmt::format("another agent of its name took over: incarnation {} at {}", entry.incarnation, entry.address);
  effects.changes.push_back({self_.id, self_.state, self_.why});
  return true;
}

void Membership::go_on_as(std::uint64_t incarnation, std::string why, TimeNs now, MembershipEffects& effects) {
  self_.id.incarnation = incarnation;
  self_.refuted = 0;
  known_ = false;
  set_state(self_, MemberState::alive, std::move(why), now, effects);
}

// ---- the order of members, and neighbours in it

void Membership::order_members() {
  if (!std::exchange(order_is_stale_, false)) return;
  order_.clear();
  for (auto& [name, member] : others_)
    if (is_live(member.state)) order_.push_back(&member);
  std::ranges::sort(order_, {}, [](const Member* member) { return position(*member); });
  const auto after =
      std::ranges::upper_bound(order_, position(self_), {}, [](const Member* member) { return position(*member); });
  after_self_ = static_cast<std::size_t>(after - order_.begin());
}

Member* Membership::neighbour(Side side, std::size_t distance) const noexcept {
  const std::size_t from = side == Side::after ? after_self_ + distance - 1 : after_self_ + order_.size() - distance;
  return order_[from % order_.size()];
}

bool Membership::is_quiet(const Member& member, TimeNs now) const noexcept {
  return member.state == MemberState::suspect ||
         (member.is_neighbour &&
          now - member.heard_at >= (member.posts_here ? beats_until_quiet : beats_until_unanswered) * beat_ns_);
}

void Membership::choose_neighbours(TimeNs now) {
  order_members();
  std::vector<Member*> chosen, before;
  choose_neighbours(Side::after, now, chosen);
  choose_neighbours(Side::before, now, before);
  neighbours_after_ = chosen.size();
  for (Member* const member : neighbours_) member->posts_here = false;
  for (Member* const member : before) {
    member->posts_here = true;
    if (std::ranges::find(chosen, member) == chosen.end()) chosen.push_back(member);
  }
  for (Member* const member : neighbours_)
    if (std::ranges::find(chosen, member) == chosen.end()) member->is_neighbour = false;
  for (Member* const member : chosen) {
    if (std::exchange(member->is_neighbour, true)) continue;
    // It has been silent, so it is asked from now on.
    member->heard_at = std::max(member->heard_at, now - beat_ns_);
  }
  neighbours_ = std::move(chosen);
}

// The members at neighbours' distances among all live members, and among those that are not silent. So members behind a
// failed one are judged at the same time, not after its death.
void Membership::choose_neighbours(Side side, TimeNs now, std::vector<Member*>& chosen) {
  const std::size_t steps = std::min(order_.size(), steps_to_neighbours_max);
  std::size_t heard_of = 0;
  for (std::size_t distance = 1; distance <= steps && heard_of < neighbour_distances.back(); ++distance) {
    Member* const member = neighbour(side, distance);
    const bool is_heard = !is_quiet(*member, now);
    heard_of += is_heard ? 1 : 0;
    const auto is_chosen = [](std::size_t at) {
      return std::ranges::find(neighbour_distances, at) != neighbour_distances.end();
    };
    if (is_chosen(distance) || (is_heard && is_chosen(heard_of))) chosen.push_back(member);
  }
}

// ---- posting to members

void Membership::add_post(MembershipEffects& effects, const std::string& name, const std::string& address, bool whole,
                          bool can_wait) {
  const auto same = std::ranges::find(effects.posts, address, &MembershipEffects::Post::address);
  if (same == effects.posts.end()) return effects.posts.push_back({name, address, whole, can_wait});
  same->whole |= whole;
  same->can_wait &= can_wait;
}

void Membership::post_to_neighbours(TimeNs now, MembershipEffects& effects) const {
  for (std::size_t at = 0; at < neighbours_.size(); ++at) {
    const Member& member = *neighbours_[at];
    const bool quiet = is_quiet(member, now);
    if (is_live(member.state) && (at < neighbours_after_ || quiet))
      add_post(effects, member.id.name, member.id.address, false, !quiet && all_is_old(now));
  }
}

void Membership::post_to_successors(MembershipEffects& effects) {
  order_members();
  std::size_t place = 0, next = 1;
  for (std::size_t distance = 1; distance <= order_.size(); ++distance) {
    const Member& member = *neighbour(Side::after, distance);
    if (member.state != MemberState::alive || ++place != next) continue;
    next *= 2;
    add_post(effects, member.id.name, member.id.address);
  }
}

// Without a receiver the table is not searched, which is most of an idle beat's work.
void Membership::post_in_turns(MembershipEffects& effects) {
  if (suspects_ > 0) post_to_next(last_suspect_, MemberState::suspect, effects);
  // Spreads posts to all members over several beats.
  if (beats_++ % beats_between_dead == self_.place % beats_between_dead && dead_ > 0)
    post_to_next(last_dead_, MemberState::dead, effects);
  if (found_seeds_at_ != changes_) post_to_next_seed(effects);
}

void Membership::post_to_next(std::string& last, MemberState state, MembershipEffects& effects) {
  const auto wanted = [state](const auto& other) { return other.second.state == state; };
  auto at = std::find_if(others_.upper_bound(last), others_.end(), wanted);
  if (at == others_.end()) at = std::ranges::find_if(others_, wanted);
  if (at == others_.end()) return;
  last = at->first;
  add_post(effects, at->first, at->second.id.address);
}

bool Membership::waits(const Seed& seed) const {
  return !seed.self && std::ranges::none_of(others_, [&](const auto& other) {
    return is_live(other.second.state) && other.second.id.address == seed.address;
  });
}

std::size_t Membership::waiting_seeds() const {
  return static_cast<std::size_t>(std::ranges::count_if(seeds_, [this](const Seed& seed) { return waits(seed); }));
}

void Membership::post_to_next_seed(MembershipEffects& effects) {
  for (std::size_t tried = 0; tried < seeds_.size(); ++tried) {
    const Seed& seed = seeds_[next_seed_++ % seeds_.size()];
    if (waits(seed)) return add_post(effects, "", seed.address);
  }
  found_seeds_at_ = changes_;
}

void Membership::on_answered(std::string_view address, std::uint64_t process) {
  found_seeds_at_.reset();
  for (Seed& seed : seeds_) {
    if (seed.address != address) continue;
    seed.self = process == self_.id.process;
    const auto member =
        std::ranges::find_if(others_, [&](const auto& other) { return other.second.id.process == process; });
    // Reached by another name of its machine than the one in its table.
    if (member != others_.end()) seed.address = member->second.id.address;
  }
}

}  // namespace offpath::group
