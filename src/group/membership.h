// Membership of the group: a state machine without socket, thread or clock. Read this first, then reach.h, then
// group.h; resources.h is the directory.
//
// Every member keeps a table of all members it ever heard of. An entry is (name, incarnation, process, state, refuted),
// and two entries of one name are ordered: the larger incarnation wins (then the larger process number). Within one
// incarnation alive and suspect lose to left, and that to dead; of two live entries the one with more refuted
// suspicions wins, and of equal ones the suspect. Merging tables takes the larger entry of each name. So members that
// exchange tables converge, whatever the order and number of messages. A dead entry stays dead: a member that reads of
// its own death continues under the next incarnation. A member that reads of its own suspicion refutes it.
//
// Time is counted in beats, of which `dead_after` has 10. Posts:
//
//   with each beat      to the members 1, 2 and 4 places after this one: its own entry, recent changes, and a
//                       digest of the whole table
//   after a change      the same, at once, to the members 1, 2, 4, 8, … places after it: so a change reaches n members
//                       in log2 n steps even if any single connection is cut
//   the whole table     to a member whose digest still differs without new entries, or that has fewer
//                       members
//
// So an idle member sends as much in a group of a thousand as in one of ten. A post that only shows that its sender
// lives may wait until the receiver's own next beat: where the link allows it, idle members wake only for their own
// beats. Places follow hashes of the names, so members of one rack, which may fail together, are rarely neighbours.
//
// Neighbours (1, 2 and 4 places before and after) judge each other. A post, and the answer to one, is a sign of life.
//
//    2 beats   of silence: the next member in the order becomes a neighbour too, and the silent one is asked. 3 beats
//              of one that only answers: its answer to a post that may wait takes up to 2
//    4 beats   suspect, which is sent to all
//    7 beats   dead: no refutation within 3 beats after a member learnt of the suspicion
//
// The other 3 beats are for these events to arrive, and for a sign of life that waited for its reader. A lost channel
// makes a member suspect at once. Suspects and unanswered addresses from the start get posts in turn, one of each kind
// with every beat, and dead members with every fourth. So the halves of a partitioned network find each other again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "wire/messages/peer_messages.h"

namespace offpath::group {

enum class MemberState : std::uint8_t { alive, suspect, left, dead };
[[nodiscard]] std::string_view state_name(MemberState state) noexcept;
using Role = wire::MemberEntry::Role;  // whether an agent runs on a host or on a DPU
[[nodiscard]] std::string_view role_name(Role role) noexcept;

struct Identity {
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint64_t process = 0;  // a random number of each start, also in channels' welcomes (wire::Welcome::incarnation)
  std::string address;        // for channels
  std::string http;           // empty: none
  std::string flight;         // likewise
  std::string host;           // the machine's name
  std::string rack{};         // the machine's rack; empty: unknown
  Role role = Role::host;
};

struct Member {
  Identity id;
  MemberState state = MemberState::alive;
  TimeNs since = 0;           // of the state
  std::uint64_t refuted = 0;  // suspicions
  std::string why;            // the reason of the state, a sentence; may be empty
  TimeNs heard_at = 0;        // its newest sign of life, or when it became a neighbour
  TimeNs changed_at = 0;      // when this entry last changed here
  std::uint64_t place = 0;    // in the order of members
  std::uint64_t digest = 0;   // of this entry
  bool is_neighbour = false;
  bool posts_here = false;  // a neighbour that posts to this member with each beat; others only answer
};

// Its texts are the member's.
[[nodiscard]] wire::MemberEntry entry_of(const Member& member);

struct Change {
  Identity member;
  MemberState state;
  std::string why;
  std::optional<Identity> instead_of{};  // an incarnation of it that was alive until now
};

struct MembershipEffects {
  struct Post {
    std::string name;  // empty: unknown, for an address given at start
    std::string address;
    bool whole = false;     // the whole table
    bool can_wait = false;  // it only shows that this member lives: the other may read it with its own next beat
  };
  std::vector<Post> posts;  // of table(), to these members
  // in their order; this member's own change when it continues as another incarnation, or is replaced
  std::vector<Change> changes;
};

struct MembershipOptions {
  TimeNs dead_after_ns = 5 * second_ns;
  std::vector<std::string> seeds;  // addresses of members; one's own may be among them
};

class Membership {
 public:
  static constexpr TimeNs beats_of_death = 10, beats_until_quiet = 2, beats_until_unanswered = 3,
                          beats_until_suspect = 4, beats_to_refute = 3;

  // A process starts with incarnation 0, which loses to that of any earlier process of its name. It continues as the
  // next incarnation as soon as it reads its former entry in a table.
  Membership(Identity self, const MembershipOptions& options, TimeNs now);

