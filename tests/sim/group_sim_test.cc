// Membership of up to one hundred agents in virtual time, under seeded faults.
//
// Each seed draws a world (how many members, how they found each other, how slow the network is) and then what happens
// to it: members are killed, started again, stopped for a while, slowed down; the network is cut in two; tables are
// lost and come late, twice and in any order. What must hold whatever happens:
//   - nobody's entry of a name ever goes back: an old incarnation does not return, nor one that was called dead
//   - a member that was killed is dead for all others within dead_after, if the network is whole
//   - while nothing but deaths happens, nobody else is called dead
//   - on machines that are busy half of the time, nobody is even suspected
//   - when faults are over, all who live agree on the same table, and call each other alive, within a bounded time
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <tuple>

#include "base/due_times.h"
#include "group/membership.h"
#include "seeds.h"
#include "testing/link/seeded_random.h"
#include "testing/sanitized.h"
#include "wire/messages/peer_messages.h"

namespace offpath::sim {
namespace {

using group::Identity;
using group::Member;
using group::Membership;
using group::MembershipEffects;
using group::MemberState;
using link::SeededRandom;

constexpr TimeNs dead_after_ns = 5 * second_ns;

struct Network {
  TimeNs latency_max_ns = 20 * millisecond_ns;
  double lost = 0, twice = 0, late = 0;  // late: by up to two beats
  bool cut = false;                      // even places do not reach odd ones
  double busy = 0;                       // share of turns for which a member waits until it has a core
};

struct Posted {
  std::uint64_t tables = 0, bytes = 0;
  std::uint64_t wakes = 0;  // tables that did not wait for the receiver's next round
};

class World {
 public:
  World(std::uint64_t seed, std::size_t places) : random_(seed), places_(places) {
    const bool by_list = random_.chance(0.5);
    for (std::size_t place = 0; place < places; ++place) {
      std::vector<std::string> seeds;
      if (by_list)
        for (std::size_t other = 0; other < places; ++other) seeds.push_back(address_of(other));
      else if (place > 0)
        seeds.push_back(address_of(random_.below(place)));
      places_[place].seeds = std::move(seeds);
      start(place);
    }
  }

  Network network;
  Posted posted;  // by all, so far

  [[nodiscard]] TimeNs now() const noexcept { return now_; }
  [[nodiscard]] SeededRandom& random() noexcept { return random_; }
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] bool runs(std::size_t place) const { return places_[place].membership && !places_[place].stopped; }
  [[nodiscard]] bool is_dead(std::size_t place) const { return !places_[place].membership; }
  [[nodiscard]] const Membership& membership(std::size_t place) const { return *places_[place].membership; }

  void start(std::size_t place, std::uint64_t incarnation = 0) {
    Place& here = places_[place];
    here.process = random_.next() | 1;
    here.membership = std::make_unique<Membership>(identity(place, incarnation),
                                                   group::MembershipOptions{dead_after_ns, here.seeds}, now_);
    here.seen.clear();
    here.waiting.clear();
    here.stopped = false;
    expect(place);
  }
  [[nodiscard]] Identity identity(std::size_t place, std::uint64_t incarnation) const {
    return {name_of(place), incarnation,   places_[place].process, address_of(place), "", "", "",
            rack_of(place), role_of(place)};
  }
  void kill(std::size_t place) {
    const std::uint64_t process = places_[place].process;
    places_[place].membership.reset();
    expect(place);
    // Some had a channel to it and hear of its end, others have to miss it.
    for (std::size_t other = 0; other < size(); ++other)
      if (other != place && random_.chance(0.1)) deliver_end(other, process);
  }
  void stop(std::size_t place) {
    places_[place].stopped = true;
    expect(place);
  }
  void go_on(std::size_t place) {
    places_[place].stopped = false;
    expect(place);
  }
  void slow(std::size_t place, TimeNs by) {
    places_[place].slow_ns = by;
    expect(place);
  }

