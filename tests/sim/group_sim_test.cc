// Membership of up to one hundred agents in virtual time, under seeded faults.
//
// Each seed draws a world (how many members, how they found each other, how slow the network is) and then what happens
// to it: members are killed, started again, stopped for a while, slowed down; the network is cut in two; tables are
// lost and come late, twice and in any order. What must hold whatever happens:
//   - nobody's entry of a name ever goes back: an old incarnation does not return, nor one that was called dead
//   - a member that was killed is dead for all others within dead_after, if the network is whole
//   - while nothing but deaths happens, nobody else is called dead
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

#include "group/membership.h"
#include "seeds.h"
#include "testing/link/seeded_random.h"
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

  [[nodiscard]] TimeNs now() const noexcept { return now_; }
  [[nodiscard]] SeededRandom& random() noexcept { return random_; }
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] bool runs(std::size_t place) const { return places_[place].membership && !places_[place].stopped; }
  [[nodiscard]] bool is_dead(std::size_t place) const { return !places_[place].membership; }
  [[nodiscard]] const Membership& membership(std::size_t place) const { return *places_[place].membership; }

  void start(std::size_t place) {
    Place& here = places_[place];
    here.process = random_.next() | 1;
    here.membership = std::make_unique<Membership>(Identity{name_of(place), 0, here.process, address_of(place), ""},
                                                   group::MembershipOptions{dead_after_ns, here.seeds}, now_);
    here.seen.clear();
    here.stopped = false;
  }
  void kill(std::size_t place) {
    const std::uint64_t process = places_[place].process;
    places_[place].membership.reset();
    // Some had a channel to it and hear of its end, others have to miss it.
    for (std::size_t other = 0; other < size(); ++other)
      if (other != place && random_.chance(0.1)) deliver_end(other, process);
  }
  void stop(std::size_t place) { places_[place].stopped = true; }
  void go_on(std::size_t place) { places_[place].stopped = false; }
  void slow(std::size_t place, TimeNs by) { places_[place].slow_ns = by; }

  void run_for(TimeNs time) {
    const TimeNs until = now_ + time;
    while (!::testing::Test::HasFailure()) {
      TimeNs next = events_.empty() ? never : events_.top().at;
      for (const Place& place : places_)
        if (place.membership && !place.stopped) next = std::min(next, place.due());
      if (next > until) break;
      now_ = std::max(now_, next);
      while (!events_.empty() && events_.top().at <= now_) {
        auto happen = events_.top().happen;
        events_.pop();
        happen();
      }
      for (std::size_t place = 0; place < size(); ++place)
        if (runs(place) && places_[place].due() <= now_) {
          MembershipEffects effects;
          places_[place].membership->on_time(now_, effects);
          carry_out(place, effects);
        }
    }
    now_ = until;
  }

  // Everybody who was called dead by somebody while his process ran.
  [[nodiscard]] const std::set<std::string>& called_dead() const noexcept { return called_dead_; }
  void forget_called_dead() { called_dead_.clear(); }

  // What all who live agree on, or why they do not.
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
    }
    return "";
  }

  [[nodiscard]] static std::string name_of(std::size_t place) { return fmt::format("node{:03}", place); }

 private:
  struct Place {
    std::unique_ptr<Membership> membership;  // null: killed
    std::uint64_t process = 0;
    bool stopped = false;
    TimeNs slow_ns = 0;
    std::vector<std::string> seeds;

    [[nodiscard]] TimeNs due() const {  // of one who lives
      const TimeNs deadline = membership->next_deadline();
      return deadline == never ? never : deadline + slow_ns;
    }

    // what it last knew of others; true: over
    std::map<std::string, std::tuple<std::uint64_t, std::uint64_t, bool>> seen;
  };
  struct Event {
    TimeNs at;
    std::uint64_t order;
    std::function<void()> happen;
    bool operator<(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  [[nodiscard]] static std::string address_of(std::size_t place) { return fmt::format("unix:/{}", name_of(place)); }

  void at(TimeNs time, std::function<void()> happen) { events_.push({time, ++order_, std::move(happen)}); }

  void deliver_end(std::size_t to, std::uint64_t process) {
    at(now_ + random_.between(0, network.latency_max_ns), [this, to, process] {
      if (!runs(to)) return;
      MembershipEffects effects;
      places_[to].membership->on_lost(process, "the channel was closed", now_, effects);
      carry_out(to, effects);
    });
  }

  void carry_out(std::size_t place, const MembershipEffects& effects) {
    // Now and then without a change, should one not be told.
    if (!effects.changes.empty() || random_.chance(0.02)) note(place);
    for (const group::Change& change : effects.changes) {
      if (change.state != MemberState::dead || change.member.process == places_[place].process) continue;
      const std::size_t other = std::stoul(change.member.name.substr(4));
      if (places_[other].membership && places_[other].process == change.member.process)
        called_dead_.insert(change.member.name);
    }
    if (effects.posts.empty()) return;
    const auto table = std::make_shared<std::vector<std::byte>>(places_[place].membership->table());
    for (const MembershipEffects::Post& post : effects.posts) {
      const std::size_t to = std::stoul(post.address.substr(10));
      if (random_.chance(network.lost)) continue;
      const int copies = random_.chance(network.twice) ? 2 : 1;
      for (int copy = 0; copy < copies; ++copy) {
        TimeNs late = random_.between(0, network.latency_max_ns);
        if (random_.chance(network.late)) late += random_.between(0, dead_after_ns / 12);
        at(now_ + late, [this, place, to, table] { arrive(place, to, *table); });
      }
    }
  }

  void arrive(std::size_t from, std::size_t to, const std::vector<std::byte>& bytes) {
    if (!runs(to) || (network.cut && from % 2 != to % 2)) return;
    wire::MemberTable table;
    ASSERT_TRUE(wire::decode(bytes, table));
    MembershipEffects effects;
    const Status taken = places_[to].membership->on_table(table, now_, effects);
    ASSERT_TRUE(taken) << taken.error().message;
    carry_out(to, effects);
  }

  // That what a member knows of others only grows.
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
  std::uint64_t order_ = 0;
  std::set<std::string> called_dead_;
};

// How long agreement may take when faults are over: those who were just cut off are found dead first, each of the dead
// is asked in its turn, and news takes a beat for each doubling.
TimeNs time_to_agree(std::size_t members) {
  const auto beats = static_cast<TimeNs>(members + 8 * std::bit_width(members));
  return 2 * dead_after_ns + beats * (dead_after_ns / Membership::beats_of_death);
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

void die_in_time(std::uint64_t seed, std::size_t members) {
  World world(seed, members);
  world.run_for(time_to_agree(members));
  ASSERT_EQ(world.disagreement(), "");
  world.forget_called_dead();
  const std::uint64_t deaths = 1 + world.random().below(members / 4);
  for (std::uint64_t i = 0; i < deaths; ++i)
    if (const std::size_t place = some_place(world); !world.is_dead(place)) world.kill(place);
  world.run_for(dead_after_ns);
  ASSERT_EQ(world.disagreement(), "") << "dead_after has passed";
  ASSERT_TRUE(world.called_dead().empty()) << *world.called_dead().begin() << " lives";
}

TEST(GroupSimulation, AllWhoLiveAgreeWhenFaultsAreOver) {
  each_seed(40, [](std::uint64_t seed) { agree_after_faults(seed, 2 + SeededRandom(seed).below(23)); });
}

TEST(GroupSimulation, OneHundredAgreeWhenFaultsAreOver) { agree_after_faults(1, 100); }

TEST(GroupSimulation, ADeathIsKnownToAllInTimeAndNobodyElseIsCalledDead) {
  each_seed(40, [](std::uint64_t seed) { die_in_time(seed, 4 + SeededRandom(seed).below(37)); });
}

TEST(GroupSimulation, AmongOneHundredAsWell) { die_in_time(1, 100); }

}  // namespace
}  // namespace offpath::sim