  // Where clients of Arrow Flight reach this member; known before it first posts.
  void set_flight(std::string address, TimeNs now);
  // Call it at next_deadline().
  void on_time(TimeNs now, MembershipEffects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // A table that another member posted. An error is the sender's.
  [[nodiscard]] Status on_table(const wire::MemberTable& table, TimeNs now, MembershipEffects& effects);
  // This process has answered a post, not before `since`.
  void on_taken(std::uint64_t process, TimeNs since);
  // The process that was found at an address.
  void on_answered(std::string_view address, std::uint64_t process);
  // The channel to this process is lost. It may still be alive, and refute its death.
  void on_lost(std::uint64_t process, std::string_view why, TimeNs now, MembershipEffects& effects);
  // The last call: the members it posts to learn that it left on purpose.
  void leave(TimeNs now, MembershipEffects& effects);

  // This member's current entry; its state is `left` after leave(), `dead` if another process took its name.
  [[nodiscard]] const Member& self() const noexcept { return self_; }
  // All others, by name.
  [[nodiscard]] const std::map<std::string, Member, std::less<>>& others() const noexcept { return others_; }
  [[nodiscard]] const Member* find(std::string_view name) const noexcept;    // this member included; null: unknown name
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }  // of entries, this member's among them
  [[nodiscard]] std::size_t waiting_seeds() const;  // addresses at which no live member was found yet
  // A wire::MemberTable: all entries, or this member's own, the suspects, and those that changed lately.
  [[nodiscard]] std::vector<std::byte> table(bool whole, TimeNs now) const;
  [[nodiscard]] TimeNs beat_ns() const noexcept { return beat_ns_; }

 private:
  struct Seed {
    std::string address;
    bool self = false;
  };
  // A member whose digest differs, and the times of posts because of that.
  struct Difference {
    TimeNs began = 0;
    std::uint64_t here = 0, there = 0;  // the digests
    TimeNs since = 0;                   // since when they are these
    TimeNs next_post = 0;               // not before
    unsigned repeated = 0;              // posts for the same digests
  };
  enum class Side : bool { after, before };

  [[nodiscard]] bool active() const noexcept { return self_.state == MemberState::alive; }
  // There is no member to send beats to and no address to look for, so there is no deadline.
  [[nodiscard]] bool alone() const noexcept;
  [[nodiscard]] bool all_is_old(TimeNs now) const noexcept;
  void notice_standstill(TimeNs now);
  void hurry(TimeNs now) noexcept;
  void owe(const std::string& name, const std::string& address, bool whole, TimeNs now);
  void note_change(Member& member, TimeNs now);
  // These return whether the merged entry is as new as the table's.
  bool merge(const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  bool merge_live(Member& member, const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  bool merge_self(const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  bool add(const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  void take(Member& member, const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  void hear_sender(const wire::MemberTable& table, const wire::MemberEntry& sender, bool is_as_new, TimeNs now);
  void go_on_as(std::uint64_t incarnation, std::string why, TimeNs now, MembershipEffects& effects);
  void set_state(Member& member, MemberState state, std::string why, TimeNs now, MembershipEffects& effects);
  void suspect(Member& member, std::string why, TimeNs now, MembershipEffects& effects);
  void judge(TimeNs now, MembershipEffects& effects);

  void order_members();
  [[nodiscard]] bool is_quiet(const Member& member, TimeNs now) const noexcept;
  void choose_neighbours(TimeNs now);
  void choose_neighbours(Side side, TimeNs now, std::vector<Member*>& chosen);
  [[nodiscard]] Member* neighbour(Side side, std::size_t distance) const noexcept;
  void post_to_neighbours(TimeNs now, MembershipEffects& effects) const;
  void post_to_successors(MembershipEffects& effects);
  void post_in_turns(MembershipEffects& effects);
  void post_to_next(std::string& last, MemberState state, MembershipEffects& effects);
  void post_to_next_seed(MembershipEffects& effects);
  [[nodiscard]] bool waits(const Seed& seed) const;
  static void add_post(MembershipEffects& effects, const std::string& name, const std::string& address,
                       bool whole = false, bool can_wait = false);

  TimeNs beat_ns_;
  Member self_;
  std::map<std::string, Member, std::less<>> others_;  // names are never forgotten
  std::size_t suspects_ = 0, dead_ = 0;                // of them
  std::uint64_t digest_ = 0;                           // of all entries
  std::uint64_t changes_ = 0;                          // of them
  TimeNs changed_at_ = 0;                              // the last change of an entry
  std::vector<Member*> order_;                         // live others, by place
  std::size_t after_self_ = 0;                         // the first of them that comes after this member
  bool order_is_stale_ = false;
  std::vector<Member*> neighbours_;   // members that judge this one, and that it judges
  std::size_t neighbours_after_ = 0;  // the first of them, to which it posts with every beat
  std::vector<Seed> seeds_;
  std::size_t next_seed_ = 0;
  std::optional<std::uint64_t> found_seeds_at_;  // changes_ when no seed waited; none while one does
  std::uint64_t beats_ = 0;
  std::string last_suspect_, last_dead_;                        // the last one in turn
  std::vector<MembershipEffects::Post> owed_;                   // to members that lack entries of this table
  std::map<std::string, Difference, std::less<>> differences_;  // by address
  bool known_ = false;                                          // some table has this process
  TimeNs last_time_, next_beat_, last_spread_;
  TimeNs judge_at_ = never;  // no member has to be judged before
  std::optional<TimeNs> early_at_;
  bool spreads_ = false;  // some change was not posted yet
};

}  // namespace offpath::group
