// Coworkers that exchange positions and forces themselves, beside hosts that do; on ranks that are threads.
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "md/files/temporary_file.h"
#include "md/neighbours/small_box.h"
#include "md/offload/exchange_choice.h"
#include "md/offload/exchanged_forces.h"
#include "md/offload/mortal_coworker.h"
#include "md/ranks/thread_ranks.h"
#include "md/test_metal.h"

namespace md {
namespace {

Settings exchanging(Exchange exchange, std::int64_t interval = 5) {
  Settings settings = small_box(Offload::force, interval);
  settings.exchange = exchange;
  return settings;
}

// Position, velocity and force of an atom.
using State = std::array<double, 3 * values>;

State state_of(const Atoms& atoms, std::size_t i) {
  State state;
  for (std::size_t d = 0; d < values; ++d) {
    state[d] = atoms.x[values * i + d];
    state[values + d] = atoms.v[values * i + d];
    state[2 * values + d] = atoms.f[values * i + d];
  }
  return state;
}

// By step and id, from time to time.
std::map<std::pair<int, std::int32_t>, State> states_of(int count, const Settings& settings) {
  std::map<std::pair<int, std::int32_t>, State> found;
  std::mutex mutex;
  ThreadRanks::run(count, [&](Ranks& ranks) {
    Simulation simulation(settings, ranks, make_local_coworker(Simulation::shape_of(settings), &ranks));
    simulation.start();
    EXPECT_EQ(simulation.exchange(), settings.exchange);
    for (int step = 1; step <= 300; ++step) {
      simulation.step();
      if (step % 25 != 0) continue;
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < simulation.atoms().own; ++i)
        found[{step, simulation.atoms().id[i]}] = state_of(simulation.atoms(), i);
    }
    EXPECT_EQ(simulation.forces_by_coworker(), 300 / settings.interval);
  });
  return found;
}

class ExchangeOnRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, ExchangeOnRanks, testing::Values(1, 2, 4, 8));

TEST_P(ExchangeOnRanks, GivesEveryAtomTheSameBits) {
  const auto by_hosts = states_of(GetParam(), exchanging(Exchange::host));
  const auto by_agents = states_of(GetParam(), exchanging(Exchange::agent));
  EXPECT_EQ(by_hosts.size(), 12U * 2048U);
  EXPECT_EQ(by_agents, by_hosts);
}

TEST_P(ExchangeOnRanks, WorksWithThreadsAndInMixedPrecision) {
  Settings settings = exchanging(Exchange::host, 10);
  settings.threads = 2;
  settings.agent_threads = 3;
  settings.precision = Precision::mixed;
  settings.safe_exchange = true;
  const Thermo expected = after(40, settings);
  settings.exchange = Exchange::agent;
  ThreadRanks::run(GetParam(), [&](Ranks& ranks) {
    Simulation simulation(settings, ranks, make_local_coworker(Simulation::shape_of(settings), &ranks));
    simulation.start();
    for (int step = 0; step < 40; ++step) simulation.step();
    EXPECT_NEAR(simulation.thermo().energy, expected.energy, 3e-4);
    EXPECT_EQ(simulation.forces_by_coworker(), 4);
  });
}

// Between its two loops the method sends a value of each atom to its ghosts.
TEST_P(ExchangeOnRanks, ComputesTheEmbeddedAtomMethod) {
  const TemporaryFile table(funcfl());
  Settings settings = small_box(Offload::none, 4);
  settings.cells = {6, 6, 6};
  settings.potential = Potential::eam;
  settings.units = metal_units;
  settings.potential_file = table.path();
  settings.density = 4 / (3.6 * 3.6 * 3.6);
  settings.temperature = 900;
  settings.skin = 0.5;
  settings.threads = 2;
  const Thermo expected = after(100, settings);
  settings.offload = Offload::force;
  settings.exchange = Exchange::agent;
  settings.agent_threads = 3;
  ThreadRanks::run(GetParam(), [&](Ranks& ranks) {
    Simulation simulation(settings, ranks, make_local_coworker(Simulation::shape_of(settings), &ranks));
    simulation.start();
    for (int step = 0; step < 100; ++step) simulation.step();
    const Thermo found = simulation.thermo();
    EXPECT_NEAR(found.temperature / expected.temperature, 1, 1e-8);
    EXPECT_NEAR(found.energy, expected.energy, 1e-8);
    EXPECT_EQ(simulation.forces_by_coworker(), 25);
  });
}

