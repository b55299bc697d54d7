#include "md/files/restart.h"

#include <gtest/gtest.h>

#include <tuple>

#include "md/files/temporary_file.h"
#include "md/ranks/thread_ranks.h"
#include "md/simulation.h"
#include "md/test_metal.h"

namespace md {
namespace {

Settings box() {
  Settings settings;
  settings.cells = {6, 6, 6};
  return settings;
}

std::vector<double> bits_of(Simulation& simulation) {
  simulation.complete_step();
  std::vector<double> all(simulation.atoms().x.begin(), simulation.atoms().x.begin() + 4 * simulation.atoms().own);
  all.insert(all.end(), simulation.atoms().v.begin(), simulation.atoms().v.end());
  for (const std::int32_t id : simulation.atoms().id) all.push_back(id);
  return all;
}

TEST(Restart, GoesOnToTheSameBitsFromAnyStep) {
  for (const auto& [trigger, lists, precision] : {std::tuple{Trigger::interval, Lists::pairs, Precision::whole},
                                                  {Trigger::displacement, Lists::pairs, Precision::whole},
                                                  {Trigger::interval, Lists::clusters, Precision::whole},
                                                  {Trigger::displacement, Lists::clusters, Precision::mixed}}) {
    for (const int stop : {20, 33}) {
      Settings settings = box();
      settings.lists = lists;
      settings.precision = precision;
      settings.trigger = trigger;
      settings.interval = trigger == Trigger::interval ? 20 : 1;
      const TemporaryFile file;
      OneRank ranks;
      Simulation whole(settings, ranks);
      whole.start();
      for (int step = 0; step < 90; ++step) {
        whole.step();
        if (whole.steps_done() == stop) whole.save(file.path());
      }
      settings.resume_file = file.path();
      Simulation resumed(settings, ranks);
      resumed.start();
      EXPECT_EQ(resumed.steps_done(), stop);
      while (resumed.steps_done() < 90) resumed.step();
      EXPECT_EQ(bits_of(whole), bits_of(resumed)) << stop;
    }
  }
}

// A run of 60 steps, and one that goes on from its step 33. Leaves the settings of the latter.
void expect_the_same_bits(Settings& settings, const TemporaryFile& file, Ranks& ranks) {
  Simulation whole(settings, ranks);
  whole.start();
  for (int step = 0; step < 60; ++step) {
    whole.step();
    if (whole.steps_done() == 33) whole.save(file.path());
  }
  settings.resume_file = file.path();
  Simulation resumed(settings, ranks);
  resumed.start();
  while (resumed.steps_done() < 60) resumed.step();
  EXPECT_EQ(bits_of(whole), bits_of(resumed));
}

TEST(Restart, AThermostatGoesOnToTheSameBits) {
  Settings settings = box();
  settings.nvt_temperature = 0.9;
  const TemporaryFile file;
  OneRank ranks;
  expect_the_same_bits(settings, file, ranks);
}

// Types and masses are not in the restart file.
TEST(Restart, TypesAndMassesComeFromTheDataFile) {
  const TemporaryFile data(
      "x\n\n4 atoms\n2 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nMasses\n\n1 2\n2 5\n\n"
      "Pair Coeffs\n\n1 1 1\n2 0.5 1.1\n\nAtoms\n\n1 1 1 1 1\n2 2 2 1 1\n3 1 1 2.1 1\n4 2 8 8 8.5\n");
  Settings settings;
  settings.data_file = data.path();
  const TemporaryFile file;
  OneRank ranks;
  expect_the_same_bits(settings, file, ranks);
  settings.mixing = Mixing::arithmetic;
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("written with other forces"), std::string::npos);
  settings.data_file.clear();
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("name what gave them: the data file"),
            std::string::npos);
}

// Also with one type: without its data file a run would use the mass and the pairs of the options.
TEST(Restart, OtherPhysicsIsRefusedOnAnyNumberOfRanks) {
  const TemporaryFile data(
      "x\n\n2 atoms\n1 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nMasses\n\n1 2\n\n"
      "Pair Coeffs\n\n1 0.5 1.1\n\nAtoms\n\n1 1 1 1 1\n2 1 2 1 1\n");
  Settings written;
  written.data_file = data.path();
  const TemporaryFile file;
  OneRank one;
  Simulation run(written, one);
  run.start();
  run.save(file.path());
  written.resume_file = file.path();
  for (const int count : {1, 2}) {
    const auto refusal_with = [&](const auto& change) {
      Settings settings = written;
      change(settings);
      return refusal_of(
          [&] { ThreadRanks::run(count, [&](Ranks& ranks) { const Simulation resumed(settings, ranks); }); });
    };
    EXPECT_EQ(refusal_with([](Settings&) {}), "") << count;
    const auto refused = [&](const std::string& why, const auto& change) {
      EXPECT_NE(refusal_with(change).find(why), std::string::npos) << count << why << refusal_with(change);
    };
    const auto without_data = [](Settings& s, double mass, double epsilon) {
      s.data_file.clear();
      s.mass = mass;
      s.epsilon = epsilon;
      s.sigma = 1.1;
    };
    refused("written with other forces", [&](Settings& s) { without_data(s, 2, 1); });
    refused("written with other masses", [&](Settings& s) { without_data(s, 1, 0.5); });
    refused("written with other masses", [](Settings& s) { s.units = metal_units; });
    refused("written with cut-off", [](Settings& s) { s.cut = 2; });
    refused("written with time step", [](Settings& s) { s.time_step = 0.001; });
    refused("written with mixed precision", [](Settings& s) { s.precision = Precision::mixed; });
  }
}

