// Grants of one exchange: shares of a total (tokens, watts, targets) that one member, the leader, gives to others for a
// while. Never are more than the total valid at any one moment, whoever is slow, cut off, stopped, dead or started
// anew, and whatever messages are lost, doubled or late. What it stands on, and it is all: clocks that run at nearly
// the same rate (not that they agree).
//
// The leader's lease. With each round the leader sends a beat. A member votes for one leader at a time: its ballot
// names the leader and the newest beat of it that arrived, and that is a promise not to vote for another one until
// `lease` after that arrival. The leader counts the lease of that vote from when it sent the beat, which is earlier. It
// may grant while a majority of all members stands behind it, and no grant lasts longer than that. So a second leader,
// who needs a majority as well, has it only when every grant of the first one is over. Who starts anew forgets its
// promise; so it votes for nobody until `lease` has passed.
//
// A grant's end. A grant says: so long after you sent your ballot number `stamp`. The leader counts from the ballot's
// arrival, which is later. So however long a grant is on its way, it ends for its holder before it ends for the leader.
//
// What the leader has given out to a member is the largest of its grants that are not over and that it has not
// replaced: a ballot says which grant its member goes by, and no member goes back to an earlier one. The sum of these
// is at most the total.
//
//   up: ballots, each member's own, by the tree       down: the leader's beat and the grants, with the views
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
  std::uint64_t total = 0;  // unlimited: what is granted is no share of anything (targets)
  static constexpr std::uint64_t unlimited = UINT64_MAX;
  TimeNs lease_ns = second_ns;
  TimeNs ttl_ns = second_ns / 2;  // of a grant, counted from the holder's ballot; never beyond the lease
};

class Grants {
 public:
  // `nonce` tells this process from another one that was or will be the same member: random. `ranks`: of two who would
  // lead, the one with the lower rank is to.
  Grants(const GrantOptions& options, MemberIndex self, std::vector<std::uint32_t> ranks, std::uint64_t nonce,
         TimeNs now);

  // ---- with each round
  // `would_lead`: this member takes itself for the leader.
  void on_round(bool would_lead, TimeNs now);
  [[nodiscard]] Ballot ballot() const noexcept;

  // The machine was suspended for so long, in which its clock (`now`) stood still and the others' went on. What this
  // member holds, and what stands behind it, is over as much earlier; what it has promised and given out itself is
  // counted as before, which is longer.
  void on_suspended(TimeNs slept) noexcept;

  // ---- what arrives
  void on_ballot(const Ballot& ballot, TimeNs now);
  void on_beat(MemberIndex leader, std::uint64_t nonce, std::uint64_t beat, TimeNs now);
  void on_grant(MemberIndex leader, std::uint64_t leader_nonce, const Grant& grant, TimeNs now);

  // ---- what is sent on: what this member knows best, of the leader it votes for
  struct Beat {
    MemberIndex leader = nobody;
    std::uint64_t nonce = 0, beat = 0;
  };
  [[nodiscard]] Beat beat() const noexcept;
  [[nodiscard]] const Ballot* ballot_of(MemberIndex member) const noexcept;  // null: none came
  [[nodiscard]] const Grant* grant_of(MemberIndex member) const noexcept;    // the newest one of that leader

  // ---- deciding
  // What this member would grant whenever it leads: the amounts stay wished until changed. 0: nothing.
  void wish(MemberIndex member, std::uint64_t amount) { wishes_[member] = amount; }
  [[nodiscard]] bool may_grant(TimeNs now) const noexcept { return lease_until(now) > now; }
  // Until when a majority stands behind this member.
  [[nodiscard]] TimeNs lease_until(TimeNs now) const noexcept;
  // Makes the grants of this round, if it may.
  void issue(TimeNs now);
  // Of the total, what is given out as far as this member knows.
  [[nodiscard]] std::uint64_t given_out(TimeNs now) const noexcept;

  // ---- holding
  struct Held {
    std::uint64_t amount = 0;
    std::uint64_t number = 0;
    MemberIndex leader = nobody;
    TimeNs until = 0;
  };
  // What this member may use now; amount 0 when there is nothing, or it is over.
  [[nodiscard]] Held held(TimeNs now) const noexcept;
  [[nodiscard]] MemberIndex leader() const noexcept { return vote_.leader; }
  // Of which leader's process that is.
  [[nodiscard]] std::uint64_t held_nonce() const noexcept { return held_nonce_; }
  // Whoever uses what is held, a program, may go by an earlier grant until it has looked: what it gives up is given up
  // only then. Without one, this member gives up at once.
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
    std::vector<Given> given{};  // of this process's own granting
    Grant grant{};               // the newest, made here or to be sent on
    bool has_grant = false;
  };
  struct Vote {
    MemberIndex leader = nobody;
    std::uint64_t nonce = 0, beat = 0;
    TimeNs promised_until = 0;
    TimeNs better_until = 0;  // one of a lower rank was heard: the promise is not renewed
  };
  static constexpr std::size_t remembered = 256;  // times of own ballots and beats

  [[nodiscard]] bool is_leading() const noexcept { return vote_.leader == self_ && vote_.nonce == nonce_; }
  [[nodiscard]] static TimeNs slower(TimeNs wait) noexcept { return wait - wait / 64; }  // for clocks' rates
  [[nodiscard]] std::uint64_t adopted() const noexcept;
  void forget_over(Member& member, TimeNs now);
  [[nodiscard]] static std::uint64_t exposure(const Member& member, TimeNs now) noexcept;

  GrantOptions options_;
  MemberIndex self_;
  std::uint64_t nonce_;
  TimeNs votes_from_;  // fresh processes vote for nobody
  Vote vote_;
  std::uint64_t stamp_ = 0, beat_ = 0, numbers_ = 0;
  std::array<TimeNs, remembered> stamp_at_{}, beat_at_{};  // by number modulo
  std::vector<Member> members_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint64_t> wishes_;
  Held held_;
  std::uint64_t held_nonce_ = 0;  // of its leader
  bool has_user_ = false;
  std::uint64_t user_nonce_ = 0, user_number_ = 0;
};

}  // namespace offpath::exchange
