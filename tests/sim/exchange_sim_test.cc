// Exchanges of 1 to 125 members in virtual time, under seeded faults, and one of 1600.
//
// Each seed draws a world (members, topology, network, clocks that agree in nothing but nearly in their rate) and what
// happens to it: members are killed, started anew, stopped for up to 10 s; leaders are killed; programs that decide end
// and return while their members live; links are cut; parcels are lost, doubled, late and out of order. Some members
// are told of deaths, as a membership would, and some have to find out. What must hold:
//   - no view is given after its deadline, by whoever runs
//   - what members hold by grants is never more than the total, at any moment
//   - no view has a member of which its record says another, and ages are never negative
//   - when faults are over, all views are complete, all name the first member with a program as their leader, and
//     grants flow again, within a bounded time
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include "seeds.h"
#include "testing/exchange/loopback_members.h"
#include "testing/link/seeded_random.h"
#include "testing/sanitized.h"

namespace offpath::sim {
namespace {

using namespace exchange;

constexpr std::uint64_t total = 1000;

std::vector<std::byte> record_of(MemberIndex member) {
  std::vector<std::byte> record(8 + member % 5 * 16, std::byte{0x5A});
  store(record.data(), std::uint64_t{member});
  return record;
}

std::uint64_t held_by_all(LoopbackMembers& members) {
  std::uint64_t sum = 0;
  for (MemberIndex i = 0; i < members.size(); ++i) {
    // Including stopped ones, which may continue at any moment.
    const auto& member = members[i];
    if (member.exchange && member.exchange->grants() != nullptr)
      sum += member.exchange->grants()->held(LoopbackMembers::local(member, members.now())).amount;
  }
  return sum;
}

void check_view(const View& view, std::size_t members) {
  ASSERT_LE(view.expected, members);
  ASSERT_LE(view.present, view.expected);
  for (const ViewEntry& entry : view.entries) {
    ASSERT_GE(entry.age_ns, 0);
    ASSERT_LE(entry.epoch, view.epoch);
    if (!entry.has_value) continue;
    ASSERT_EQ(entry.record.bytes.size(), record_of(entry.member).size());
    ASSERT_EQ(load<std::uint64_t>(entry.record.bytes.data()), entry.member);
  }
}

// A member's program, which decides, comes or ends, as exchange_service.h tells its member.
void set_program(LoopbackMembers& members, MemberIndex member, bool is_there) {
  auto& one = members[member];
  if (!one.exchange || one.exchange->grants() == nullptr) return;
  Grants& grants = *one.exchange->grants();
  grants.set_deciding(is_there ? Deciding::granting : Deciding::no, LoopbackMembers::local(one, members.now()));
  for (MemberIndex i = 0; i < members.size(); ++i) grants.set_target(i, is_there ? total / members.size() : 0);
}

class ExchangeSim {
 public:
  explicit ExchangeSim(std::uint64_t seed) : world_(seed) {
    constexpr std::size_t counts[] = {1, 2, 3, 5, 7, 9, 16, 31, 125};
    count_ = counts[world_.below(std::size(counts))];
    constexpr const char* shapes[] = {
        "allgather",    "neighbourhoods(2)", "neighbourhoods(5)", "grouped_allgather(2)", "grouped_allgather(5)",
        "hybrid(2, 3)", "hybrid(3, 4)"};
    shape_ = count_ == 125 ? world_.chance(0.5) ? "neighbourhoods(12)" : "grouped_allgather(12)"
                           : shapes[world_.below(std::size(shapes))];
    options_.name = "load";
    options_.interval_ns = (count_ == 125 ? 100 : 20) * millisecond_ns;
    options_.deadline_ns = options_.interval_ns * static_cast<TimeNs>(4 + world_.below(5)) / 8;
    options_.views_to_all = world_.chance(0.8);
    if (world_.chance(0.8)) options_.grants = GrantOptions{total, 12 * options_.interval_ns, 6 * options_.interval_ns};
    members_ = std::make_unique<LoopbackMembers>(options_, *parse_shape(shape_), count_, seed);
    stopped_ever_.assign(count_, false);
    programs_.assign(count_, true);
    newest_.assign(count_, nullptr);
    told_ = world_.chance(0.5);
    for (MemberIndex i = 0; i < count_; ++i) {
      members_->kill(i);
      (*members_)[i].clock_shift = static_cast<TimeNs>(world_.below(1000)) * second_ns;
      (*members_)[i].clock_rate = 1 + (static_cast<double>(world_.below(200)) - 100) * 1e-6;  // 100 ppm
      members_->publish(i, record_of(i));
      members_->start(i);
      set_program(*members_, i, true);
    }
    LoopbackFabric::Faults faults;
    faults.delay_max_ns = options_.deadline_ns / 64;
    members_->fabric().set_faults(faults);
  }

