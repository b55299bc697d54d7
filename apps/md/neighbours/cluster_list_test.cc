// Compares lists of clusters with a search of all pairs, and their forces with those of lists of pairs.
#include "md/neighbours/cluster_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "md/files/temporary_file.h"
#include "md/simulation.h"

namespace md {
namespace {

constexpr double cut = 2.8;

std::vector<const Kernels*> all_kernels() {
  std::size_t count = 0;
  const Kernels* const* available = available_kernels(count);
  return {available, available + count};
}

// Aligned, as kernels need it; kernels must overwrite the values, not add to them.
Array<double> sevens(std::size_t count) {
  Array<double> array;
  array.resize(count);
  std::fill(array.begin(), array.end(), 7);
  return array;
}

// Random atoms in a periodic box, with ghosts, as input for lists.
struct Gas {
  OneRank ranks;
  Domain domain;
  Atoms atoms;
  std::unique_ptr<Bins> bins;

  Gas(std::size_t count, std::array<double, 3> lengths) {
    Box whole;
    for (std::size_t d = 0; d < 3; ++d) whole.high[d] = lengths[d];
    domain = make_domain(whole, 1, 0);
    std::mt19937 random(static_cast<unsigned>(count));
    for (std::size_t i = 0; i < count; ++i) {
      std::array<double, 3> x{};
      const std::array<double, 3> v{};
      for (std::size_t d = 0; d < 3; ++d) x[d] = std::uniform_real_distribution<double>(0, lengths[d])(random);
      atoms.add(static_cast<std::int32_t>(i + 1), 0, x.data(), v.data());
    }
    bins = std::make_unique<Bins>(domain.own, cut);
    bins->sort(atoms);
    Halo halo(domain, ranks, cut);
    halo.make(atoms);
    bins->note_positions(atoms);
  }

