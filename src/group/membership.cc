#include "group/membership.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace offpath::group {

using wire::MemberEntry;
using wire::MemberTable;

namespace {

// Posts between beats, so that an event spreads fast and many events cause no storm.
constexpr TimeNs posts_of_a_beat = 8;

MemberEntry::State told(MemberState state) noexcept {
  switch (state) {
    case MemberState::alive:
    case MemberState::suspect:
      return MemberEntry::State::alive;
    case MemberState::left:
      return MemberEntry::State::left;
    case MemberState::dead:
      return MemberEntry::State::dead;
  }
  return MemberEntry::State::dead;
}

MemberState heard(MemberEntry::State state) noexcept {
  switch (state) {
    case MemberEntry::State::alive:
      return MemberState::alive;
    case MemberEntry::State::left:
      return MemberState::left;
    case MemberEntry::State::dead:
      return MemberState::dead;
  }
  return MemberState::dead;
}

// The order of two entries of one name, except for their states.
std::tuple<std::uint64_t, std::uint64_t> rank(const MemberEntry& entry) noexcept {
  return {entry.incarnation, entry.process};
}
std::tuple<std::uint64_t, std::uint64_t> rank(const Member& member) noexcept {
  return {member.id.incarnation, member.id.process};
}

MemberEntry entry_of(const Member& member) {
  return {told(member.state), member.id.incarnation, member.id.process, member.beats,
          member.id.name,     member.id.address,     member.id.http};
}

bool is_live(MemberState state) noexcept { return state == MemberState::alive || state == MemberState::suspect; }

double seconds(TimeNs time) { return static_cast<double>(time) / second_ns; }

}  // namespace

std::string_view state_name(MemberState state) noexcept {
  constexpr std::string_view names[] = {"alive", "suspect", "left", "dead"};
  return names[static_cast<std::size_t>(state)];
}

Membership::Membership(Identity self, const MembershipOptions& options, TimeNs now)
    : beat_ns_(std::max<TimeNs>(options.dead_after_ns / beats_of_death, 1)),
      last_time_(now),
      next_beat_(now),
      last_post_(now) {
  self_.id = std::move(self);
  self_.since = self_.heard_at = now;
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
  const TimeNs beat = alone() ? never : next_beat_;
  return early_at_ ? std::min(*early_at_, beat) : beat;
}

std::vector<std::byte> Membership::table() const {
  MemberTable table;
  table.sender = self_.id.name;
  table.entries.reserve(others_.size() + 1);
  table.entries.push_back(entry_of(self_));
  for (const auto& [name, member] : others_) table.entries.push_back(entry_of(member));
  std::vector<std::byte> bytes;
  wire::encode(table, bytes);
  return bytes;
}

// ---- time

// This process or its loop was stopped: the silence is its own, so it judges no member.
void Membership::notice_standstill(TimeNs now) {
  if (const TimeNs gap = now - last_time_; gap > 2 * beat_ns_) {
    for (auto& [name, member] : others_) member.heard_at += gap - beat_ns_;
  }
  last_time_ = std::max(last_time_, now);
}

void Membership::hurry(TimeNs now) noexcept {
  if (!early_at_) early_at_ = std::max(now, last_post_ + beat_ns_ / posts_of_a_beat);
}

void Membership::on_time(TimeNs now, MembershipEffects& effects) {
  if (!active()) return;
  notice_standstill(now);
  const bool beat = !alone() && now >= next_beat_;
  if (beat) {
    ++self_.beats;
    self_.heard_at = now;
    next_beat_ = std::max(next_beat_ + beat_ns_, now);
    judge(now, effects);
  }
  if (!beat && (!early_at_ || now < *early_at_)) return;
  early_at_.reset();
  last_post_ = now;
  post_to_successors(effects);
  for (const MembershipEffects::Post& owed : std::exchange(owed_, {})) add_post(effects, owed.name, owed.address);
  if (beat) post_in_turns(effects);
}

void Membership::judge(TimeNs now, MembershipEffects& effects) {
  for (auto& [name, member] : others_) {
    if (!is_live(member.state)) continue;
    const TimeNs silence = now - member.heard_at;
    if (silence >= beats_until_dead * beat_ns_)
      set_state(member, MemberState::dead, fmt::format("no sign of life for {:.1f} s", seconds(silence)), now, effects);
    else if (silence >= beats_until_suspect * beat_ns_ && member.state == MemberState::alive)
      set_state(member, MemberState::suspect, fmt::format("no sign of life for {:.1f} s", seconds(silence)), now,
                effects);
  }
}

void Membership::set_state(Member& member, MemberState state, std::string why, TimeNs now, MembershipEffects& effects) {
  if (told(member.state) != told(state)) hurry(now);
  member.state = state;
  member.since = now;
  member.why = std::move(why);
  effects.changes.push_back({member.id, state, member.why});
}