TEST(EamForces, TablesOfAnotherProcessGiveTheSameBitsOrAreRefused) {
  const TemporaryFile table(funcfl());
  const EamForces whole(read_eam_file(table.path()), choose_kernels("auto"));
  std::vector<double> tables = whole.tables();
  const EamForces again(tables, choose_kernels("auto"));
  EXPECT_EQ(again.tables(), tables);
  EXPECT_EQ(again.parameters(), whole.parameters());
  const auto refusal = [&] { return refusal_of([&] { EamForces(tables, choose_kernels("auto")); }); };
  tables.push_back(0);
  EXPECT_EQ(refusal(), "more than the tables of one element");
  tables.resize(tables.size() - 2);
  EXPECT_EQ(refusal(), "a table cut short");
  tables[1] = 1e6;
  EXPECT_EQ(refusal(), "a table cut short");
  tables.clear();
  EXPECT_EQ(refusal(), "a table cut short");
}

// Every host leaves the team, so that no other rank's agent waits for its messages.
TEST_P(ExchangeOnRanks, OneThatDiesIsDoneWithoutEverywhere) {
  const Thermo expected = after(100, small_box(Offload::none));
  for (const Dies when : {Dies::ordering, Dies::taking}) {
    ThreadRanks::run(GetParam(), [&](Ranks& ranks) {
      const bool dies = ranks.rank() == ranks.count() - 1;
      CoworkerLife life{.answers_left = dies ? 7 : std::numeric_limits<int>::max(), .when = when};
      Simulation simulation(exchanging(Exchange::agent, 1), ranks, std::make_unique<MortalCoworker>(life, &ranks));
      simulation.start();
      for (int step = 0; step < 100; ++step) simulation.step();
      expect_near(simulation.thermo(), expected);
      EXPECT_FALSE(simulation.has_coworker());
      EXPECT_TRUE(life.has_left);
      EXPECT_EQ(simulation.coworker_lost(), dies ? "it has died" : "another rank has lost its own");
      EXPECT_EQ(simulation.forces_by_coworker(), 7);
    });
  }
}

TEST(Exchange, AgentsThatDoNotMeetAreRefusedOrDoneWithout) {
  EXPECT_NE(refusal_of([] {
              ThreadRanks::run(2, [](Ranks& ranks) {
                Simulation simulation(exchanging(Exchange::agent), ranks, make_local_coworker());
                simulation.start();
              });
            }).find("--exchange agent: ranks need one agent, or agents of one group, and each agent as many workers"),
            std::string::npos);
  const Thermo expected = after(100, small_box(Offload::force, 5));
  ThreadRanks::run(2, [&](Ranks& ranks) {
    // One of them cannot, so no rank does.
    Simulation simulation(exchanging(Exchange::automatic), ranks,
                          make_local_coworker({}, ranks.rank() == 0 ? &ranks : nullptr));
    simulation.start();
    ExchangeChoice choice(simulation, ranks);
    for (int step = 0; step < 100; ++step) {
      simulation.step();
      choice.step_done(1e-3);
    }
    EXPECT_TRUE(choice.settled());
    expect_near(simulation.thermo(), expected);
    EXPECT_EQ(choice.verdict(), ranks.rank() == 0 ? "host (another rank's agent does not reach the others)"
                                                  : "host (there are no messages)");
  });
}

// A run whose mode is chosen does not wait for agents that it may not need.
TEST(Exchange, WithAutoTheyMeetWhenForcesElsewhereAreTried) {
  const Thermo expected = after(40, small_box(Offload::none));
  for (const bool reached : {true, false}) {
    ThreadRanks::run(2, [&](Ranks& ranks) {
      Settings settings = small_box(Offload::automatic);
      settings.exchange = Exchange::agent;
      Simulation simulation(settings, ranks, make_local_coworker({}, reached ? &ranks : nullptr));
      simulation.start();
      simulation.switch_to(Offload::list);
      for (int step = 0; step < 20; ++step) simulation.step();
      EXPECT_FALSE(simulation.coworkers_meet());
      EXPECT_EQ(simulation.coworkers_apart(), "");
      simulation.switch_to(Offload::force);
      for (int step = 0; step < 20; ++step) simulation.step();
      EXPECT_EQ(simulation.coworkers_meet(), reached);
      EXPECT_EQ(simulation.coworkers_apart(), reached ? "" : "there are no messages");
      EXPECT_EQ(simulation.exchange(), reached ? Exchange::agent : Exchange::host);
      EXPECT_EQ(simulation.forces_by_coworker(), 19);
      expect_near(simulation.thermo(), expected);
    });
  }
}

