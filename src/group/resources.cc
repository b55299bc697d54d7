#include "group/resources.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::group {

namespace {

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

// Not 0, which stands for nothing seen. It begins anew with each process: a version of an earlier one is seldom equal.
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
  if (static_cast<wire::EntryKind>(asked.entry.kind) == wire::EntryKind::peer_resources) {
    wire::PeerResources peer{};
    OFP_TRY(wire::decode(asked.entry.payload, peer));
    return take({asked.channel, asked.entry.ticket, static_cast<uid_t>(peer.user), true, without_slash(peer.path),
                 std::string(peer.after), peer.seen},
                peer.wait_ns, now, effects);
  }
  wire::ListResources list{};
  OFP_TRY(wire::decode(asked.entry.payload, list));
  if (list.member.empty() || list.member == self_)
    return take({asked.channel, asked.entry.ticket, asked.user, false, without_slash(list.path),
                 std::string(list.after), list.seen},
                list.wait_ns, now, effects);
  OFP_TRY(check_room(asked.channel));
  const std::uint64_t number = next_++;
  const std::int64_t wait_ns = std::clamp<std::int64_t>(list.wait_ns, 0, wait_max_ns);
  relayed_.emplace(number, Relayed{asked.channel, asked.entry.ticket});
  count(asked.channel, 1);
  effects.push_back(service::AskEffect{
      service::token_of(service::ServiceId::resources, number), std::string(list.member),
      wire::EntryKind::peer_resources, deadline_after(now, wait_ns + member_grace_ns), nullptr, 0,
      [user = std::uint64_t{asked.user}, path = std::string(list.path), after = std::string(list.after),
       seen = list.seen, wait_ns](const service::AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerResources{user, path, after, seen, wait_ns}, payload);
      }});
  return {};
}

Status Resources::take(Question question, std::int64_t wait_ns, TimeNs now, service::Effects& effects) {
  if (question.seen != version(question.of_member) || wait_ns <= 0) {
    answer(question, effects);
    return {};
  }
  OFP_TRY(check_room(question.channel));
  question.until = deadline_after(now, std::min<std::int64_t>(wait_ns, wait_max_ns));
  count(question.channel, 1);
  ends_.set(next_, question.until);
  waiting_.emplace(next_++, std::move(question));
  return {};
}

Status Resources::check_room(service::ChannelNumber channel) const {
  const auto own = of_channel_.find(channel);
  if (own != of_channel_.end() && own->second >= channel_waiting_max)
    return fail(Error::would_block, "{} questions of this program for the directory wait, which is the limit",
                own->second);
  if (waiting() >= waiting_max)
    return fail(Error::would_block, "{} questions for the directory wait, which is the limit", waiting());
  return {};
}

void Resources::count(service::ChannelNumber channel, int by) {
  std::size_t& own = of_channel_[channel];
  own += static_cast<std::size_t>(by);
  if (own == 0) of_channel_.erase(channel);
}

// A page of what comes behind `after`. Nothing but the version, if that was seen: the wait is over without a change.
void Resources::answer(const Question& question, service::Effects& effects) const {
  const auto kept = std::make_shared<std::vector<Resource>>();
  wire::Listed listed{false, {}, version(question.of_member)};
  std::size_t bytes = 0;
  for (const ResourceSection& section : sections_) {
    if (listed.more || listed.view == question.seen) break;
    if (question.of_member && section.of_group) continue;
    if (!is_below(section.root, question.path) && !is_below(question.path, section.root)) continue;
    const std::string folder = section.root + "/";
    const bool is_within = question.after.starts_with(folder);
    if (!is_within && question.after > folder) continue;  // all of it came before
    section.visit(question.user, is_within ? std::string_view(question.after).substr(folder.size()) : "",
                  [&](std::string_view name, std::string about) {
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
  effects.push_back(service::ListedEffect{question.channel, question.ticket, std::move(listed), kept});
}

// ---- answers of members

void Resources::on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs, service::Effects& effects) {
  const auto node = relayed_.extract(service::number_of(token));
  if (!node) return;  // its program is gone
  const Relayed& to = node.mapped();
  count(to.channel, -1);
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

// While somebody waits, each round compares a sum of a few counters.
bool Resources::on_round(TimeNs now, service::Effects&) {
  if (waiting_.empty()) return false;
  const std::uint64_t current = version(false);
  if (std::exchange(known_, current) != current && gathers_until_ == never)
    gathers_until_ = deadline_after(now, gather_ns);
  return false;  // nothing more is likely to follow at once
}

void Resources::on_time(TimeNs now, service::Effects& effects) {
  std::vector<std::uint64_t> due = ends_.take(now);
  if (gathers_until_ <= now) {
    gathers_until_ = never;
    const std::uint64_t own = version(false), for_members = version(true);
    for (const auto& [number, question] : waiting_)
      if (question.seen != (question.of_member ? for_members : own)) due.push_back(number);
  }
  for (const std::uint64_t number : due) {
    const auto node = waiting_.extract(number);
    if (!node) continue;
    ends_.erase(number);
    answer(node.mapped(), effects);
    count(node.mapped().channel, -1);
  }
}

TimeNs Resources::next_deadline() const { return std::min(gathers_until_, ends_.first()); }

void Resources::on_closed(service::ChannelNumber channel, bool, TimeNs, service::Effects&) {
  std::erase_if(waiting_, [&](const auto& each) {
    if (each.second.channel != channel) return false;
    ends_.erase(each.first);
    return true;
  });
  std::erase_if(relayed_, [&](const auto& each) { return each.second.channel == channel; });
  of_channel_.erase(channel);
}

}  // namespace offpath::group