  void run_for(TimeNs time) {
    const TimeNs until = now_ + time;
    while (!::testing::Test::HasFailure()) {
      const TimeNs next = std::min(events_.empty() ? never : events_.top().at, due_.first());
      if (next > until) break;
      now_ = std::max(now_, next);
      while (!events_.empty() && events_.top().at <= now_) {
        auto happen = events_.top().happen;
        events_.pop();
        happen();
      }
      for (const std::size_t place : due_.take(now_)) {
        if (!runs(place)) continue;
        take_waiting(place);  // first: it may be a sign of life
        places_[place].round_before = now_;
        places_[place].late_ns = wait_for_core();
        MembershipEffects effects;
        places_[place].membership->on_time(now_, effects);
        carry_out(place, effects);
      }
    }
    now_ = until;
  }

  // Members that others called dead while their process ran.
  [[nodiscard]] const std::set<std::string>& called_dead() const noexcept { return called_dead_; }
  void forget_called_dead() { called_dead_.clear(); }
  [[nodiscard]] std::uint64_t suspicions() const noexcept { return suspicions_; }  // that members began, or heard of

  // The table that all living members agree on, or the reason why they do not.
  [[nodiscard]] std::string disagreement() const {
    const auto table_of = [this](std::size_t place) {
      std::map<std::string, std::tuple<std::uint64_t, std::uint64_t, bool>> table;
      const Membership& members = membership(place);
      table[members.self().id.name] = {members.self().id.incarnation, members.self().id.process, true};
      for (const auto& [name, member] : members.others())
        table[name] = {member.id.incarnation, member.id.process, member.state == MemberState::alive};
      return table;
    };
    std::optional<std::size_t> first;
    for (std::size_t place = 0; place < size(); ++place) {
      if (is_dead(place)) continue;
      if (!first) first = place;
      const auto table = table_of(place), other = table_of(*first);
      if (table.size() != other.size())
        return fmt::format("{} knows {} members, {} knows {}", name_of(place), table.size(), name_of(*first),
                           other.size());
      for (const auto& [name, entry] : table)
        if (other.at(name) != entry)
          return fmt::format("{} and {} disagree on {}: incarnations {} and {}, alive {} and {}", name_of(place),
                             name_of(*first), name, std::get<0>(entry), std::get<0>(other.at(name)), std::get<2>(entry),
                             std::get<2>(other.at(name)));
    }
    for (std::size_t place = 0; first && place < size(); ++place) {
      const Member* member = membership(*first).find(name_of(place));
      const bool alive = member != nullptr && member->state == MemberState::alive;
      if (alive == is_dead(place))
        return fmt::format("{} is taken for {}", name_of(place), alive ? "alive" : "dead, or is not known");
      if (alive && (member->id.rack != rack_of(place) || member->id.role != role_of(place)))
        return fmt::format("{} is said to be in rack '{}'", name_of(place), member->id.rack);
    }
    return "";
  }

  [[nodiscard]] static std::string rack_of(std::size_t place) { return fmt::format("rack{}", place / 8); }
  [[nodiscard]] static group::Role role_of(std::size_t place) {
    return place % 2 == 0 ? group::Role::host : group::Role::dpu;
  }
  [[nodiscard]] static std::string name_of(std::size_t place) { return fmt::format("node{:03}", place); }
  [[nodiscard]] static std::string address_of(std::size_t place) { return fmt::format("unix:/{}", name_of(place)); }
  [[nodiscard]] std::uint64_t process(std::size_t place) const { return places_[place].process; }

  void tell(std::size_t place, const wire::MemberTable& table) {
    MembershipEffects effects;
    ASSERT_TRUE(places_[place].membership->on_table(table, now_, effects));
    expect(place);
  }

 private:
  struct Place {
    std::unique_ptr<Membership> membership;  // null: killed
    std::uint64_t process = 0;
    bool stopped = false;
    TimeNs slow_ns = 0, round_before = 0;
    TimeNs late_ns = 0;  // of its next round
    std::vector<std::string> seeds;
    std::vector<std::function<void()>> waiting;  // requests that did not wake it, taken in its next round

