#include "sift/agreement.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "sift/definition.h"

namespace offpath::sift {

Agreement::Agreement(std::string self, std::string text, std::vector<std::string> members)
    : self_(std::move(self)), name_(name_in(text)), text_(std::move(text)), members_(std::move(members)) {}

Status Agreement::may_put(TimeNs now) const {
  if (agreed_ && now < rival_until_)
    return fail(
        Error::exists,
        "pool \"{}\" is \"{}\" here, and \"{}\" on other members, which wins: nothing more is accepted here. Read "
        "its tracks, "
        "and drop it here to use the other one",
        name_, shown(text_), shown(rival_));
  if (!agreed_ && refused_since_ != never && now >= refused_since_ + refused_wait_ns && !refused_.empty())
    return fail(Error::exists, "pool \"{}\" is {}", shown(text_), refused_.begin()->second);
  return {};
}

std::vector<std::string> Agreement::missing(std::span<const std::string> alive, TimeNs now) const {
  std::vector<std::string> all;
  const auto look = [&](const std::string& member) {
    const auto heard = heard_.find(member);
    if (member != self_ && (heard == heard_.end() || heard->second + heard_for_ns < now)) all.push_back(member);
  };
  std::ranges::for_each(alive, look);
  if (told_at_ == never || now >= told_at_ + meet_ns) return all;
  for (const std::string& member : members_)
    if (!std::ranges::binary_search(alive, member)) look(member);
  return all;
}

Agreement::Outcome Agreement::work(std::span<const std::string> alive, TimeNs now, Asks& asks) {
  std::erase_if(refused_, [&](const auto& each) { return !std::ranges::binary_search(alive, each.first); });
  std::erase_if(asking_, [&](const auto& each) { return !std::ranges::binary_search(alive, each); });
  std::erase_if(sent_, [&](const auto& each) { return !std::ranges::binary_search(alive, each); });
  std::erase_if(forgetful_, [&](const auto& each) { return !refused_.contains(each); });
  if (refused_.empty()) refused_since_ = never;
  if (!agreed_ && refused_.empty() && missing(alive, now).empty()) return agree(now);
  if (now < ask_at_ && ask_at_ != never) return Outcome::none;
  if (agreed_) {
    ask_at_ = never;
    for (const std::string& member : alive) {  // each once; those with another definition again
      if (member == self_ || heard_.contains(member)) continue;
      ask(member, asks);
      ask_at_ = deadline_after(now, tell_rivals_every_ns);
    }
    return Outcome::none;
  }
  for (const std::string& member : alive)
    if (member != self_) ask(member, asks);
  ask_at_ = deadline_after(now, ask_every_ns);
  return may_put(now) ? Outcome::none : Outcome::hopeless;
}

void Agreement::ask(const std::string& member, Asks& asks) {
  if (asking_.insert(member).second)
    asks.push_back({.member = member,
                    .tells = agreed_ && refused_.contains(member) && !forgetful_.contains(member),
                    .sends = false});
}

Agreement::Outcome Agreement::on_answer(const std::string& member, const Result<std::uint64_t>& answer,
                                        std::span<const std::string> alive, TimeNs now, Asks& asks) {
  asking_.erase(member);
  const bool was_sent = sent_.erase(member) > 0;
  const bool was_forgetful = forgetful_.erase(member) > 0;
  if (answer && *answer == wants_definition) {
    if (was_sent) return Outcome::none;  // asked again at the usual time, so that it is not sent endlessly
    asking_.insert(member);
    sent_.insert(member);
    asks.push_back({.member = member, .tells = false, .sends = true});
    return Outcome::none;
  }
  if (answer) {
    if (*answer != unpromised) heard_[member] = now;
    refused_.erase(member);
    return *answer == agreed_on ? agree(now) : work(alive, now, asks);
  }
  const Failure& why = answer.error();
  switch (why.code) {
    case Error::exists:
    case Error::denied:
      refuse(member, fmt::format("different at member {}: {}", member, why.message), now);
      return Outcome::none;
    case Error::protocol:
    case Error::version:
      refuse(member, fmt::format("refused by member {}: {}", member, why.message), now);
      return Outcome::none;
    case Error::too_large:
    case Error::invalid:
    case Error::no_memory:
    case Error::unsupported:
      if (!agreed_ && std::ranges::binary_search(members_, member))
        log(LogLevel::error, "pool \"{}\": member {} does not take part: {}", name_, member, why.message);
      heard_[member] = now;  // until it confirms, its pieces wait, and flushes of programs fail
      return work(alive, now, asks);
    case Error::would_block:  // to a telling: it may have forgotten this definition, which only a question brings back
      if (agreed_ && refused_.contains(member) && !was_forgetful) {
        forgetful_.insert(member);
        ask(member, asks);
      }
      return Outcome::none;
    default:
      return Outcome::none;  // asked again as long as it lives
  }
}

// Each refusal is logged once.
void Agreement::refuse(const std::string& member, std::string why, TimeNs now) {
  heard_.erase(member);
  const auto [refused, is_new] = refused_.insert_or_assign(member, std::move(why));
  if (is_new) log(LogLevel::warning, "pool \"{}\" is {}", name_, refused->second);
  refused_since_ = std::min(refused_since_, now);
  ask_at_ = std::min(ask_at_, deadline_after(now, agreed_ ? tell_rivals_every_ns : ask_every_ns));
}

Agreement::Outcome Agreement::agree(TimeNs now) {
  if (std::exchange(agreed_, true)) return Outcome::none;
  ask_at_ = deadline_after(now, tell_rivals_every_ns);
  return Outcome::agreed;
}

// ---- messages of other members

Agreement::Answer Agreement::confirm(bool told, TimeNs now) {
  if (told) told_at_ = now;
  if (agreed_) return agreed_on;
  if (!refused_.empty()) return unpromised;
  bound_until_ = deadline_after(now, bound_for_ns);
  return promised;
}

Status Agreement::yield_to_proposed(std::string_view other, TimeNs now) {
  OFP_ASSIGN(const bool wins, comes_before(other, text_));
  if (agreed_) {  // the sender and the members that agree with it have to learn that it was replaced
    heard_.clear();
    ask_at_ = std::min(ask_at_, deadline_after(now, ask_every_ns));
  }
  if (agreed_ || (!wins && refused_.empty()))
    return fail(Error::exists, "member {} has it as \"{}\"{}", self_, shown(text_),
                agreed_ ? "" : ", on which its members do not agree yet");
  if (now < bound_until_)
    return fail(Error::would_block, "member {} has it as \"{}\" for the moment", self_, shown(text_));
  return {};
}

Status Agreement::yield_to_agreed(std::string_view other, TimeNs now) {
  OFP_ASSIGN(const bool wins, comes_before(other, text_));
  if (agreed_ && wins) {
    if (now >= rival_until_)
      log(LogLevel::error, "pool \"{}\" is \"{}\" on other members, which wins: nothing more is accepted here",
          shown(text_), shown(other));
    rival_ = other;
    rival_until_ = deadline_after(now, rival_believed_ns);
  }
  if (agreed_) return fail(Error::exists, "member {} has it as \"{}\"", self_, shown(text_));
  if (now < bound_until_)
    return fail(Error::would_block, "member {} has it as \"{}\" for the moment", self_, shown(text_));
  return {};
}

void Agreement::take_as_proposed(TimeNs now) {
  told_at_ = now;
  bound_until_ = deadline_after(now, bound_for_ns);
}

}  // namespace offpath::sift
