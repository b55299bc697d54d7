// Membership of the group: a state machine without socket, thread or clock. Read this first, then reach.h, then
// group.h.
//
// Every member keeps a table of all members it ever heard of. An entry is (name, incarnation, process, state, beats),
// and two entries of one name are ordered: the larger incarnation wins (then the larger process number), and within one
// incarnation the later state: alive < left < dead. Merging tables takes the larger entry of each name. So members that
// exchange tables converge, whatever the order and number of messages. A dead entry stays dead: a member that reads of
// its own death continues under the next incarnation.
//
// Time is counted in beats, of which `dead_after` has 24. With each beat a member raises its own count of beats and
// posts its table to the members 1, 2, 4, … places after it in the order of names, so an event reaches n members in
// log2 n beats even if any single connection is cut. A change of state is posted at once.
//
//   10 beats   without a larger count of a member: suspect, a local opinion that is not in the table
//   18 beats   dead, which is told to all; the other 6 beats are for that event to arrive
//
// A lost channel makes a member suspect at once. Members that are suspect or dead, and addresses that were given at
// start and have not answered, still get the table in turns, one of each kind with every beat. So the halves of a
// partitioned network find each other again.
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

struct Identity {
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint64_t process = 0;  // a random number of each start, which channels tell as well (wire::Welcome::incarnation)
  std::string address;        // for channels
  std::string http;           // empty: none
};

struct Member {
  Identity id;
  MemberState state = MemberState::alive;
  TimeNs since = 0;     // of the state
  TimeNs heard_at = 0;  // when its count of beats was last seen to grow
  std::uint64_t beats = 0;
  std::string why;  // of the state, a sentence; empty where there is nothing to say
};

struct Change {
  Identity member;
  MemberState state;
  std::string why;
  std::optional<Identity> instead_of{};  // an incarnation of it that was alive until now
};

struct MembershipEffects {
  struct Post {
    std::string name;  // empty: not known, an address given at start
    std::string address;
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
  static constexpr TimeNs beats_of_death = 24, beats_until_suspect = 10, beats_until_dead = 18;

  // A process starts with incarnation 0, which loses to that of any earlier process of its name. It continues as the
  // next incarnation as soon as it reads in a table how the others know it.
  Membership(Identity self, const MembershipOptions& options, TimeNs now);

  // Call it at next_deadline().
  void on_time(TimeNs now, MembershipEffects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // A table that another member posted. An error is the sender's.
  [[nodiscard]] Status on_table(const wire::MemberTable& table, TimeNs now, MembershipEffects& effects);
  // Which process was found at an address.
  void on_answered(std::string_view address, std::uint64_t process);
  // The channel to this process is lost. Its beats may still arrive through other members.
  void on_lost(std::uint64_t process, std::string_view why, TimeNs now, MembershipEffects& effects);
  // The last call: the members it posts to learn that it left on purpose.
  void leave(TimeNs now, MembershipEffects& effects);

  // This member's current entry; its state is `left` after leave(), `dead` if another process took its name.
  [[nodiscard]] const Member& self() const noexcept { return self_; }
  // All others, by name.
  [[nodiscard]] const std::map<std::string, Member, std::less<>>& others() const noexcept { return others_; }
  [[nodiscard]] const Member* find(std::string_view name) const noexcept;  // self included; null: nobody of that name
  [[nodiscard]] std::size_t waiting_seeds() const;     // addresses at which no live member was found yet
  [[nodiscard]] std::vector<std::byte> table() const;  // a wire::MemberTable
  [[nodiscard]] TimeNs beat_ns() const noexcept { return beat_ns_; }

 private:
  struct Seed {
    std::string address;
    bool self = false;
  };

  [[nodiscard]] bool active() const noexcept { return self_.state == MemberState::alive; }
  // There is no member to tell beats to and no address to look for: such a member needs no time.
  [[nodiscard]] bool alone() const noexcept;
  void notice_standstill(TimeNs now);
  void hurry(TimeNs now) noexcept;
  // These return whether the merged entry is as new as the table's.
  bool merge(const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  bool merge_self(const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  bool add(const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  void take(Member& member, const wire::MemberEntry& entry, TimeNs now, MembershipEffects& effects);
  void go_on_as(std::uint64_t incarnation, std::string why, TimeNs now, MembershipEffects& effects);
  void set_state(Member& member, MemberState state, std::string why, TimeNs now, MembershipEffects& effects);
  void judge(TimeNs now, MembershipEffects& effects);
  void post_to_successors(MembershipEffects& effects) const;
  void post_in_turns(MembershipEffects& effects);
  void post_to_next(std::string& last, MemberState state, MembershipEffects& effects);
  void post_to_next_seed(MembershipEffects& effects);
  [[nodiscard]] bool waits(const Seed& seed) const;
  static void add_post(MembershipEffects& effects, const std::string& name, const std::string& address);

  TimeNs beat_ns_;
  Member self_;
  std::map<std::string, Member, std::less<>> others_;
  std::vector<Seed> seeds_;
  std::size_t next_seed_ = 0;
  std::string last_suspect_, last_dead_;       // whose turn it was
  std::vector<MembershipEffects::Post> owed_;  // members that lack something this table has
  bool known_ = false;                         // somebody's table has this very process
  TimeNs last_time_, next_beat_, last_post_;
  std::optional<TimeNs> early_at_;
};

}  // namespace offpath::group
