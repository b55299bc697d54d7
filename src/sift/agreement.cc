#include "sift/agreement.h"

#include <algorithm>
#include <utility>

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
        name_, text_, rival_);
  if (!agreed_ && refused_since_ != never && now >= refused_since_ + refused_wait_ns && !refused_.empty())
    return fail(Error::exists, "pool \"{}\" is different at member {}: {}", text_, refused_.begin()->first,
                refused_.begin()->second);
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
  if (refused_.empty()) refused_since_ = never;
  if (!agreed_ && refused_.empty() && missing(alive, now).empty()) return agree(now);
  if (now < ask_at_ && ask_at_ != never) return Outcome::none;
  if (agreed_) {
    ask_at_ = never;
    for (const std::string& member : alive) {  // each once, and again those that have another definition
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
  if (asking_.insert(member).second) asks.push_back({member, agreed_ && refused_.contains(member)});
}

Agreement::Outcome Agreement::on_answer(const std::string& member, const Result<std::uint64_t>& answer,
                                        std::span<const std::string> alive, TimeNs now, Asks& asks) {
  asking_.erase(member);
  if (answer) {
    if (*answer != unpromised) heard_[member] = now;
    refused_.erase(member);
    return *answer == agreed_on ? agree(now) : work(alive, now, asks);
  }
  const Failure& why = answer.error();
  switch (why.code) {
    case Error::exists:
    case Error::denied:
      heard_.erase(member);
      if (refused_.insert_or_assign(member, why.message).second)
        log(LogLevel::warning, "pool \"{}\": member {} has another definition: {}", name_, member, why.message);
      refused_since_ = std::min(refused_since_, now);
      ask_at_ = std::min(ask_at_, deadline_after(now, agreed_ ? tell_rivals_every_ns : ask_every_ns));
      return Outcome::none;
    case Error::too_large:
    case Error::invalid:
    case Error::no_memory:
    case Error::unsupported:
      if (!agreed_ && std::ranges::binary_search(members_, member))
        log(LogLevel::error, "pool \"{}\": member {} does not take part: {}", name_, member, why.message);
      heard_[member] = now;  // until it confirms, its pieces wait, and flushes of programs fail
      return work(alive, now, asks);
    default:
      return Outcome::none;  // asked again as long as it lives
  }
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
  if (agreed_) {  // the sender and the members that agree with it have to learn that it was
    heard_.clear();
    ask_at_ = std::min(ask_at_, deadline_after(now, ask_every_ns));
  }
  if (agreed_ || (!wins && refused_.empty()))
    return fail(Error::exists, "member {} has it as \"{}\"{}", self_, text_,
                agreed_ ? "" : ", on which its members do not agree yet");
  if (now < bound_until_) return fail(Error::would_block, "member {} has it as \"{}\" for the moment", self_, text_);
  return {};
}

Status Agreement::yield_to_agreed(std::string_view other, TimeNs now) {
  OFP_ASSIGN(const bool wins, comes_before(other, text_));
  if (agreed_ && wins) {
    if (now >= rival_until_)
      log(LogLevel::error, "pool \"{}\" is \"{}\" on other members, which wins: nothing more is accepted here", text_,
          other);
    rival_ = other;
    rival_until_ = deadline_after(now, rival_believed_ns);
  }
  if (agreed_) return fail(Error::exists, "member {} has it as \"{}\"", self_, text_);
  if (now < bound_until_) return fail(Error::would_block, "member {} has it as \"{}\" for the moment", self_, text_);
  return {};
}

void Agreement::take_as_proposed(TimeNs now) {
  told_at_ = now;
  bound_until_ = deadline_after(now, bound_for_ns);
}

}  // namespace offpath::sift
