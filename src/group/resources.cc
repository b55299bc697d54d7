#include "group/resources.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::group {

namespace {

constexpr std::size_t visit_bytes = 64;  // as much work as these: a name that is looked at

// "/pools/hash:" has "/pools/hash:/a" and not "/pools/hash:b".
bool is_below(std::string_view full, std::string_view path) noexcept {
  return full.starts_with(path) && (full.size() == path.size() || path.empty() || full[path.size()] == '/');
}

std::string without_slash(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string(path);
}

}  // namespace

void Resources::set_self(std::string name, std::uint64_t process) {
  self_ = std::move(name);
  process_ = process;
}

void Resources::add(ResourceSection section) {
  const auto at = std::ranges::lower_bound(sections_, section.root, {}, &ResourceSection::root);
  sections_.insert(at, std::move(section));
}

// Not 0, which means "no version seen". It starts at another value in each process, so versions of an earlier process
// are seldom equal.
std::uint64_t Resources::version(bool of_member) const {
  std::uint64_t sum = process_;
  for (const ResourceSection& each : sections_)
    if (!(of_member && each.of_group)) sum += each.changes();
  return std::max<std::uint64_t>(sum, 1);
}

// ---- questions

void Resources::on_request(const service::Request& asked, TimeNs now, service::Effects& effects) {
  if (Status served = serve(asked, now, effects); !served)
    service::answer_outcome(effects, asked.channel, asked.entry.ticket, std::move(served));
}

Status Resources::serve(const service::Request& asked, TimeNs now, service::Effects& effects) {
  const service::ChannelNumber channel = asked.channel;
  switch (static_cast<wire::EntryKind>(asked.entry.kind)) {
    case wire::EntryKind::peer_resources: {
      wire::PeerResources peer{};
      OFP_TRY(wire::decode(asked.entry.payload, peer));
      const auto user = static_cast<uid_t>(peer.user);
      return take({channel, asked.entry.ticket, user, true, without_slash(peer.path), std::string(peer.after),
                   peer.seen, peer.number},
                  peer.wait_ns, now, effects);
    }
    case wire::EntryKind::peer_cancel: {
      wire::PeerCancel cancelled{};
      OFP_TRY(wire::decode(asked.entry.payload, cancelled));
      if (const auto found = by_number_.find({channel, cancelled.number}); found != by_number_.end())
        cancel(channel, found->second, now, effects);
      effects.push_back(service::ReplyEffect{channel, asked.entry.ticket, wire::Done{0}});
      return {};
    }
    case wire::EntryKind::pool_cancel: {
      wire::PoolCancel cancelled{};
      if (wire::decode(asked.entry.payload, cancelled)) cancel(channel, cancelled.ticket, now, effects);
      return {};
    }
    default:
      break;
  }
  wire::ListResources list{};
  OFP_TRY(wire::decode(asked.entry.payload, list));
  if (!list.member.empty() && list.member != self_) return relay(asked, list, now, effects);
  return take(
      {channel, asked.entry.ticket, asked.user, false, without_slash(list.path), std::string(list.after), list.seen},
      list.wait_ns, now, effects);
}

Status Resources::relay(const service::Request& asked, const wire::ListResources& list, TimeNs now,
                        service::Effects& effects) {
  Relayed relayed{asked.channel, asked.entry.ticket, std::string(list.member), {}};
  relayed.limits = {{{0, fmt::format("user {}", asked.user)}, user_waiting_max},
                    {{asked.channel, "this program"}, program_waiting_max},
                    {{asked.channel, fmt::format("this program at {}", list.member)}, program_member_max}};
  OFP_TRY(take_room(relayed.limits));
  const std::uint64_t number = next_++;
  const std::int64_t wait_ns = std::clamp<std::int64_t>(list.wait_ns, 0, wait_max_ns);
  relayed_.emplace(number, std::move(relayed));
  by_ticket_.emplace(std::pair(asked.channel, asked.entry.ticket), number);
  effects.push_back(service::AskEffect{
      service::token_of(service::ServiceId::resources, number), std::string(list.member),
      wire::EntryKind::peer_resources, deadline_after(now, wait_ns + member_grace_ns), nullptr, 0,
      [user = std::uint64_t{asked.user}, number, path = std::string(list.path), after = std::string(list.after),
       seen = list.seen, wait_ns](const service::AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerResources{user, number, path, after, seen, wait_ns}, payload);
      }});
  return {};
}