TEST(Restart, AnotherTableIsRefused) {
  Settings settings = box();
  settings.cells = {4, 4, 4};
  settings.potential = Potential::eam;
  settings.units = metal_units;
  settings.density = 4 / (3.6 * 3.6 * 3.6);
  const std::string table = funcfl();
  const TemporaryFile first(table), file;
  settings.potential_file = first.path();
  OneRank ranks;
  Simulation run(settings, ranks);
  run.start();
  run.save(file.path());
  settings.resume_file = file.path();
  EXPECT_EQ(refusal_of([&] { Simulation(settings, ranks); }), "");
  std::string other = table;
  const std::size_t digit = other.find_last_of("123456789");
  other[digit] = other[digit] == '9' ? '8' : '9';
  const TemporaryFile second(other);
  settings.potential_file = second.path();
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("written with other forces"), std::string::npos);
}

TEST(Thermostat, OneAtomIsRefused) {
  const TemporaryFile data(
      "x\n\n1 atoms\n1 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nAtoms\n\n1 1 1 1 1\n\nVelocities\n\n"
      "1 0 0 0\n");
  Settings settings;
  settings.data_file = data.path();
  OneRank ranks;
  EXPECT_EQ(refusal_of([&] { Simulation(settings, ranks); }), "");
  settings.nvt_temperature = 1;
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("--nvt: "), std::string::npos);
}

// The order of sums differs, nothing else.
TEST(Restart, GoesOnOnAnotherNumberOfRanks) {
  Settings settings = box();
  settings.interval = 1;
  settings.trigger = Trigger::displacement;
  const TemporaryFile file;
  Thermo expected;
  ThreadRanks::run(2, [&](Ranks& ranks) {
    Simulation whole(settings, ranks);
    whole.start();
    for (int step = 0; step < 90; ++step) {
      whole.step();
      if (whole.steps_done() == 33) whole.save(file.path());
    }
    const Thermo end = whole.thermo();
    if (ranks.rank() == 0) expected = end;
  });
  settings.resume_file = file.path();
  for (const int count : {1, 3, 4}) {
    ThreadRanks::run(count, [&](Ranks& ranks) {
      Simulation resumed(settings, ranks);
      resumed.start();
      EXPECT_EQ(resumed.steps_done(), 33);
      while (resumed.steps_done() < 90) resumed.step();
      const Thermo end = resumed.thermo();
      EXPECT_NEAR(end.temperature, expected.temperature, 1e-9) << count;
      EXPECT_NEAR(end.energy, expected.energy, 1e-9) << count;
    });
  }
}

TEST(Restart, AnotherRunIsRefused) {
  const TemporaryFile file;
  OneRank ranks;
  Simulation run(box(), ranks);
  run.start();
  run.save(file.path());
  Settings settings = box();
  settings.resume_file = file.path();
  settings.skin = 0.4;
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("written with skin 0.300000, this run has 0.400000"),
            std::string::npos);
  settings.skin = 0.3;
  settings.kernels = "scalar";
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("written with the kernels"), std::string::npos);
}

TEST(Restart, AnotherKindOfListIsRefused) {
  OneRank ranks;
  for (const Lists lists : {Lists::pairs, Lists::clusters}) {
    const TemporaryFile file;
    Settings settings = box();
    settings.lists = lists;
    Simulation run(settings, ranks);
    run.start();
    run.save(file.path());
    settings.resume_file = file.path();
    EXPECT_EQ(refusal_of([&] { Simulation(settings, ranks); }), "");
    settings.lists = lists == Lists::pairs ? Lists::clusters : Lists::pairs;
    EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("written with lists of clusters "),
              std::string::npos);
  }
}

TEST(Restart, ADamagedFileIsRefused) {
  const TemporaryFile file;
  OneRank ranks;
  Simulation run(box(), ranks);
  run.start();
  run.save(file.path());
  const std::string good = file.read();
  ASSERT_GT(good.size(), 864U * 80);
  for (const std::size_t keep : {std::size_t{0}, std::size_t{5}, std::size_t{20}, good.size() / 2, good.size() - 1}) {
    file.write(good.substr(0, keep));
    EXPECT_NE(refusal_of([&] { read_restart(file.path()); }), "") << keep;
  }
  std::string bad = good;
  bad[bad.size() / 2] ^= 1;
  file.write(bad);
  EXPECT_NE(refusal_of([&] { read_restart(file.path()); }).find("checksum"), std::string::npos);
  EXPECT_EQ(refusal_of([&] { read_restart("/nowhere/x"); }), "/nowhere/x: cannot be read");
}

}  // namespace
}  // namespace md
