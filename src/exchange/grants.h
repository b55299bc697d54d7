// Grants of one exchange: shares of a total (tokens, watts, targets) that one member, the leader, gives to others for a
// limited time. At no moment are more than the total valid, even if members are slow, cut off, stopped, dead or
// restarted, and messages are lost, repeated or late. The only assumption is that clocks run at nearly the same rate;
// they need not agree.
//
// The leader's lease. With each round the leader sends a beat. A member votes for one leader at a time: its ballot
// names the leader and the newest beat of it that arrived, and is a promise not to vote for another one until
// `lease` after that arrival. The leader counts the lease of that vote from when it sent the beat, which is earlier. It
// may grant while it has a majority of all members, and no grant lasts longer than that. A second leader also needs a
// majority, which it has only after every grant of the first one has ended. A restarted member has forgotten its
// promise, so it does not vote until `lease` has passed.
//
// A grant's end. A grant is valid for a time after the holder sent its ballot number `stamp`. The leader counts from
// the ballot's arrival, which is later. So a grant ends for its holder before it ends for the leader, whatever its
// delay.
//
// The amount that a member may hold is the largest of its grants that have not ended and that it has not replaced: a
// ballot names the grant that its member follows, and no member returns to an earlier one. The sum of these amounts is
// at most the total.
//
// The leader: ballots also say whether anything decides at their member (Deciding). The first member in the tree's
// order that is up and has granted leads; if none has, the first that is able to; if none is, the first that is up
// (Exchange::choose_leader). So a leader whose program ends steps back although its agent lives. A program or function
// counts a lease after it came: those that come and go faster take no votes from the leader.
//
//   towards the leader, by the tree: ballots, each member's own        from it: its beat and the grants
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "exchange/parcel.h"
#include "exchange/topology.h"

namespace offpath::exchange {

struct GrantOptions {
  std::uint64_t total = 0;  // unlimited: grants are not shares of a total (targets)
  static constexpr std::uint64_t unlimited = UINT64_MAX;
  TimeNs lease_ns = second_ns;
  TimeNs ttl_ns = second_ns / 2;  // of a grant, counted from the holder's ballot; never beyond the lease
};

class Grants {
 public:
  // `nonce` distinguishes this process from earlier and later ones of the same member: random. `ranks`: of two
  // candidates the one with the lower rank leads.
  Grants(const GrantOptions& options, MemberIndex self, std::vector<std::uint32_t> ranks, std::uint64_t nonce,
         TimeNs now);

  // ---- with each round
  // `would_lead`: this member considers itself the leader.
  void on_round(bool would_lead, TimeNs now);
  [[nodiscard]] Ballot ballot() const noexcept;

  // The machine was suspended for this long, while its clock (`now`) stopped and others' continued. This member's
  // holdings, and the majority behind it, end that much earlier. Its own promises and grants are counted as before,
  // which is longer.
  void on_suspended(TimeNs slept) noexcept;

  // ---- arriving messages
  void on_ballot(const Ballot& ballot, TimeNs now);
  void on_beat(MemberIndex leader, std::uint64_t nonce, std::uint64_t beat, TimeNs now);
  void on_grant(MemberIndex leader, std::uint64_t leader_nonce, const Grant& grant, TimeNs now);

  // ---- messages to pass on: the newest known ones of the leader that this member votes for
  struct Beat {
    MemberIndex leader = nobody;
    std::uint64_t nonce = 0, beat = 0;
  };
  [[nodiscard]] Beat beat() const noexcept;
  [[nodiscard]] const Ballot* ballot_of(MemberIndex member) const noexcept;  // null: none arrived
  [[nodiscard]] const Grant* grant_of(MemberIndex member) const noexcept;    // the newest one of that leader

  // ---- deciding
  // Whether anything at this member makes grants. While the others still vote for it, it need not wait.
  void set_deciding(Deciding deciding, TimeNs now) noexcept {
    if (deciding_ == Deciding::no && !is_leading()) decides_from_ = now + options_.lease_ns;
    deciding_ = deciding;
  }
  // As far as this member knows. The word of a member that is not heard counts for a lease.
  [[nodiscard]] Deciding deciding(MemberIndex member, TimeNs now) const noexcept;
  // The amount that this member grants whenever it leads, until changed. 0: nothing.
  void set_target(MemberIndex member, std::uint64_t amount) { targets_[member] = amount; }
  [[nodiscard]] bool may_grant(TimeNs now) const noexcept { return lease_until(now) > now; }
  // The time until which a majority supports this member.
  [[nodiscard]] TimeNs lease_until(TimeNs now) const noexcept;
  // Makes the grants of this round, if it may.
  void issue(TimeNs now);
  // The part of the total that is granted, as far as this member knows.
  [[nodiscard]] std::uint64_t given_out(TimeNs now) const noexcept;

  // ---- holding
  struct Held {
    std::uint64_t amount = 0;
    std::uint64_t number = 0;
    MemberIndex leader = nobody;
    TimeNs until = 0;
  };
  // The amount that this member may use now; 0 if there is none, or it has ended.
  [[nodiscard]] Held held(TimeNs now) const noexcept;
  [[nodiscard]] MemberIndex leader() const noexcept { return vote_.leader; }
  // The leader's process that made the grant.
  [[nodiscard]] std::uint64_t held_nonce() const noexcept { return held_nonce_; }
  // A program that uses the amount may follow an earlier grant until its next look, and gives up the difference only
  // then. Without a program, this member gives it up at once.
  void set_user(bool is_there) noexcept { has_user_ = is_there; }
  void on_user_goes_by(std::uint64_t leader_nonce, std::uint64_t number) noexcept {
    user_nonce_ = leader_nonce;
    user_number_ = number;
  }

 private:
  struct Given {
    std::uint64_t number, amount;
    TimeNs until;
  };
  struct Member {
    Ballot ballot{};
    TimeNs ballot_at = 0;
    bool has_ballot = false;
    std::vector<Given> given{};  // granted by this process
    Grant grant{};               // the newest, made here or to be passed on
    bool has_grant = false;
    Beat newest{};  // of this member that arrived
  };
  struct Vote {
    MemberIndex leader = nobody;
    std::uint64_t nonce = 0, beat = 0;
    TimeNs promised_until = 0;
    TimeNs better_until = 0;  // a leader of lower rank was heard: the promise is not renewed
  };
  static constexpr std::size_t remembered = 256;  // times of own ballots and beats

  [[nodiscard]] bool is_leading() const noexcept { return vote_.leader == self_ && vote_.nonce == nonce_; }
  [[nodiscard]] static TimeNs slower(TimeNs wait) noexcept { return wait - wait / 64; }  // allows for the clocks' rates
  [[nodiscard]] std::uint64_t adopted() const noexcept;
  void forget_over(Member& member, TimeNs now);
  [[nodiscard]] static std::uint64_t exposure(const Member& member, TimeNs now) noexcept;

  GrantOptions options_;
  MemberIndex self_;
  std::uint64_t nonce_;
  TimeNs votes_from_;  // fresh processes do not vote before
  Vote vote_;
  std::uint64_t stamp_ = 0, beat_ = 0, numbers_ = 0;
  std::array<TimeNs, remembered> stamp_at_{}, beat_at_{};  // by number modulo
  std::vector<Member> members_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint64_t> targets_;
  Deciding deciding_ = Deciding::no;
  TimeNs decides_from_ = 0;
  Held held_;
  std::uint64_t held_nonce_ = 0;  // of its leader
  bool has_user_ = false;
  std::uint64_t user_nonce_ = 0, user_number_ = 0;
};

}  // namespace offpath::exchange