    [[nodiscard]] TimeNs due() const {  // of a living member
      const TimeNs deadline = membership->next_deadline();
      return deadline == never ? never : deadline + slow_ns + late_ns;
    }

    // its last knowledge of others; true: over
    std::map<std::string, std::tuple<std::uint64_t, std::uint64_t, bool>> seen;
  };
  struct Event {
    TimeNs at;
    std::uint64_t order;
    std::function<void()> happen;
    bool operator<(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  void at(TimeNs time, std::function<void()> happen) { events_.push({time, ++order_, std::move(happen)}); }

  void deliver_end(std::size_t to, std::uint64_t process) {
    at(now_ + random_.between(0, network.latency_max_ns), [this, to, process] {
      if (!runs(to)) return;
      MembershipEffects effects;
      places_[to].membership->on_lost(process, "the channel was closed", now_, effects);
      carry_out(to, effects);
    });
  }

  // When it has to be called next.
  void expect(std::size_t place) { due_.set(place, runs(place) ? places_[place].due() : never); }

  void carry_out(std::size_t place, const MembershipEffects& effects) {
    expect(place);
    // Now and then without a change, in case a notification is missing.
    if (random_.chance(effects.changes.empty() ? 0.02 : 1) && (size() <= 100 || random_.chance(0.01))) note(place);
    for (const group::Change& change : effects.changes) {
      if (change.state == MemberState::suspect) ++suspicions_;
      if (change.state != MemberState::dead || change.member.process == places_[place].process) continue;
      const std::size_t other = std::stoul(change.member.name.substr(4));
      if (places_[other].membership && places_[other].process == change.member.process)
        called_dead_.insert(change.member.name);
    }
    std::shared_ptr<std::vector<std::byte>> tables[2];
    for (const MembershipEffects::Post& post : effects.posts) {
      auto& table = tables[post.whole ? 1 : 0];
      if (!table) table = std::make_shared<std::vector<std::byte>>(places_[place].membership->table(post.whole, now_));
      ++posted.tables;
      posted.bytes += table->size();
      posted.wakes += post.can_wait ? 0 : 1;
      const std::size_t to = std::stoul(post.address.substr(10));
      if (random_.chance(network.lost)) continue;
      const int copies = random_.chance(network.twice) ? 2 : 1;
      for (int copy = 0; copy < copies; ++copy)
        at(now_ + delay(), [this, place, to, table, posted_at = now_, can_wait = post.can_wait] {
          if (can_wait) return wait_for_round(to, [=, this] { arrive(place, to, *table, posted_at); });
          take_waiting(to);
          arrive(place, to, *table, posted_at);
        });
    }
  }

  // Requests that do not wake a member.
  void wait_for_round(std::size_t place, std::function<void()> take) {
    places_[place].waiting.push_back(std::move(take));
  }
  void take_waiting(std::size_t place) {
    if (!runs(place)) return;
    for (auto& take : std::exchange(places_[place].waiting, {})) take();
  }

  // Mostly the rest of another process's turn or two, once in a thousand times as many as a busy machine has.
  [[nodiscard]] TimeNs wait_for_core() {
    if (network.busy == 0 || !random_.chance(network.busy)) return 0;
    return random_.between(0, random_.chance(0.001) ? dead_after_ns / 10 : 10 * millisecond_ns);
  }
  [[nodiscard]] TimeNs delay() {
    TimeNs late = random_.between(0, network.latency_max_ns) + wait_for_core();
    if (random_.chance(network.late)) late += random_.between(0, dead_after_ns / 12);
    return late;
  }

  void arrive(std::size_t from, std::size_t to, const std::vector<std::byte>& bytes, TimeNs posted_at) {
    if (!runs(to) || (network.cut && from % 2 != to % 2)) return;
    wire::MemberTable table;
    ASSERT_TRUE(wire::decode(bytes, table));
    MembershipEffects effects;
    const Status taken = places_[to].membership->on_table(table, now_, effects);
    ASSERT_TRUE(taken) << taken.error().message;
    carry_out(to, effects);
    if (random_.chance(network.lost)) return;
    const std::uint64_t asked = places_[from].process;
    at(now_ + delay(), [this, from, to, asked, process = places_[to].process, posted_at] {
      wait_for_round(from, [=, this] {
        if (runs(from) && places_[from].process == asked && !(network.cut && from % 2 != to % 2))
          places_[from].membership->on_taken(process, std::max(posted_at, places_[from].round_before));
      });
    });
  }

  // Checks that a member's knowledge of others only grows.
  void note(std::size_t place) {
    Place& here = places_[place];
    for (const auto& [name, member] : here.membership->others()) {
      const bool over = member.state == MemberState::dead || member.state == MemberState::left;
      const std::tuple knows{member.id.incarnation, member.id.process, over};
      auto& before = here.seen[name];
      ASSERT_GE(knows, before) << name_of(place) << " has taken back an old incarnation of " << name;
      before = knows;
    }
  }

  SeededRandom random_;
  TimeNs now_ = 0;
  std::vector<Place> places_;
  std::priority_queue<Event> events_;
  DueTimes<std::size_t> due_;  // of members
  std::uint64_t order_ = 0;
  std::set<std::string> called_dead_;
  std::uint64_t suspicions_ = 0;
};

// The time limit of agreement after the last fault: members just cut off are found dead first, each dead member is
// asked in its turn, and a change takes a beat for each doubling.
TimeNs time_to_agree(std::size_t members) {
  const auto beats = static_cast<TimeNs>(4 * members + 8 * std::bit_width(members));
  return 3 * dead_after_ns + beats * (dead_after_ns / Membership::beats_of_death);
}

std::size_t some_place(World& world) { return world.random().below(world.size()); }

void draw_fault(World& world) {
  const std::size_t place = some_place(world);
  switch (world.random().below(7)) {
    case 0:
      if (!world.is_dead(place)) world.kill(place);
      return;
    case 1:
    case 2:
      if (world.is_dead(place)) world.start(place);
      return;
    case 3:
      return world.stop(place);
    case 4:
      return world.go_on(place);
    case 5:
      return world.slow(place, world.random().between(0, dead_after_ns / 8));
    case 6:
      world.network.cut = !world.network.cut;
      return;
  }
}

void agree_after_faults(std::uint64_t seed, std::size_t members) {
  World world(seed, members);
  world.run_for(time_to_agree(members));
  ASSERT_EQ(world.disagreement(), "") << "before any fault";
  world.network.lost = world.random().chance(0.5) ? 0.2 : 0;
  world.network.twice = world.random().chance(0.5) ? 0.1 : 0;
  world.network.late = world.random().chance(0.5) ? 0.1 : 0;
  const std::uint64_t faults = 1 + world.random().below(20);
  for (std::uint64_t i = 0; i < faults && !testing::Test::HasFailure(); ++i) {
    draw_fault(world);
    world.run_for(world.random().between(0, 2 * dead_after_ns));
  }
  world.network = {};
  for (std::size_t place = 0; place < members; ++place) {
    world.go_on(place);
    world.slow(place, 0);
  }
  world.run_for(time_to_agree(members));
  ASSERT_EQ(world.disagreement(), "");
}

// Members that know each other from the start, as if they had exchanged tables for a while.
void introduce(World& world) {
  std::vector<std::string> names, addresses, racks;
  for (std::size_t place = 0; place < world.size(); ++place) {
    world.start(place, 1);
    racks.push_back(World::rack_of(place));
    names.push_back(World::name_of(place));
    addresses.push_back(World::address_of(place));
  }
  wire::MemberTable all;
  all.members = static_cast<std::uint32_t>(world.size());
  for (std::size_t place = 0; place < world.size(); ++place)
    all.entries.push_back({wire::MemberEntry::State::alive, 1, world.process(place), 0, names[place], addresses[place],
                           "", "", "", racks[place], World::role_of(place)});
  for (std::size_t place = 0; place < world.size(); ++place) {
    all.sender = names[(place + 1) % world.size()];
    world.tell(place, all);
  }
  // Their meeting is not simulated: a thousand tables of a thousand members would take a minute.
  world.network.lost = 1;
  world.run_for(3 * dead_after_ns / Membership::beats_of_death - 1);
  world.network.lost = 0;
  world.run_for(dead_after_ns);
  ASSERT_EQ(world.disagreement(), "");
  world.forget_called_dead();
}

void die_in_time(std::uint64_t seed, std::size_t members, std::size_t deaths, TimeNs time) {
  World world(seed, members);
  world.run_for(time_to_agree(members));
  ASSERT_EQ(world.disagreement(), "");
  world.forget_called_dead();
  for (std::size_t i = 0; i < deaths; ++i)
    if (const std::size_t place = some_place(world); !world.is_dead(place)) world.kill(place);
  world.run_for(time);
  ASSERT_EQ(world.disagreement(), "") << "the time has passed";
  ASSERT_TRUE(world.called_dead().empty()) << *world.called_dead().begin() << " lives";
}

// Some die, one after the other, while messages are lost.
void die_in_time_of_a_bad_network(std::uint64_t seed, std::size_t members, std::size_t deaths) {
  World world(seed, members);
  introduce(world);
  world.network.lost = 0.1;
  for (std::size_t i = 0; i < deaths && !testing::Test::HasFailure(); ++i) {
    world.run_for(world.random().between(0, dead_after_ns));
    std::size_t place = some_place(world);
    while (world.is_dead(place)) place = some_place(world);
    world.kill(place);
    world.run_for(dead_after_ns);
    for (std::size_t other = 0; other < members; ++other) {
      if (world.is_dead(other)) continue;
      const Member* const member = world.membership(other).find(World::name_of(place));
      ASSERT_NE(member, nullptr);
      ASSERT_EQ(member->state, MemberState::dead)
          << World::name_of(other) << " does not know that " << World::name_of(place) << " is dead";
    }
    ASSERT_TRUE(world.called_dead().empty()) << *world.called_dead().begin() << " lives";
  }
}

// The posts of an idle member.
struct Cost {
  double tables_per_s = 0, bytes_per_s = 0, wakes_per_s = 0;
};
Cost cost_of_idling(std::size_t members) {
  World world(1, members);
  introduce(world);
  world.run_for(dead_after_ns);
  world.posted = {};
  constexpr TimeNs time = 3 * dead_after_ns;
  world.run_for(time);
  const double member_seconds = static_cast<double>(members) * time / second_ns;
  return {static_cast<double>(world.posted.tables) / member_seconds,
          static_cast<double>(world.posted.bytes) / member_seconds,
          static_cast<double>(world.posted.wakes) / member_seconds};
}

// The posts of each member because one of them dies.
double cost_of_a_death(std::size_t members) {
  World world(1, members);
  introduce(world);
  const auto posted_in = [&world](TimeNs time) {
    world.posted = {};
    world.run_for(time);
    return static_cast<double>(world.posted.tables);
  };
  const double idle = posted_in(2 * dead_after_ns);
  world.kill(0);
  return (posted_in(2 * dead_after_ns) - idle) / static_cast<double>(members);
}

TEST(GroupSimulation, AllWhoLiveAgreeWhenFaultsAreOver) {
  each_seed(40, [](std::uint64_t seed) { agree_after_faults(seed, 2 + SeededRandom(seed).below(23)); });
}

TEST(GroupSimulation, OneHundredAgreeWhenFaultsAreOver) { agree_after_faults(1, 100); }

// A member has up to six neighbours: one of them lives.
TEST(GroupSimulation, ADeathIsKnownToAllInTimeAndNobodyElseIsCalledDead) {
  each_seed(40, [](std::uint64_t seed) {
    SeededRandom random(seed);
    const std::size_t members = 4 + random.below(37);
    die_in_time(seed, members, 1 + random.below(std::min<std::size_t>(members / 4, 3)), dead_after_ns);
  });
}

TEST(GroupSimulation, AmongOneHundredAsWell) { die_in_time(1, 100, 3, dead_after_ns); }

TEST(GroupSimulation, AQuarterThatDiesAtOnceIsKnownToAllInTwiceTheTime) {
  each_seed(40, [](std::uint64_t seed) {
    const std::size_t members = 4 + SeededRandom(seed).below(37);
    die_in_time(seed, members, members / 4, 2 * dead_after_ns);
  });
  die_in_time(1, 100, 25, 2 * dead_after_ns);
}

TEST(GroupSimulation, OneHundredKnowOfADeathInTimeThoughOneMessageOfTenIsLost) {
  each_seed(5, [](std::uint64_t seed) { die_in_time_of_a_bad_network(seed, 100, 4); });
}

TEST(GroupSimulation, OneThousandKnowOfADeathInTimeThoughOneMessageOfTenIsLost) {
  die_in_time_of_a_bad_network(1, fewer_if_sanitized(1000), 2);
}

TEST(GroupSimulation, NobodyIsSuspectedInAnHourAtHalfLoad) {
  World world(1, 100);
  introduce(world);
  const std::uint64_t before = world.suspicions();
  world.network.busy = 0.5;
  for (std::size_t minute = 0; minute < fewer_if_sanitized(60) && !testing::Test::HasFailure(); ++minute) {
    world.run_for(60 * second_ns);
    ASSERT_EQ(world.suspicions(), before) << "in minute " << minute + 1;
  }
  ASSERT_EQ(world.disagreement(), "");
  const std::size_t place = some_place(world);  // and who dies is still found dead
  world.kill(place);
  world.run_for(dead_after_ns);
  ASSERT_EQ(world.disagreement(), "");
}

TEST(GroupSimulation, WhatAnIdleMemberPostsDoesNotGrowWithTheGroup) {
  constexpr double beats_per_s = static_cast<double>(Membership::beats_of_death) * second_ns / dead_after_ns;
  constexpr double entry_bytes = 33 + 8 + 3 * 2 + 7 + 13, table_bytes = 2 + 7 + 8 + 4 + 4 + entry_bytes;
  for (const std::size_t members : {std::size_t{10}, std::size_t{100}, fewer_if_sanitized(1000)}) {
    const Cost cost = cost_of_idling(members);
    RecordProperty(fmt::format("tables_per_s_of_{}", members), fmt::format("{:.2f}", cost.tables_per_s));
    RecordProperty(fmt::format("bytes_per_s_of_{}", members), fmt::format("{:.0f}", cost.bytes_per_s));
    EXPECT_LE(cost.tables_per_s, 3.05 * beats_per_s) << members << " members: a beat is posted to three";
    EXPECT_LE(cost.bytes_per_s, 3.05 * beats_per_s * table_bytes) << members << " members";
    EXPECT_LE(cost.wakes_per_s, 0.05 * beats_per_s) << members << " members: nobody is woken to hear that all is well";
  }
}

TEST(GroupSimulation, AChangeCostsEachMemberAsManyTablesAsTheGroupHasDoublings) {
  for (const std::size_t members : {std::size_t{10}, std::size_t{100}, fewer_if_sanitized(1000)}) {
    const double tables = cost_of_a_death(members);
    RecordProperty(fmt::format("tables_of_{}", members), fmt::format("{:.1f}", tables));
    // The suspicion and the death, each told once or, where they met other posts on the way, twice; and the dead member
    // is asked with each fourth beat.
    EXPECT_LE(tables, 5 + 4.0 * static_cast<double>(std::bit_width(members))) << members << " members";
  }
}

}  // namespace
}  // namespace offpath::sim