void Membership::on_lost(std::uint64_t process, std::string_view why, TimeNs now, MembershipEffects& effects) {
  notice_standstill(now);
  for (auto& [name, member] : others_) {
    if (member.id.process != process || member.state != MemberState::alive) continue;
    member.heard_at = std::min(member.heard_at, now - beats_until_suspect * beat_ns_);
    set_state(member, MemberState::suspect, std::string(why), now, effects);
  }
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
  if (alone()) last_time_ = next_beat_ = now;  // there was no member to judge, or to tell beats
  notice_standstill(now);
  if (sender->process == self_.id.process) return {};  // one's own address was among those given
  std::size_t as_new = 0;
  for (const MemberEntry& entry : table.entries) as_new += merge(entry, now, effects) ? 1 : 0;
  // The sender lacks something. (A sender that names a member twice can hide that, and gets no answer.)
  if (as_new < others_.size() + 1 && table.sender != self_.id.name) {
    // Use the address in its own table: its name may be known from an earlier process.
    const auto same = [&](const MembershipEffects::Post& owed) { return owed.address == sender->address; };
    if (std::ranges::none_of(owed_, same)) owed_.push_back({std::string(table.sender), std::string(sender->address)});
    hurry(now);
  }
  return {};
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
  if (entry.state > told(member.state)) set_state(member, heard(entry.state), "so say others", now, effects);
  if (entry.state < told(member.state)) return false;
  if (!is_live(member.state) || entry.beats <= member.beats) return true;
  member.beats = entry.beats;
  member.heard_at = now;
  if (member.state == MemberState::suspect)
    set_state(member, MemberState::alive, "it was heard of again", now, effects);
  return true;
}

bool Membership::add(const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  // Full: the member stays unknown here. Names are never forgotten, because a dead entry could come back.
  if (others_.size() + 2 > wire::members_max) return false;
  take(others_[std::string(entry.name)], entry, now, effects);
  return true;
}

void Membership::take(Member& member, const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  const bool same_process = member.id.process == entry.process;
  std::optional<Identity> before;
  if (!member.id.name.empty() && is_live(member.state)) before = std::move(member.id);
  member.id = {std::string(entry.name), entry.incarnation, entry.process, std::string(entry.address),
               std::string(entry.http)};
  member.beats = entry.beats;
  member.heard_at = now;
  hurry(now);
  set_state(member, heard(entry.state), !before ? "" : same_process ? "it goes on" : "it started anew", now, effects);
  effects.changes.back().instead_of = std::move(before);
}

bool Membership::merge_self(const MemberEntry& entry, TimeNs now, MembershipEffects& effects) {
  if (rank(entry) < rank(self_)) return false;
  if (rank(entry) == rank(self_)) {
    if (entry.state == MemberEntry::State::alive) {
      if (entry.incarnation == 0) go_on_as(1, "the others know it", now, effects);
      known_ = true;
      return entry.incarnation != 0;
    }
    go_on_as(entry.incarnation + 1, fmt::format("it was taken for {}", state_name(heard(entry.state))), now, effects);
    return false;
  }
  // The larger entry is of an earlier process with this name, or of a process that has the same name now.
  if (!known_ || entry.state != MemberEntry::State::alive || entry.process == self_.id.process) {
    go_on_as(entry.incarnation + 1, "an earlier process of this name had as large an incarnation", now, effects);
    return false;
  }
  self_.state = MemberState::dead;
  self_.since = now;
  self_.why = fmt::format("another process took its name: incarnation {} at {}", entry.incarnation, entry.address);
  effects.changes.push_back({self_.id, self_.state, self_.why});
  return true;
}

void Membership::go_on_as(std::uint64_t incarnation, std::string why, TimeNs now, MembershipEffects& effects) {
  self_.id.incarnation = incarnation;
  self_.beats = 0;
  known_ = false;
  set_state(self_, MemberState::alive, std::move(why), now, effects);
  hurry(now);
}

// ---- posting to members

void Membership::add_post(MembershipEffects& effects, const std::string& name, const std::string& address) {
  const auto same = [&](const MembershipEffects::Post& post) { return post.address == address; };
  if (std::ranges::none_of(effects.posts, same)) effects.posts.push_back({name, address});
}

void Membership::post_to_successors(MembershipEffects& effects) const {
  std::vector<const Member*> trusted;  // in the order of names, from the one after this member on
  for (auto at = others_.upper_bound(self_.id.name); at != others_.end(); ++at)
    if (at->second.state == MemberState::alive) trusted.push_back(&at->second);
  for (auto at = others_.begin(); at != others_.end() && at->first < self_.id.name; ++at)
    if (at->second.state == MemberState::alive) trusted.push_back(&at->second);
  for (std::size_t distance = 1; distance <= trusted.size(); distance *= 2)
    add_post(effects, trusted[distance - 1]->id.name, trusted[distance - 1]->id.address);
}

void Membership::post_in_turns(MembershipEffects& effects) {
  post_to_next(last_suspect_, MemberState::suspect, effects);
  post_to_next(last_dead_, MemberState::dead, effects);
  post_to_next_seed(effects);
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
}

void Membership::on_answered(std::string_view address, std::uint64_t process) {
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
