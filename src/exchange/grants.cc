#include "exchange/grants.h"

#include <algorithm>

namespace offpath::exchange {

Grants::Grants(const GrantOptions& options, MemberIndex self, std::vector<std::uint32_t> ranks, std::uint64_t nonce,
               TimeNs now)
    : options_(options),
      self_(self),
      nonce_(nonce),
      votes_from_(now + options.lease_ns),
      members_(ranks.size()),
      ranks_(std::move(ranks)),
      targets_(ranks_.size(), 0) {}

void Grants::on_round(bool would_lead, TimeNs now) {
  ++stamp_;
  stamp_at_[stamp_ % remembered] = now;
  if (!would_lead) return;
  ++beat_;
  beat_at_[beat_ % remembered] = now;
  on_beat(self_, nonce_, beat_, now);
}

// A vote stays with its leader for the promised time. While a leader of lower rank is heard, the promise is not
// renewed. A beat counts once: members that vote otherwise repeat the last beats of leaders that are long gone.
void Grants::on_beat(MemberIndex leader, std::uint64_t nonce, std::uint64_t beat, TimeNs now) {
  if (leader == nobody || leader >= members_.size() || now < votes_from_) return;
  Beat& newest = members_[leader].newest;
  if (newest.nonce == nonce && beat <= newest.beat) return;
  newest = {leader, nonce, beat};
  const bool same = vote_.leader == leader && vote_.nonce == nonce;
  if (same ? beat <= vote_.beat || now < vote_.better_until : now < vote_.promised_until) {
    if (!same && ranks_[leader] < ranks_[vote_.leader]) vote_.better_until = now + options_.lease_ns;
    return;
  }
  if (!same)
    for (Member& member : members_) member.has_grant = false;  // from another leader
  vote_ = {leader, nonce, beat, now + options_.lease_ns, 0};
}

Ballot Grants::ballot() const noexcept {
  Ballot ballot{};
  ballot.member = self_;
  ballot.leader = vote_.leader;
  ballot.leader_nonce = vote_.nonce;
  ballot.beat = vote_.beat;
  ballot.nonce = nonce_;
  ballot.stamp = stamp_;
  ballot.adopted = held_.leader == vote_.leader && held_nonce_ == vote_.nonce ? adopted() : 0;
  ballot.deciding = deciding(self_, stamp_at_[stamp_ % remembered]);
  return ballot;
}

Deciding Grants::deciding(MemberIndex member, TimeNs now) const noexcept {
  if (member == self_) return now < decides_from_ ? Deciding::no : deciding_;
  const Member& other = members_[member];
  return other.has_ballot && now < other.ballot_at + options_.lease_ns ? other.ballot.deciding : Deciding::no;
}

std::uint64_t Grants::adopted() const noexcept {
  if (!has_user_) return held_.number;
  return user_nonce_ == held_nonce_ ? std::min(user_number_, held_.number) : 0;
}

const Ballot* Grants::ballot_of(MemberIndex member) const noexcept {
  return members_[member].has_ballot ? &members_[member].ballot : nullptr;
}

const Grant* Grants::grant_of(MemberIndex member) const noexcept {
  return members_[member].has_grant ? &members_[member].grant : nullptr;
}

Grants::Beat Grants::beat() const noexcept { return {vote_.leader, vote_.nonce, vote_.beat}; }

void Grants::on_ballot(const Ballot& ballot, TimeNs now) {
  if (ballot.member >= members_.size() || ballot.member == self_) return;
  Member& member = members_[ballot.member];
  // Ballots may take several paths: older ones of the same process are dropped. Of two processes the one that arrives
  // later counts, because their order is unknown; the other's ballots only make grants that fit no stamp of it.
  if (member.has_ballot && member.ballot.nonce == ballot.nonce && ballot.stamp <= member.ballot.stamp) return;
  const bool anew = member.has_ballot && member.ballot.nonce != ballot.nonce;
  member.ballot = ballot;
  member.ballot_at = now;
  member.has_ballot = true;
  if (anew || !is_leading() || ballot.leader != self_ || ballot.leader_nonce != nonce_) return;
  // Releases the grants that it followed before.
  std::erase_if(member.given, [&](const Given& each) { return each.number < ballot.adopted; });
}

TimeNs Grants::lease_until(TimeNs now) const noexcept {
  if (!is_leading() || now < votes_from_) return 0;
  std::vector<TimeNs> until;
  const auto count = [&](std::uint64_t beat) {
    if (beat > beat_ || beat + remembered <= beat_ || beat == 0) return;
    until.push_back(beat_at_[beat % remembered] + slower(options_.lease_ns));
  };
  count(vote_.beat);
  for (MemberIndex i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (i != self_ && member.has_ballot && member.ballot.leader == self_ && member.ballot.leader_nonce == nonce_)
      count(member.ballot.beat);
  }
  const std::size_t majority = members_.size() / 2 + 1;
  if (until.size() < majority) return 0;
  std::ranges::nth_element(until, until.begin() + static_cast<std::ptrdiff_t>(majority - 1), std::greater<>());
  return until[majority - 1];
}

void Grants::forget_over(Member& member, TimeNs now) {
  std::erase_if(member.given, [&](const Given& each) { return each.until <= now; });
}

std::uint64_t Grants::exposure(const Member& member, TimeNs now) noexcept {
  std::uint64_t most = 0;
  for (const Given& each : member.given)
    if (each.until > now) most = std::max(most, each.amount);
  return most;
}

std::uint64_t Grants::given_out(TimeNs now) const noexcept {
  std::uint64_t sum = 0;
  for (const Member& member : members_) sum += exposure(member, now);
  return sum;
}

void Grants::issue(TimeNs now) {
  const TimeNs lease = lease_until(now);
  if (lease <= now) return;
  std::uint64_t given = 0;
  for (Member& member : members_) {
    forget_over(member, now);
    given += exposure(member, now);
  }
  // This member's own ballot takes no path.
  Member& own = members_[self_];
  own.ballot = ballot();
  own.ballot_at = now;
  own.has_ballot = true;
  for (MemberIndex i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (!member.has_ballot) continue;
    const std::uint64_t had = exposure(member, now);
    const bool limited = options_.total != GrantOptions::unlimited;
    const std::uint64_t room = limited ? options_.total - (given - had) : GrantOptions::unlimited;
    const std::uint64_t amount = std::min(targets_[i], room);
    if (amount == 0 && !member.has_grant) continue;
    Grant grant{};
    grant.member = i;
    grant.nonce = member.ballot.nonce;
    grant.stamp = member.ballot.stamp;
    grant.number = ++numbers_;
    grant.amount = amount;
    const TimeNs until = std::min(lease, member.ballot_at + options_.ttl_ns);
    if (until <= now) continue;  // it has not been heard of for too long
    grant.valid_ns = slower(until - member.ballot_at);
    if (limited) member.given.push_back({grant.number, amount, until});
    given = given - had + std::max(had, limited ? amount : 0);
    member.grant = grant;
    member.has_grant = true;
    if (i == self_) on_grant(self_, nonce_, grant, now);
  }
  // Its own adoption is known at once.
  own.ballot = ballot();
  std::erase_if(own.given, [&](const Given& each) { return each.number < own.ballot.adopted; });
}

void Grants::on_grant(MemberIndex leader, std::uint64_t leader_nonce, const Grant& grant, TimeNs now) {
  if (grant.member >= members_.size()) return;
  Member& member = members_[grant.member];
  if (leader == vote_.leader && leader_nonce == vote_.nonce && !is_leading() &&
      (!member.has_grant || grant.number > member.grant.number)) {
    member.grant = grant;  // to be passed on
    member.has_grant = true;
  }
  if (grant.member != self_ || grant.nonce != nonce_ || grant.stamp > stamp_ || grant.stamp + remembered <= stamp_ ||
      grant.stamp == 0)
    return;
  if (grant.valid_ns <= 0 || grant.valid_ns > options_.lease_ns + options_.ttl_ns) return;
  const TimeNs until = stamp_at_[grant.stamp % remembered] + grant.valid_ns;
  if (until <= now) return;
  const bool same = held_.leader == leader && held_nonce_ == leader_nonce;
  if (same && grant.number <= held_.number) return;
  // Two leaders' grants are never valid together: those of the other leader have ended or are about to.
  if (!same && now < held_.until) return;
  held_ = {grant.amount, grant.number, leader, until};
  held_nonce_ = leader_nonce;
}

void Grants::on_suspended(TimeNs slept) noexcept {
  held_.until -= slept;
  for (TimeNs& at : stamp_at_) at -= slept;
  for (TimeNs& at : beat_at_) at -= slept;
}

Grants::Held Grants::held(TimeNs now) const noexcept {
  Held held = held_;
  if (now >= held.until) held.amount = 0;
  return held;
}

}  // namespace offpath::exchange