Status Resources::take(Question question, std::int64_t wait_ns, TimeNs now, service::Effects& effects) {
  if (question.seen != version(question.of_member) || wait_ns <= 0) {
    Page page = page_of(question);
    effects.push_back(
        service::ListedEffect{question.channel, question.ticket, std::move(page.listed), std::move(page.texts)});
    return {};
  }
  const std::string user = fmt::format("user {}", question.user);
  if (question.of_member)
    question.limits = {{{0, user}, user_waiting_max},
                       {{question.channel, "this member"}, member_waiting_max},
                       {{question.channel, user}, member_user_max}};
  else
    question.limits = {{{0, user}, user_waiting_max},
                       {{question.channel, "this program"}, program_waiting_max},
                       {{question.channel, "this program at its agent"}, program_member_max}};
  OFP_TRY(take_room(question.limits));
  question.until = deadline_after(now, std::min<std::int64_t>(wait_ns, wait_max_ns));
  ends_.set(next_, question.until);
  by_ticket_.emplace(std::pair(question.channel, question.ticket), next_);
  if (question.of_member) by_number_.emplace(std::pair(question.channel, question.number), question.ticket);
  waiting_.emplace(next_++, std::move(question));
  return {};
}

Status Resources::take_room(const Limits& limits) {
  if (waiting() >= waiting_max)
    return fail(Error::would_block, "{} questions for the directory wait, which is the limit", waiting());
  for (const Limit& each : limits)
    if (const auto known = counts_.find(each.counted); known != counts_.end() && known->second >= each.max)
      return fail(Error::would_block, "{} questions for the directory of {} wait, which is the limit", each.max,
                  each.counted.second);
  for (const Limit& each : limits) ++counts_[each.counted];
  return {};
}

void Resources::give_room(const Limits& limits) {
  for (const Limit& each : limits)
    if (const auto known = counts_.find(each.counted); --known->second == 0) counts_.erase(known);
}

// Its answer was sent, or is not wanted any more.
void Resources::drop(std::uint64_t number) {
  const auto node = waiting_.extract(number);
  const Question& question = node.mapped();
  ends_.erase(number);
  by_ticket_.erase({question.channel, question.ticket});
  if (question.of_member) by_number_.erase({question.channel, question.number});
  give_room(question.limits);
}

// It counts until the member has answered.
void Resources::stop_asking(std::uint64_t number, TimeNs now, service::Effects& effects) {
  Relayed& relayed = relayed_.at(number);
  relayed.is_wanted = false;
  by_ticket_.erase({relayed.channel, relayed.ticket});
  effects.push_back(service::AskEffect{service::token_of(service::ServiceId::resources, next_++), relayed.member,
                                       wire::EntryKind::peer_cancel, deadline_after(now, member_grace_ns), nullptr, 0,
                                       [number](const service::AskedMemory&, std::vector<std::byte>& payload) {
                                         wire::encode(wire::PeerCancel{wire::PeerCancel::What::resources, number},
                                                      payload);
                                       }});
}

void Resources::cancel(service::ChannelNumber channel, std::uint64_t ticket, TimeNs now, service::Effects& effects) {
  const auto found = by_ticket_.find({channel, ticket});
  if (found == by_ticket_.end()) return;
  const std::uint64_t number = found->second;
  if (waiting_.contains(number))
    drop(number);
  else
    stop_asking(number, now, effects);
  service::answer_outcome(effects, channel, ticket,
                          fail(Error::cancelled, "the question for the directory is no longer wanted"));
}