  void run() {
    SCOPED_TRACE(fmt::format("{} members, {}, views to {}, {} grants", count_, shape_,
                             options_.views_to_all ? "all" : "leaders", options_.grants ? "with" : "without"));
    set_targets();
    advance(20 * options_.interval_ns);
    const int actions = 30;
    for (int i = 0; i < actions && !testing::Test::HasFatalFailure(); ++i) {
      act();
      advance(static_cast<TimeNs>(1 + world_.below(6)) * options_.interval_ns);
    }
    heal();
    // Fresh processes do not vote for a lease, suspects are asked every few rounds, stops end after 10 s.
    advance(10 * second_ns + 60 * options_.interval_ns);
    if (testing::Test::HasFatalFailure()) return;
    std::uint64_t sum = held_by_all(*members_);
    for (MemberIndex i = 0; i < count_; ++i) {
      ASSERT_FALSE((*members_)[i].views.empty()) << "member " << i;
      const View& view = *(*members_)[i].views.back();
      EXPECT_EQ(view.present, view.expected) << "member " << i;
      EXPECT_EQ(view.leader, options_.grants ? first_program() : 0u) << "member " << i;
      if (options_.views_to_all) {
        EXPECT_EQ(view.expected, count_);
      }
    }
    if (options_.grants) {
      EXPECT_GT(sum, total / 2);
    }
  }

 private:
  void act() {
    const auto member = static_cast<MemberIndex>(world_.below(count_));
    switch (world_.below(10)) {
      case 0:
        return kill(member);
      case 1:
        return kill(0);  // the present leader
      case 8:
      case 9: {
        const MemberIndex whose = world_.chance(0.5) ? std::min<MemberIndex>(first_program(), count_ - 1) : member;
        programs_[whose] = !programs_[whose];
        return set_program(*members_, whose, programs_[whose]);
      }
      case 2:
        if (!(*members_)[member].exchange) return start(member);
        return;
      case 3:
      case 4:
        stopped_ever_[member] = true;
        members_->stop(member,
                       members_->now() + static_cast<TimeNs>(world_.below(static_cast<std::uint64_t>(10 * second_ns))));
        return;
      case 5: {
        LoopbackFabric::Faults faults;
        faults.delay_max_ns = options_.deadline_ns / 64;
        faults.lost = world_.chance(0.5) ? 0.2 : 0;
        faults.doubled = world_.chance(0.5) ? 0.2 : 0;
        faults.late = world_.chance(0.5) ? 0.1 : 0;
        faults.late_ns = 40 * options_.interval_ns;  // for longer than any grant
        members_->fabric().set_faults(faults);
        return;
      }
      case 6: {
        const std::uint64_t sides = world_.next();
        members_->fabric().set_cut(
            [sides](MemberIndex from, MemberIndex to) { return (sides >> from % 61 & 1) != (sides >> to % 61 & 1); });
        return;
      }
      case 7:
        members_->fabric().set_cut(nullptr);
        return set_targets();
    }
  }
  // count_: there is none.
  [[nodiscard]] MemberIndex first_program() const {
    return static_cast<MemberIndex>(std::ranges::find(programs_, true) - programs_.begin());
  }
  // All programs would give out more than there is.
  void set_targets() {
    for (MemberIndex leader = 0; options_.grants && leader < count_; ++leader)
      for (MemberIndex i = 0; (*members_)[leader].exchange && programs_[leader] && i < count_; ++i)
        (*members_)[leader].exchange->grants()->set_target(i, world_.below(3 * total / count_ + 1));
  }
  void kill(MemberIndex member) {
    members_->kill(member);
    tell(member, false);
  }
  void start(MemberIndex member) {
    members_->start(member);
    set_program(*members_, member, programs_[member]);
    stopped_ever_[member] = false;
    tell(member, true);
    for (MemberIndex i = 0; i < count_; ++i)
      if (i != member && told_ && !(*members_)[i].exchange) members_->tell(member, i, false);
  }
  void tell(MemberIndex about, bool is_up) {
    for (MemberIndex i = 0; told_ && i < count_; ++i)
      if (i != about) members_->tell(i, about, is_up);
  }
  void heal() {
    members_->fabric().set_cut(nullptr);
    LoopbackFabric::Faults faults;
    faults.delay_max_ns = options_.deadline_ns / 64;
    members_->fabric().set_faults(faults);
    for (MemberIndex i = 0; i < count_; ++i)
      if (!(*members_)[i].exchange) start(i);
    if (first_program() == count_) programs_.back() = true;
    for (MemberIndex i = 0; i < count_; ++i) set_program(*members_, i, programs_[i]);
  }
  void advance(TimeNs time) {
    const TimeNs end = members_->now() + time;
    members_->run_until(end, [&](TimeNs) {
      check();
      return !testing::Test::HasFatalFailure();
    });
  }
  void check() {
    if (options_.grants) {
      ASSERT_LE(held_by_all(*members_), total) << "at " << members_->now();
    }
    for (MemberIndex i = 0; i < count_; ++i) {
      auto& member = (*members_)[i];
      for (const ViewPtr& view : member.views)
        if (view != newest_[i]) check_view(*view, count_);
      if (member.views.empty()) continue;
      newest_[i] = member.views.back();
      member.views.erase(member.views.begin(), member.views.end() - 1);
      // A nanosecond for the rounding of clocks of different rates.
      if (member.exchange && !stopped_ever_[i]) {
        ASSERT_LE(member.exchange->counters().overrun_ns_max, 2) << "member " << i;
      }
    }
  }