// Seconds of steps in each way are given; the slower rank counts.
TEST(Exchange, TheFasterWayIsKeptOnAllRanks) {
  for (const Exchange faster : {Exchange::host, Exchange::agent}) {
    const Thermo expected = after(200, small_box(Offload::force, 5));
    ThreadRanks::run(2, [&](Ranks& ranks) {
      Simulation simulation(exchanging(Exchange::automatic), ranks, make_local_coworker({}, &ranks));
      simulation.start();
      ExchangeChoice choice(simulation, ranks);
      std::map<Exchange, int> taken;
      std::int64_t forces = 0;
      for (int step = 0; step < 200; ++step) {
        const Exchange way = simulation.exchange();
        simulation.step();
        const bool lists = simulation.forces_by_coworker() > forces;
        forces = simulation.forces_by_coworker();
        taken[way] += lists;
        // Rank 0 alone would choose the other way.
        const double seconds = (way == faster) == (ranks.rank() == 1) ? 2e-3 : 3e-3;
        if (lists) choice.step_done((ranks.rank() == 1 ? 2 : 1) * seconds);
      }
      EXPECT_EQ(simulation.exchange(), faster) << choice.verdict();
      EXPECT_EQ(taken[faster == Exchange::host ? Exchange::agent : Exchange::host], 6);
      EXPECT_EQ(taken[faster], 40 - 6);
      EXPECT_NE(choice.verdict().find(faster == Exchange::host ? "host 4, agent 6" : "host 6, agent 4"),
                std::string::npos)
          << choice.verdict();
      expect_near(simulation.thermo(), expected);
    });
  }
}

// ---- inputs of an agent from its program

class FlatHalo : public testing::Test {
 protected:
  FlatHalo() : simulation_(small_box(Offload::none), ranks_) {
    simulation_.start();
    Halo halo(simulation_.domain(), ranks_, 2.8);
    atoms_.resize(0);
    for (std::size_t i = 0; i < simulation_.atoms().own; ++i)
      atoms_.add(simulation_.atoms().id[i], 0, simulation_.atoms().x.data() + values * i,
                 simulation_.atoms().v.data() + values * i);
    halo.make(atoms_);
    halo.swaps().flatten(flat_);
  }
  HaloSwaps read() { return HaloSwaps::from_flat(flat_.data(), flat_.size(), atoms_.own, atoms_.all(), ranks_); }
  static constexpr std::size_t first_head = 1, head_words = 10, swaps = 6;
  OneRank ranks_;
  Simulation simulation_;
  Atoms atoms_;
  Array<std::uint32_t> flat_;
};

TEST_F(FlatHalo, UpdatesTheSameGhosts) {
  Array<double> x;
  x.resize(values * atoms_.all());
  std::copy_n(atoms_.x.data(), values * atoms_.own, x.data());
  std::fill(x.begin() + values * atoms_.own, x.end(), -1);
  read().update_positions(ranks_, x.data());
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_EQ(x[n], atoms_.x[n]) << n;
}

TEST_F(FlatHalo, IsRefusedIfItNamesWhatDoesNotExist) {
  struct Wrong {
    std::size_t word;
    std::uint32_t value;
    std::string refusal;
  };
  const std::size_t first_sent = first_head + swaps * head_words;
  for (const Wrong& wrong : {
           Wrong{0, 5000, "a halo cut short"},
           Wrong{first_head, 3, "a halo with a rank that does not exist"},
           Wrong{first_head + 1, 1, "a halo with a rank that does not exist"},
           Wrong{first_head + 2, 7, "a halo with a rank that does not exist"},
           Wrong{first_head + 6, flat_[first_head + 6] + 1, "a halo of other atoms"},
           Wrong{first_head + 8, flat_[first_head + 8] - 1, "a halo of other atoms"},
           Wrong{first_sent, static_cast<std::uint32_t>(atoms_.own), "a halo of atoms that do not exist"},
           Wrong{first_sent, ~0U, "a halo of atoms that do not exist"},
       }) {
    const std::uint32_t before = std::exchange(flat_[wrong.word], wrong.value);
    EXPECT_EQ(refusal_of([&] { read(); }), wrong.refusal) << wrong.word << " " << wrong.value;
    flat_[wrong.word] = before;
  }
  EXPECT_EQ(refusal_of([&] { read(); }), "");
  flat_.resize(flat_.size() - 1);
  EXPECT_EQ(refusal_of([&] { read(); }), "a halo of other atoms");
  flat_.resize(0);
  EXPECT_EQ(refusal_of([&] { read(); }), "a halo cut short");
}

TEST(ExchangedForces, PlacesOfOtherAtomsAreRefused) {
  OneRank ranks;
  ExchangedForces forces;
  const Array<double> nothing;
  HaloSwaps halo;
  const PairList empty{0, 0, nullptr, nullptr, nullptr};
  ExchangeArguments arguments;
  arguments.step = 1;
  forces.compute(arguments, {&empty, 1}, halo, nothing.data(), {}, ranks);
  EXPECT_EQ(refusal_of([&] { forces.put_in_order({1}, {}, nullptr); }), "");
  EXPECT_NE(refusal_of([&] { forces.put_in_order({2}, {}, nullptr); }).find("not here"), std::string::npos);
  std::array<double, values> f{};
  for (const Place place : {Place{0, 0}, Place{0, -1}, Place{1, 0}}) {
    EXPECT_EQ(refusal_of([&] { forces.put_in_order({1}, {&place, 1}, f.data()); }),
              "forces took a different way than their atoms");
  }
}

}  // namespace
}  // namespace md
