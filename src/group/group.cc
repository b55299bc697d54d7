#include "group/group.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/messages/message_kinds.h"

namespace offpath::group {

namespace {

constexpr std::size_t page_of_reply_bytes = 16 * 1024;
// After this time the receiver is slow, and gets the next table instead. A table that may wait is read with the
// receiver's next beat, and its answer with this member's.
constexpr TimeNs beats_of_a_post = 2, beats_of_a_waiting_post = 3;

// Work that ends when a member's state changes, and the reason.
Failure end_of(const Change& change) {
  return {Error::peer_lost,
          fmt::format("member {} (incarnation {}) {}{}{}", change.member.name, change.member.incarnation,
                      change.state == MemberState::left ? "has left the group" : "is dead",
                      change.why.empty() ? "" : ": ", change.why)};
}

// A channel that carries beats outlasts the longest wait between two, at any rate of beats.
ReachOptions with_channels_of_beats(ReachOptions options, TimeNs beat_ns) {
  options.channel_idle_ns = std::max(options.channel_idle_ns, beats_of_a_waiting_post * beat_ns);
  return options;
}

}  // namespace

Group::Group(Identity self, const GroupOptions& options, Reach::Surroundings surroundings, TimeNs now)
    : membership_(std::move(self), options.membership, now),
      reach_(std::move(surroundings), with_channels_of_beats(options.reach, membership_.beat_ns())),
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

bool Group::has_told() const noexcept {
  return std::ranges::all_of(posting_, [](const auto& under_way) { return under_way.first.second; });
}

void Group::on_request(std::uint64_t channel, const channel::Entry& request, bool may_post, TimeNs now,
                       service::Effects& effects) {
  if (static_cast<wire::EntryKind>(request.kind) != wire::EntryKind::group_members)
    return reader_.on_request(channel, request, may_post, now, effects);
  if (Status told = tell_members(channel, request, effects); !told)
    service::answer_outcome(effects, channel, request.ticket, std::move(told));
}

Status Group::tell_members(std::uint64_t channel, const channel::Entry& request, service::Effects& effects) const {
  wire::GroupMembers asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  std::vector<const Member*> behind;
  for (const auto& [name, member] : membership_.others())
    if (name > asked.after) behind.push_back(&member);
  if (const Member& self = membership_.self(); self.id.name > asked.after)
    behind.insert(std::ranges::find_if(behind, [&](const Member* each) { return each->id.name > self.id.name; }),
                  &self);
  const auto texts = std::make_shared<std::vector<Member>>();
  for (std::size_t bytes = 0; texts->size() < behind.size() && bytes < page_of_reply_bytes;) {
    const Member& next = *behind[texts->size()];
    bytes += 64 + next.id.name.size() + next.id.address.size() + next.id.http.size() + next.id.flight.size() +
             next.id.host.size() + next.id.rack.size();
    texts->push_back(next);
  }
  wire::MemberTable table{};
  table.sender = membership_.self().id.name;
  table.members = static_cast<std::uint32_t>(behind.size());
  for (const Member& each : *texts) table.entries.push_back(entry_of(each));
  effects.push_back(service::MembersEffect{channel, request.ticket, std::move(table), texts});
  return {};
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
  polled_before_ = now;
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
  if (bad && !self) ++(change.state == MemberState::dead ? counters_.deaths : counters_.suspicions);
  if (!self && (change.state == MemberState::left || change.state == MemberState::dead))
    reach_.drop(change.member.address, end_of(change));
  else if (change.instead_of && change.instead_of->process != change.member.process)
    reach_.drop(change.instead_of->address,
                {Error::peer_lost, fmt::format("member {} has restarted, as incarnation {}", change.member.name,
                                               change.member.incarnation)});
  for (const auto& tell : listeners_) tell(change, now);
}

void Group::post_table(const MembershipEffects::Post& post, const Table& table, TimeNs now) {
  // A table that may wait for the member's next beat does not delay an urgent one.
  const auto [under_way, begins] = posting_.try_emplace({post.address, post.can_wait});
  if (!begins) {  // a beat may be lost, but not entries that the member lacks
    if (post.whole) under_way->second = post;
    return;
  }
  ++counters_.tables_posted;
  counters_.table_bytes_posted += table->size();
  const bool enclosed = table->size() <= wire::enclosed_bytes_max;
  Request request;
  request.kind = wire::EntryKind::member_table;
  request.answer_can_wait = true;
  request.can_wait = post.can_wait;
  request.leaves_nothing = true;
  request.deadline =
      deadline_after(now, (post.can_wait ? beats_of_a_waiting_post : beats_of_a_post) * membership_.beat_ns());
  if (!enclosed) request.body = *table;
  request.compose = [table, enclosed](const Named& named, std::vector<std::byte>& payload) {
    wire::encode(wire::PostTable{named.bytes, enclosed ? Bytes(*table) : Bytes()}, payload);
  };
  request.answer = [this, address = post.address, can_wait = post.can_wait, now](const Result<Answer>& reply, TimeNs) {
    const auto ended = posting_.extract({address, can_wait});
    if (ended && ended.mapped()) effects_.posts.push_back(*ended.mapped());
    // It arrived after the previous round.
    if (const auto found = processes_.find(address); reply && found != processes_.end())
      membership_.on_taken(found->second, std::max(now, polled_before_));
    if (reply) return;
    ++counters_.tables_failed;
    log(LogLevel::debug, "a table of members was not delivered: {}", reply.error().message);
  };
  reach_.post(post.name, post.address, std::move(request));
}

}  // namespace offpath::group