  link::SeededRandom world_;
  std::size_t count_ = 0;
  const char* shape_ = "";
  ExchangeOptions options_;
  bool told_ = false;
  std::unique_ptr<LoopbackMembers> members_;
  std::vector<bool> stopped_ever_, programs_;
  std::vector<ViewPtr> newest_;  // that was checked, of each member
};

TEST(ExchangeSim, ViewsAreNeverLateAndGrantsNeverTooMany) {
  each_seed(40, [](std::uint64_t seed) { ExchangeSim(seed).run(); });
}

// Programs that decide end and return, in all topologies, while every member lives.
class ProgramSim {
 public:
  explicit ProgramSim(std::uint64_t seed) : world_(seed) {
    constexpr std::size_t counts[] = {2, 3, 5, 9, 16, 31};
    constexpr const char* shapes[] = {"allgather",    "neighbourhoods(2)",    "neighbourhoods(5)",
                                      "hybrid(3, 4)", "grouped_allgather(3)", "hybrid(2, 3)"};
    const std::size_t count = counts[world_.below(std::size(counts))];
    shape_ = shapes[world_.below(std::size(shapes))];
    options_.name = "load";
    options_.interval_ns = 20 * millisecond_ns;
    options_.deadline_ns = 10 * millisecond_ns;
    options_.views_to_all = world_.chance(0.5);
    options_.grants = GrantOptions{total, lease_rounds * options_.interval_ns, 8 * options_.interval_ns};
    members_ = std::make_unique<LoopbackMembers>(options_, *parse_shape(shape_), count, seed);
    for (MemberIndex i = 0; i < count; ++i) {
      members_->publish(i, record_of(i));
      programs_.push_back(world_.chance(0.6));
    }
    programs_[world_.below(count)] = true;
  }

  void run() {
    SCOPED_TRACE(fmt::format("{} members, {}, views to {}", programs_.size(), shape_,
                             options_.views_to_all ? "all" : "leaders"));
    for (MemberIndex i = 0; i < programs_.size(); ++i) set_program(*members_, i, programs_[i]);
    // Fresh members vote after a lease. A program counts after a lease, and is voted for after another one.
    expect_grants(2 * lease_rounds + 4, 2 * lease_rounds + 4, "from the start");
    for (int i = 0; i < 8 && !testing::Test::HasFatalFailure(); ++i) {
      const MemberIndex leader = first_program();
      const auto other = static_cast<MemberIndex>(world_.below(programs_.size()));
      if (std::ranges::count(programs_, true) > 1) {
        programs_[leader] = false;
        set_program(*members_, leader, false);
        expect_grants(lease_rounds + 4, lease_rounds + 4, "after the leader's program ended");
      }
      if (!testing::Test::HasFatalFailure() && !programs_[other]) {
        programs_[other] = true;
        set_program(*members_, other, true);
        expect_grants(2 * lease_rounds + 4, 4, "after a program came");
      }
    }
  }

 private:
  static constexpr int lease_rounds = 16;

  [[nodiscard]] MemberIndex first_program() const {
    return static_cast<MemberIndex>(std::ranges::find(programs_, true) - programs_.begin());
  }
  // After that many rounds at most, the first member with a program leads, sees everything, and all have their grants.
  // Until then no more than `without` rounds passed without any grant.
  void expect_grants(int rounds, int without, const char* when) {
    TimeNs granted_at = members_->now();
    members_->run_until(members_->now() + rounds * options_.interval_ns, [&](TimeNs now) {
      const std::uint64_t held = held_by_all(*members_);
      EXPECT_LE(held, total) << when;
      if (held != 0) granted_at = now;
      EXPECT_LE(now - granted_at, without * options_.interval_ns) << when;
      return !testing::Test::HasFailure();
    });
    ASSERT_EQ(held_by_all(*members_), total / programs_.size() * programs_.size()) << when;
    for (MemberIndex i = 0; i < programs_.size(); ++i)
      ASSERT_EQ((*members_)[i].views.back()->leader, first_program()) << when << ": member " << i;
    const View& view = *(*members_)[first_program()].views.back();
    ASSERT_TRUE(view.whole) << when;
    ASSERT_EQ(view.present, programs_.size()) << when;
    check_view(view, programs_.size());
  }

