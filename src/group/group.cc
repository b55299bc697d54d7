#include "group/group.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/messages/message_kinds.h"

namespace offpath::group {

namespace {

constexpr TimeNs beats_of_a_post = 2;  // then the receiver is slow, and gets the next table instead

// Work that ends when a member's state changes, and the reason.
Failure end_of(const Change& change) {
  return {Error::peer_lost,
          fmt::format("member {} (incarnation {}) {}{}{}", change.member.name, change.member.incarnation,
                      change.state == MemberState::left ? "has left the group" : "is dead",
                      change.why.empty() ? "" : ": ", change.why)};
}

}  // namespace

Group::Group(Identity self, const GroupOptions& options, Reach::Surroundings surroundings, TimeNs now)
    : membership_(std::move(self), options.membership, now),
      reach_(std::move(surroundings), options.reach),
      reader_([this](const wire::MemberTable& table, TimeNs at) { return take_table(table, at); }) {
  reach_.on_connected = [this](const std::string& address, std::uint64_t process) {
    processes_[address] = process;
    membership_.on_answered(address, process);
  };
  reach_.on_lost = [this](const std::string& address, std::uint64_t process, const Failure& why, TimeNs at) {
    processes_.erase(address);
    membership_.on_lost(process, why.message, at, effects_);
  };
}

Status Group::take_table(const wire::MemberTable& table, TimeNs now) {
  Status taken = membership_.on_table(table, now, effects_);
  ++(taken ? counters_.tables_taken : counters_.tables_refused);
  return taken;
}

void Group::post(const std::string& member, Request request) {
  const Member* found = membership_.find(member);
  if (found == nullptr) {
    refused_.push_back(
        {std::move(request), {Error::not_found, fmt::format("there is no member \"{}\" in the group", member)}});
  } else if (found->state == MemberState::left || found->state == MemberState::dead) {
    refused_.push_back({std::move(request), end_of({found->id, found->state, found->why})});
  } else {
    reach_.post(member, found->id.address, std::move(request));
  }
}

void Group::leave(TimeNs now) {
  membership_.leave(now, effects_);
  carry_out(now);
}

bool Group::poll(TimeNs now) {
  bool did = expects_more_ = !refused_.empty();
  for (Refused& each : std::exchange(refused_, {}))
    if (each.request.answer) each.request.answer(tl::unexpected(std::move(each.why)), now);
  did |= reach_.poll(now);  // first: an answer is a sign of life
  expects_more_ |= reach_.expects_more();
  if (membership_.next_deadline() <= now) {
    membership_.on_time(now, effects_);
    did = true;
  }
  carry_out(now);  // not from within the poll: it drops channels
  return did;
}

bool Group::fall_asleep(TimeNs now) { return refused_.empty() && effects_.changes.empty() && reach_.fall_asleep(now); }

TimeNs Group::next_deadline() const { return std::min(membership_.next_deadline(), reach_.next_deadline()); }

void Group::carry_out(TimeNs now) {
  if (effects_.posts.empty() && effects_.changes.empty()) return;
  MembershipEffects effects = std::exchange(effects_, {});
  for (const Change& change : effects.changes) follow(change, now);
  if (effects.posts.empty()) return;
  Table whole, part;
  for (const MembershipEffects::Post& post : effects.posts) {
    Table& table = post.whole ? whole : part;
    if (!table) table = std::make_shared<const std::vector<std::byte>>(membership_.table(post.whole, now));
    post_table(post, table, now);
  }
}

void Group::follow(const Change& change, TimeNs now) {
  const bool self = change.member.process == membership_.self().id.process;
  const bool bad = change.state == MemberState::dead || change.state == MemberState::suspect;
  log(bad ? LogLevel::warning : LogLevel::info, "{} {} (incarnation {}, {}): {}{}{}", self ? "this member," : "member",
      change.member.name, change.member.incarnation, change.member.address, state_name(change.state),
      change.why.empty() ? "" : ", ", change.why);
  if (!self && (change.state == MemberState::left || change.state == MemberState::dead))
    reach_.drop(change.member.address, end_of(change));
  else if (change.instead_of && change.instead_of->process != change.member.process)
    reach_.drop(change.instead_of->address,
                {Error::peer_lost, fmt::format("member {} has started anew, as incarnation {}", change.member.name,
                                               change.member.incarnation)});
  for (const auto& tell : listeners_) tell(change, now);
}

void Group::post_table(const MembershipEffects::Post& post, const Table& table, TimeNs now) {
  const auto [under_way, begins] = posting_.try_emplace(post.address);
  if (!begins) {  // a beat may be lost, what the member lacks may not
    if (post.whole) under_way->second = post;
    return;
  }
  ++counters_.tables_posted;
  counters_.table_bytes_posted += table->size();
  const bool enclosed = table->size() <= wire::enclosed_bytes_max;
  Request request;
  request.kind = wire::EntryKind::member_table;
  request.answer_can_wait = true;
  request.deadline = deadline_after(now, beats_of_a_post * membership_.beat_ns());
  if (!enclosed) request.body = *table;
  request.compose = [table, enclosed](const Named& named, std::vector<std::byte>& payload) {
    wire::encode(wire::PostTable{named.bytes, enclosed ? Bytes(*table) : Bytes()}, payload);
  };
  request.answer = [this, address = post.address, now](const Result<Answer>& reply, TimeNs) {
    const auto ended = posting_.extract(address);
    if (ended && ended.mapped()) effects_.posts.push_back(*ended.mapped());
    if (const auto found = processes_.find(address); reply && found != processes_.end())
      membership_.on_taken(found->second, now);
    if (reply) return;
    ++counters_.tables_failed;
    log(LogLevel::debug, "a table of members was not delivered: {}", reply.error().message);
  };
  reach_.post(post.name, post.address, std::move(request));
}

}  // namespace offpath::group
