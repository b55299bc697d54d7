// Compares every instruction set with the scalar one, on a liquid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "md/files/temporary_file.h"
#include "md/forces/eam_forces.h"
#include "md/simulation.h"
#include "md/test_metal.h"

namespace md {
namespace {

class KernelsTest : public testing::Test {
 protected:
  KernelsTest() : simulation_(settings(), ranks_) {
    simulation_.start();
    for (int step = 0; step < 150; ++step) simulation_.step();
  }
  static Settings settings() {
    Settings settings;
    settings.cells = {6, 7, 8};
    settings.kernels = "scalar";
    return settings;
  }
  static std::vector<const Kernels*> others() {
    std::size_t count = 0;
    const Kernels* const* available = available_kernels(count);
    return {available, available + count};
  }

  OneRank ranks_;
  Simulation simulation_;
};

TEST_F(KernelsTest, ForcesAgree) {
  const Atoms& atoms = simulation_.atoms();
  const PairList list = simulation_.list().blocks[0].view();
  std::vector<double> expected(4 * atoms.own);
  const PairSums sums = choose_kernels("scalar").lj_with_sums({}, list, atoms.x.data(), expected.data());
  for (const Kernels* kernels : others()) {
    Array<double> found;
    found.resize(4 * atoms.own);
    const PairSums other = kernels->lj_with_sums({}, list, atoms.x.data(), found.data());
    EXPECT_NEAR(other.energy, sums.energy, 1e-10 * std::abs(sums.energy)) << kernels->name;
    EXPECT_NEAR(other.virial, sums.virial, 1e-9 * std::abs(sums.virial) + 1e-8) << kernels->name;
    for (std::size_t n = 0; n < expected.size(); ++n)
      ASSERT_NEAR(found[n], expected[n], 1e-10) << kernels->name << " " << n;
    Array<double> without;
    without.resize(4 * atoms.own);
    kernels->lj({}, list, atoms.x.data(), without.data());
    for (std::size_t n = 0; n < expected.size(); ++n) ASSERT_EQ(without[n], found[n]) << "the same bits without sums";
  }
}

TEST_F(KernelsTest, ForcesInSinglePrecisionAgreeToSixDigits) {
  const Atoms& atoms = simulation_.atoms();
  const PairList list = simulation_.list().blocks[0].view();
  Array<float> x;
  x.resize(4 * atoms.all());
  for (std::size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(atoms.x[n]);
  Array<double> expected, found;
  expected.resize(4 * atoms.own);
  found.resize(4 * atoms.own);
  const PairSums sums = choose_kernels("scalar").lj_with_sums({}, list, atoms.x.data(), expected.data());
  for (const Kernels* kernels : others()) {
    const PairSums mixed = kernels->lj_mixed_with_sums({}, list, x.data(), found.data());
    EXPECT_NEAR(mixed.energy, sums.energy, 1e-5 * std::abs(sums.energy)) << kernels->name;
    double largest = 0, error = 0;
    for (std::size_t n = 0; n < expected.size(); ++n) {
      largest = std::max(largest, std::abs(expected[n]));
      error = std::max(error, std::abs(found[n] - expected[n]));
    }
    EXPECT_LT(error, 1e-4 * largest) << kernels->name;
  }
}

TEST_F(KernelsTest, ListsHoldWhoIsNearAndNobodyElse) {
  const Atoms& atoms = simulation_.atoms();
  const double cut = 2.8;
  Bins bins(simulation_.domain().own, cut);
  Atoms copy;
  for (std::size_t i = 0; i < atoms.own; ++i) copy.add(atoms.id[i], 0, &atoms.x[4 * i], &atoms.v[4 * i]);
  bins.sort(copy);
  Halo halo(simulation_.domain(), ranks_, cut);
  halo.make(copy);
  bins.note_positions(copy);
  for (const bool half : {true, false}) {
    for (const int threads : {1, 3}) {
      for (const Kernels* kernels : others()) {
        NeighbourList list;
        build_list(bins, copy.own, cut, half, threads, *kernels, list);
        for (const NeighbourBlock& block : list.blocks) {
          for (std::size_t i = block.first; i < block.last; ++i) {
            std::vector<std::int32_t> expected, found(block.neighbours.begin() + block.begin[i - block.first],
                                                      block.neighbours.begin() + block.begin[i - block.first + 1]);
            for (std::size_t j = 0; j < copy.all(); ++j) {
              const bool mutual = half && j >= block.first && j < block.last;
              if (j == i || (mutual && j < i)) continue;
              double squared = 0;
              for (std::size_t d = 0; d < 3; ++d)
                squared += (copy.x[4 * i + d] - copy.x[4 * j + d]) * (copy.x[4 * i + d] - copy.x[4 * j + d]);
              if (squared <= cut * cut) expected.push_back(static_cast<std::int32_t>(j));
            }
            const auto mutual_end = found.begin() + block.mutual[i - block.first];
            for (auto at = found.begin(); at != found.end(); ++at) {
              const auto j = static_cast<std::size_t>(*at);
              ASSERT_EQ(at < mutual_end, half && j >= block.first && j < block.last) << kernels->name;
            }
            std::sort(found.begin(), found.end());
            ASSERT_EQ(found, expected) << kernels->name << " atom " << i << (half ? " half" : " full");
          }
        }
      }
    }
  }
}

TEST_F(KernelsTest, ListsInSinglePrecisionDifferAtTheCutOffOnly) {
  const Atoms& atoms = simulation_.atoms();
  Bins bins(simulation_.domain().own, 2.8);
  Atoms copy;
  for (std::size_t i = 0; i < atoms.own; ++i) copy.add(atoms.id[i], 0, &atoms.x[4 * i], &atoms.v[4 * i]);
  bins.sort(copy);
  Halo halo(simulation_.domain(), ranks_, 2.8);
  halo.make(copy);
  bins.note_positions(copy);
  const auto neighbours = [&](const Kernels& kernels, double cut, bool half, Precision precision) {
    NeighbourList list;
    build_list(bins, copy.own, cut, half, 2, kernels, list, precision);
    std::vector<std::set<std::int32_t>> all;
    for (const NeighbourBlock& block : list.blocks)
      for (std::size_t i = 0; i < block.last - block.first; ++i)
        all.emplace_back(block.neighbours.begin() + block.begin[i], block.neighbours.begin() + block.begin[i + 1]);
    return all;
  };
  constexpr double cut = 2.7, rounding = 1e-4;
  for (const Kernels* each : others()) {
    for (const bool half : {true, false}) {
      const auto least = neighbours(*each, cut - rounding, half, Precision::whole),
                 most = neighbours(*each, cut + rounding, half, Precision::whole);
      const auto found = neighbours(*each, cut, half, Precision::mixed);
      ASSERT_EQ(found.size(), copy.own);
      for (std::size_t i = 0; i < copy.own; ++i) {
        ASSERT_TRUE(std::ranges::includes(found[i], least[i])) << each->name << " atom " << i;
        ASSERT_TRUE(std::ranges::includes(most[i], found[i])) << each->name << " atom " << i;
      }
    }
  }
}

TEST(Kernels, OneThatIsNotThereIsRefusedWithThoseThatAre) {
  const std::string said = refusal_of([] { choose_kernels("altivec"); });
  EXPECT_EQ(said.rfind("no kernels for 'altivec' on this processor", 0), 0U) << said;
  EXPECT_NE(said.find("scalar"), std::string::npos);
}

TEST(Forces, AreTheSlopeOfTheEnergy) {
  Settings settings;
  settings.cells = {5, 5, 5};
  OneRank ranks;
  Simulation simulation(settings, ranks);
  simulation.start();
  for (int step = 0; step < 30; ++step) simulation.step();
  const Atoms& atoms = simulation.atoms();
  const PairList list = simulation.list().blocks[0].view();
  Array<double> x, f;
  x.resize(4 * atoms.all());
  std::copy(atoms.x.begin(), atoms.x.end(), x.begin());
  f.resize(4 * atoms.own);
  // An atom in the middle, without ghosts nearby: the fifth of ten bins along an axis.
  std::size_t atom = 0;
  const double middle = simulation.domain().whole.length(0) / 2;
  const auto from_middle = [&](std::size_t i) {
    return std::hypot(x[4 * i] - middle, x[4 * i + 1] - middle, x[4 * i + 2] - middle);
  };
  for (std::size_t i = 1; i < atoms.own; ++i) {
    if (from_middle(i) < from_middle(atom)) atom = i;
  }
  const double step = 1e-5;
  for (std::size_t d = 0; d < 3; ++d) {
    const double there = x[4 * atom + d];
    x[4 * atom + d] = there + step;
    const double more = choose_kernels("auto").lj_with_sums({}, list, x.data(), f.data()).energy;
    x[4 * atom + d] = there - step;
    const double less = choose_kernels("auto").lj_with_sums({}, list, x.data(), f.data()).energy;
    x[4 * atom + d] = there;
    choose_kernels("auto").lj({}, list, x.data(), f.data());
    EXPECT_NEAR(f[4 * atom + d], (less - more) / (2 * step), 1e-4);
  }
}

// The vectors of every set beside the loops for several elements, with half lists and full ones.
TEST(EamKernels, AgreeWithTheLoopsForSeveralElements) {
  const TemporaryFile table(funcfl());
  const EamTables tables = read_eam_file(table.path());
  for (const bool half : {true, false}) {
    Settings settings;
    settings.cells = {5, 4, 6};
    settings.potential = Potential::eam;
    settings.units = metal_units;
    settings.potential_file = table.path();
    settings.density = 4 / (3.6 * 3.6 * 3.6);
    settings.temperature = 900;
    settings.skin = 0.5;
    settings.half = half;
    settings.time_step = 0.002;
    OneRank ranks;
    Simulation simulation(settings, ranks);
    simulation.start();
    for (int step = 0; step < 30; ++step) simulation.step();
    const Atoms& atoms = simulation.atoms();
    const PairList list = simulation.list().blocks[0].view();
    std::vector<double> densities(atoms.own), slope(atoms.all());
    Array<double> expected, found;
    expected.resize(values * atoms.own);
    found.resize(values * atoms.own);
    for (std::size_t i = 0; i < slope.size(); ++i) slope[i] = -0.1 - 0.01 * static_cast<double>(i % 7);
    eam_densities(tables, list, atoms.x.data(), atoms.type.data(), densities.data());
    const PairSums sums = eam_pairs(tables, list, atoms.x.data(), atoms.type.data(), slope.data(), expected.data());
    EamPairs one{tables.density[0].table(), tables.pair[0].table(), tables.cut, true};
    std::size_t count = 0;
    const Kernels* const* available = available_kernels(count);
    for (std::size_t k = 0; k < count; ++k) {
      for (const bool same_grid : {true, false}) {
        one.same_grid = same_grid;
        std::vector<double> other(atoms.own);
        std::vector<std::uint64_t> begin(atoms.own + 1);
        std::vector<std::int32_t> mutual(atoms.own), neighbours(list.begin[atoms.own] + 16);
        available[k]->eam_densities(one, list, atoms.x.data(), {begin.data(), mutual.data(), neighbours.data()},
                                    other.data());
        EXPECT_LT(begin[atoms.own], list.begin[atoms.own]);
        const PairList near{0, atoms.own, begin.data(), mutual.data(), neighbours.data()};
        for (std::size_t i = 0; i < atoms.own; ++i)
          ASSERT_NEAR(other[i], densities[i], 1e-12 * std::abs(densities[i])) << available[k]->name;
        const PairSums those = available[k]->eam_forces(one, near, atoms.x.data(), slope.data(), found.data());
        EXPECT_NEAR(those.energy, sums.energy, 1e-11 * std::abs(sums.energy)) << available[k]->name;
        EXPECT_NEAR(those.virial, sums.virial, 1e-10 * std::abs(sums.virial)) << available[k]->name;
        for (std::size_t n = 0; n < found.size(); ++n)
          ASSERT_NEAR(found[n], expected[n], 1e-11) << available[k]->name << " " << n;
      }
    }
  }
}

}  // namespace
}  // namespace md