  link::SeededRandom world_;
  const char* shape_ = "";
  ExchangeOptions options_;
  std::unique_ptr<LoopbackMembers> members_;
  std::vector<bool> programs_;
};

TEST(ExchangeSim, GrantsFlowAgainWhenTheLeadersProgramEndsAndItsAgentLives) {
  each_seed(40, [](std::uint64_t seed) { ProgramSim(seed).run(); });
}

TEST(ExchangeSim, SixteenHundredMembersByTheTree) {
  ExchangeOptions options;
  options.name = "load";
  options.interval_ns = 200 * millisecond_ns;
  options.deadline_ns = 100 * millisecond_ns;
  options.views_to_all = false;
  LoopbackMembers members(options, *parse_shape("grouped_allgather(40)"), 1600, 1);
  for (MemberIndex i = 0; i < 1600; ++i) members.publish(i, record_of(i));
  members.run_for(300 * millisecond_ns);
  members.kill(40);  // of a neighbourhood
  members.run_for(1500 * millisecond_ns);
  const View& view = *members[0].views.back();
  EXPECT_TRUE(view.whole);
  EXPECT_EQ(view.expected, 1600u);
  EXPECT_EQ(view.present, 1599u);
  check_view(view, 1600);
  EXPECT_EQ(members[0].exchange->counters().overrun_ns_max, 0);
}

// The living members' newest views have all of the living.
void expect_all_to_know(LoopbackMembers& members, std::uint32_t living, const char* when) {
  for (MemberIndex i = 0; i < members.size(); ++i) {
    if (!members[i].exchange) continue;
    ASSERT_FALSE(members[i].views.empty()) << when;
    const View& view = *members[i].views.back();
    ASSERT_TRUE(view.whole) << when << ": " << i;
    ASSERT_EQ(view.present, living) << when << ": " << i;
    ASSERT_EQ(view.expected, members.size()) << when << ": " << i;
    check_view(view, members.size());
    ASSERT_EQ(members[i].exchange->counters().overrun_ns_max, 0) << when << ": " << i;
  }
}

// One leader gathers from all: it, the next one, and leaders below die at once, without notification.
TEST(ExchangeSim, NeighbourhoodsOfTwoToAThousandSurviveTheirLeaders) {
  constexpr std::pair<std::size_t, const char*> worlds[] = {
      {2, "neighbourhoods(2)"},   {3, "neighbourhoods(2)"},   {5, "neighbourhoods(3)"},   {16, "neighbourhoods(2)"},
      {40, "neighbourhoods(10)"}, {125, "neighbourhoods(2)"}, {333, "neighbourhoods(7)"}, {1000, "neighbourhoods(10)"}};
  for (const auto& [count, shape] : worlds) {
    if (count > fewer_if_sanitized(1000)) break;
    SCOPED_TRACE(fmt::format("{} members, {}", count, shape));
    ExchangeOptions options;
    options.name = "load";
    options.interval_ns = 100 * millisecond_ns;
    options.deadline_ns = 50 * millisecond_ns;
    LoopbackMembers members(options, *parse_shape(shape), count, 1);
    for (MemberIndex i = 0; i < count; ++i) members.publish(i, record_of(i));
    members.run_for(6 * options.interval_ns);
    expect_all_to_know(members, static_cast<std::uint32_t>(count), "from the start");
    std::vector<MemberIndex> killed{0};
    if (count > 3) killed.push_back(1);
    if (count > 9)
      killed.insert(killed.end(), {static_cast<MemberIndex>(count / 2), static_cast<MemberIndex>(count - 1)});
    for (const MemberIndex each : killed) members.kill(each);
    // Each dead leader is passed over after a few rounds, one after the other.
    members.run_for(30 * options.interval_ns);
    expect_all_to_know(members, static_cast<std::uint32_t>(count - killed.size()), "without its leaders");
    if (testing::Test::HasFatalFailure()) return;
    for (const MemberIndex each : killed) members.start(each);
    members.run_for(30 * options.interval_ns);
    expect_all_to_know(members, static_cast<std::uint32_t>(count), "when they are back");
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace offpath::sim