// A page of entries behind `after`. Only the version, if that was seen: the wait is over without a change.
Resources::Page Resources::page_of(const Question& question) const {
  const auto kept = std::make_shared<std::vector<Resource>>();
  wire::Listed listed{false, {}, version(question.of_member)};
  std::size_t bytes = 0, visited = 0;
  for (const ResourceSection& section : sections_) {
    if (listed.more || listed.view == question.seen) break;
    if (question.of_member && section.of_group) continue;
    if (!is_below(section.root, question.path) && !is_below(question.path, section.root)) continue;
    const std::string folder = section.root + "/";
    const bool is_within = question.after.starts_with(folder);
    if (!is_within && question.after > folder) continue;  // all of it came before
    section.visit(question.user, is_within ? std::string_view(question.after).substr(folder.size()) : "",
                  [&](std::string_view name, std::string about) {
                    ++visited;
                    std::string path = folder + std::string(name);
                    if (!is_below(path, question.path)) return true;
                    if (bytes >= page_bytes) {
                      listed.more = true;
                      return false;
                    }
                    bytes += path.size() + about.size() + self_.size() + 48;
                    kept->push_back({std::move(path), std::move(about)});
                    return true;
                  });
  }
  for (std::size_t i = 0; i < kept->size(); ++i)
    listed.entries.push_back({i + 1, 0, 0, false, (*kept)[i].path, (*kept)[i].about, self_});
  return {std::move(listed), kept, bytes + visited * visit_bytes};
}

// ---- answers of members

void Resources::on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs, service::Effects& effects) {
  const auto node = relayed_.extract(service::number_of(token));
  if (!node) return;  // of a cancellation
  const Relayed& to = node.mapped();
  give_room(to.limits);
  if (!to.is_wanted) return;
  by_ticket_.erase({to.channel, to.ticket});
  const auto pass = [&]() -> Status {
    OFP_TRY(answer);
    if (answer->kind != wire::ReplyKind::listed)
      return fail(Error::protocol, "a member answered with reply kind {}", static_cast<int>(answer->kind));
    const auto kept = std::make_shared<std::vector<std::byte>>(std::move(answer->payload));
    wire::Listed listed{};
    OFP_TRY(wire::decode(*kept, listed));
    effects.push_back(service::ListedEffect{to.channel, to.ticket, std::move(listed), kept});
    return {};
  };
  if (Status passed = pass(); !passed) service::answer_outcome(effects, to.channel, to.ticket, std::move(passed));
}

// ---- time, and ends

// While a question waits, each round compares a sum of a few counters.
bool Resources::on_round(TimeNs now, service::Effects&) {
  if (waiting_.empty()) return false;
  const std::uint64_t current = version(false);
  if (std::exchange(known_, current) != current && gathers_until_ == never)
    gathers_until_ = deadline_after(now, gather_ns);
  return false;  // further changes are not likely to follow at once
}

void Resources::on_time(TimeNs now, service::Effects& effects) {
  const auto is_due = [&](std::uint64_t number, Question& question) {
    if (!std::exchange(question.is_due, true)) due_.push_back(number);
  };
  for (const std::uint64_t number : ends_.take(now)) is_due(number, waiting_.at(number));
  if (gathers_until_ <= now) {
    gathers_until_ = never;
    const std::uint64_t own = version(false), for_members = version(true);
    for (auto& [number, question] : waiting_)
      if (question.seen != (question.of_member ? for_members : own)) is_due(number, question);
  }
  answer_due(effects);
  answers_at_ = due_.empty() ? never : now;
}

// As many as a round has room for. One page is for all that ask the same.
void Resources::answer_due(service::Effects& effects) {
  std::map<std::tuple<bool, uid_t, std::string, std::string, std::uint64_t>, Page> pages;
  for (std::size_t bytes = 0; !due_.empty() && bytes < round_bytes; due_.pop_front()) {
    const auto found = waiting_.find(due_.front());
    if (found == waiting_.end()) continue;  // it was cancelled
    const Question& question = found->second;
    const auto [at, is_new] =
        pages.try_emplace({question.of_member, question.user, question.path, question.after, question.seen});
    Page& page = at->second;
    if (is_new) page = page_of(question);
    bytes += is_new ? page.bytes + visit_bytes : page.listed.entries.size() * sizeof(wire::ListedEntry) + visit_bytes;
    effects.push_back(service::ListedEffect{question.channel, question.ticket, page.listed, page.texts});
    drop(found->first);
  }
}

TimeNs Resources::next_deadline() const { return std::min({gathers_until_, answers_at_, ends_.first()}); }

void Resources::on_closed(service::ChannelNumber channel, bool, TimeNs now, service::Effects& effects) {
  for (auto each = by_ticket_.lower_bound({channel, 0}); each != by_ticket_.end() && each->first.first == channel;) {
    const std::uint64_t number = each++->second;
    if (waiting_.contains(number))
      drop(number);
    else
      stop_asking(number, now, effects);
  }
}

}  // namespace offpath::group