  [[nodiscard]] std::multiset<std::pair<std::size_t, std::size_t>> near(double distance) const {
    std::multiset<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t i = 0; i < atoms.own; ++i) {
      for (std::size_t j = 0; j < atoms.all(); ++j) {
        double squared = 0;
        for (std::size_t d = 0; d < 3; ++d)
          squared += (atoms.x[4 * i + d] - atoms.x[4 * j + d]) * (atoms.x[4 * i + d] - atoms.x[4 * j + d]);
        if (i != j && squared <= distance * distance) pairs.emplace(i, j);
      }
    }
    return pairs;
  }
  [[nodiscard]] std::multiset<std::pair<std::size_t, std::size_t>> listed(const Kernels& kernels, int threads,
                                                                          Precision precision) const {
    NeighbourList list;
    build_clusters(*bins, cut, threads, kernels, list, precision);
    EXPECT_TRUE(list.blocks.empty());
    std::multiset<std::pair<std::size_t, std::size_t>> pairs;
    list.clusters.each_pair([&](std::size_t i, std::size_t j) { pairs.emplace(i, j); });
    return pairs;
  }
};

struct Shape {
  std::size_t atoms;
  std::array<double, 3> lengths;
};
// One atom and no atom; odd numbers; a box narrower than the cut-off, where an atom is its own neighbour; empty rows.
const std::vector<Shape> shapes{{0, {9, 9, 9}},   {1, {9, 9, 9}},   {1, {2, 2, 2}},   {7, {3, 3, 3}},
                                {61, {3, 11, 7}}, {333, {9, 7, 8}}, {30, {40, 30, 5}}};

TEST(ClusterLists, HoldEveryPairThatIsNearOnceFromEachSide) {
  for (const Shape& shape : shapes) {
    const Gas gas(shape.atoms, shape.lengths);
    const auto expected = gas.near(cut);
    for (const Kernels* kernels : all_kernels()) {
      for (const int threads : {1, 3})
        EXPECT_EQ(gas.listed(*kernels, threads, Precision::whole), expected) << kernels->name << " " << shape.atoms;
    }
  }
}

TEST(ClusterLists, InSinglePrecisionDifferAtTheCutOffOnly) {
  constexpr double rounding = 1e-4;
  for (const Shape& shape : shapes) {
    const Gas gas(shape.atoms, shape.lengths);
    const auto least = gas.near(cut - rounding), most = gas.near(cut + rounding);
    for (const Kernels* kernels : all_kernels()) {
      const auto found = gas.listed(*kernels, 2, Precision::mixed);
      EXPECT_TRUE(std::ranges::includes(found, least)) << kernels->name << " " << shape.atoms;
      EXPECT_TRUE(std::ranges::includes(most, found)) << kernels->name << " " << shape.atoms;
    }
  }
}

TEST(ClusterLists, AreWholePacksLong) {
  const Gas gas(333, {9, 7, 8});
  NeighbourList list;
  build_clusters(*gas.bins, cut, 2, choose_kernels("scalar"), list, Precision::whole);
  std::size_t atoms = 0;
  for (const std::uint8_t count : list.clusters.counts) atoms += count;
  EXPECT_EQ(atoms, gas.atoms.own);
  for (const ClusterBlock& block : list.clusters.blocks) {
    for (const std::uint64_t begin : block.begin) EXPECT_EQ(begin % cluster_unit, 0U);
    for (const std::int32_t atom : block.neighbours) EXPECT_LT(static_cast<std::size_t>(atom), gas.atoms.all());
  }
}

// A liquid with an odd number of atoms in each row.
class ClusterForces : public testing::Test {
 protected:
  ClusterForces() : simulation_(settings(), ranks_) {
    simulation_.start();
    for (int step = 0; step < 150; ++step) simulation_.step();
  }
  static Settings settings() {
    Settings settings;
    settings.cells = {5, 6, 7};
    settings.kernels = "scalar";
    settings.lists = Lists::clusters;
    return settings;
  }
  // Computed pair by pair.
  [[nodiscard]] PairSums reference(std::vector<double>& f) const {
    const Atoms& atoms = simulation_.atoms();
    f.assign(4 * atoms.own, 0);
    PairSums sums;
    simulation_.list().clusters.each_pair([&](std::size_t i, std::size_t j) {
      std::array<double, 3> apart{};
      double squared = 0;
      for (std::size_t d = 0; d < 3; ++d) {
        apart[d] = atoms.x[4 * i + d] - atoms.x[4 * j + d];
        squared += apart[d] * apart[d];
      }
      if (squared >= 6.25) return;
      const double inverse6 = 1 / (squared * squared * squared), force = 24 * inverse6 * (2 * inverse6 - 1) / squared;
      for (std::size_t d = 0; d < 3; ++d) f[4 * i + d] += force * apart[d];
      sums.energy += 2 * inverse6 * (inverse6 - 1);
      sums.virial += 0.5 * force * squared;
    });
    return sums;
  }

  OneRank ranks_;
  Simulation simulation_;
};

TEST_F(ClusterForces, AgreeWhateverTheInstructionSet) {
  const Atoms& atoms = simulation_.atoms();
  const ClusterLists list = simulation_.list().clusters.view(0);
  std::vector<double> expected;
  const PairSums sums = reference(expected);
  for (const Kernels* kernels : all_kernels()) {
    Array<double> found = sevens(4 * atoms.own), without = sevens(4 * atoms.own);
    const PairSums other = kernels->lj_clusters_with_sums({}, list, atoms.x.data(), found.data());
    EXPECT_NEAR(other.energy, sums.energy, 1e-10 * std::abs(sums.energy)) << kernels->name;
    EXPECT_NEAR(other.virial, sums.virial, 1e-9 * std::abs(sums.virial) + 1e-8) << kernels->name;
    for (std::size_t n = 0; n < expected.size(); ++n)
      ASSERT_NEAR(found[n], expected[n], 1e-10) << kernels->name << " " << n;
    kernels->lj_clusters({}, list, atoms.x.data(), without.data());
    EXPECT_TRUE(std::ranges::equal(without, found)) << kernels->name << ": the same bits without sums";
  }
}

TEST_F(ClusterForces, AgreeToSixDigitsInSinglePrecision) {
  const Atoms& atoms = simulation_.atoms();
  const ClusterLists list = simulation_.list().clusters.view(0);
  Array<float> x;
  x.resize(4 * atoms.all());
  for (std::size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(atoms.x[n]);
  std::vector<double> expected;
  const PairSums sums = reference(expected);
  for (const Kernels* kernels : all_kernels()) {
    Array<double> found = sevens(4 * atoms.own), without = sevens(4 * atoms.own);
    const PairSums mixed = kernels->lj_clusters_mixed_with_sums({}, list, x.data(), found.data());
    EXPECT_NEAR(mixed.energy, sums.energy, 1e-5 * std::abs(sums.energy)) << kernels->name;
    EXPECT_NEAR(mixed.virial, sums.virial, 1e-3 * std::abs(sums.energy)) << kernels->name;
    double largest = 0, error = 0;
    for (std::size_t n = 0; n < expected.size(); ++n) {
      largest = std::max(largest, std::abs(expected[n]));
      error = std::max(error, std::abs(found[n] - expected[n]));
    }
    EXPECT_LT(error, 1e-4 * largest) << kernels->name;
    kernels->lj_clusters_mixed({}, list, x.data(), without.data());
    EXPECT_TRUE(std::ranges::equal(without, found)) << kernels->name << ": the same bits without sums";
  }
}

TEST(KindOfLists, IsTheFasterOneUnlessSaid) {
  Settings settings;
  EXPECT_EQ(kind_of_lists(settings), Lists::pairs);
  settings.precision = Precision::mixed;
  EXPECT_EQ(kind_of_lists(settings), Lists::clusters);
  settings.offload = Offload::list;
  EXPECT_EQ(kind_of_lists(settings), Lists::pairs);
  settings.offload = Offload::none;
  settings.lists = Lists::pairs;
  EXPECT_EQ(kind_of_lists(settings), Lists::pairs);
  OneRank ranks;
  settings.cells = {4, 4, 4};
  Simulation pairs(settings, ranks);
  pairs.start();
  EXPECT_TRUE(pairs.list().clusters.blocks.empty());
  settings.lists = Lists::automatic;
  Simulation clusters(settings, ranks);
  clusters.start();
  EXPECT_TRUE(clusters.list().blocks.empty());
  EXPECT_EQ(clusters.list().clusters.blocks.size(), 1U);
}

TEST(KindOfLists, OfClustersIsRefusedWhereThereAreNone) {
  Settings settings;
  settings.lists = Lists::clusters;
  settings.potential = Potential::eam;
  EXPECT_EQ(refusal_of([&] { kind_of_lists(settings); }),
            "--lists clusters supports Lennard-Jones only; EAM needs --lists pairs");
  settings.potential = Potential::lj;
  for (const Offload mode : {Offload::force, Offload::list, Offload::automatic}) {
    settings.offload = mode;
    EXPECT_EQ(refusal_of([&] { kind_of_lists(settings); }),
              "--lists clusters: an agent works with lists of pairs; --offload needs --lists pairs");
  }
}

TEST(KindOfLists, OfClustersIsRefusedBeforeARunBegins) {
  OneRank ranks;
  Settings settings;
  settings.cells = {4, 4, 4};
  settings.lists = Lists::clusters;
  settings.offload = Offload::list;
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("--offload needs --lists pairs"), std::string::npos);
}

TEST(KindOfLists, OfClustersFindsAtomsThatOverlap) {
  const TemporaryFile data(
      "x\n\n3 atoms\n1 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nAtoms\n\n1 1 1 1 1\n2 1 5 5 5\n3 1 5 5 "
      "5.0000001\n");
  Settings settings;
  settings.data_file = data.path();
  settings.lists = Lists::clusters;
  OneRank ranks;
  Simulation simulation(settings, ranks);
  EXPECT_EQ(refusal_of([&] { simulation.start(); }), "atom 2 and atom 3 overlap: they are 0.000000 apart");
}

}  // namespace
}  // namespace md
