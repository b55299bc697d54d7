#include "md/files/options.h"

#include <gtest/gtest.h>

#include "md/files/temporary_file.h"
#include "md/simulation.h"

namespace md {
namespace {

Options read(std::vector<std::string> words) {
  words.insert(words.begin(), "offpath-md");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return read_options(pointers);
}

TEST(Options, GoOverTheInputFileWhereverItStands) {
  const TemporaryFile file("a\nb\nlj\nnone\nlj\n1 1\n4 4 4\n10\n0.005\n1.44\n0.8442\n20\n2.5 0.3\n100\n");
  const Settings settings = read({"-n", "7", "-i", file.path(), "--skin", "0.5", "-s", "5", "-ny", "6"}).settings;
  EXPECT_EQ(settings.steps, 7);
  EXPECT_EQ(settings.skin, 0.5);
  EXPECT_EQ(settings.cells, (std::array<int, 3>{5, 6, 5}));
  EXPECT_EQ(settings.temperature, 1.44);
}

TEST(Options, ChooseTheKindOfLists) {
  EXPECT_EQ(read({}).settings.lists, Lists::automatic);
  EXPECT_EQ(read({"--lists", "pairs"}).settings.lists, Lists::pairs);
  EXPECT_EQ(read({"--lists", "clusters"}).settings.lists, Lists::clusters);
  EXPECT_EQ(read({"--lists", "clusters", "--lists", "auto"}).settings.lists, Lists::automatic);
}

TEST(Options, ChooseWhoExchanges) {
  EXPECT_EQ(read({}).settings.exchange, Exchange::host);
  EXPECT_EQ(read({"--exchange", "agent"}).settings.exchange, Exchange::agent);
  EXPECT_EQ(read({"--exchange", "auto"}).settings.exchange, Exchange::automatic);
  EXPECT_EQ(refusal_of([] { read({"--exchange", "both"}); }), "--exchange both: expected host, agent or auto");
}

TEST(Options, OfMiniMDAreUnderstood) {
  const Settings settings =
      read({"--sort", "20", "--safe_exchange", "-n", "7", "--check_exchange", "-o", "0", "--yaml_screen", "-s", "5"})
          .settings;
  EXPECT_EQ(settings.steps, 7);
  EXPECT_EQ(settings.cells, (std::array<int, 3>{5, 5, 5}));
  EXPECT_TRUE(settings.safe_exchange);
  EXPECT_TRUE(settings.yaml_screen);
  EXPECT_FALSE(settings.yaml_file);
  EXPECT_TRUE(read({"--yaml_output", "1"}).settings.yaml_file);
  EXPECT_EQ(refusal_of([] { read({"-o", "x"}); }), "-o x: expected a whole number from 0 to 3");
  EXPECT_EQ(read({"-b", "10", "--neigh_bins", "-1", "-gn", "0", "--ghost_newton", "1", "--ntypes", "4", "--teams", "1",
                  "-sse", "0", "-s", "6"})
                .settings.cells,
            (std::array<int, 3>{6, 6, 6}));
  EXPECT_TRUE(read({"--half_neigh", "0", "--half_neigh", "-1"}).settings.half);
  EXPECT_FALSE(read({"--half_neigh", "0"}).settings.half);
  EXPECT_EQ(refusal_of([] { read({"-sse", "4"}); }), "-sse 4: expected 0: --kernels names the instruction set");
  EXPECT_EQ(refusal_of([] { read({"--num_gpus", "1"}); }), "--num_gpus: there are no kernels for GPUs");
  EXPECT_EQ(refusal_of([] { read({"-dm", "-n", "1"}); }), "-dm: there are no kernels for GPUs");
}

TEST(Options, OneSideAloneIsThatOfACubeAsInMiniMD) {
  const auto cells = [](std::vector<std::string> words) { return read(std::move(words)).settings.cells; };
  using Cells = std::array<int, 3>;
  EXPECT_EQ(cells({"-nx", "7"}), (Cells{7, 7, 7}));
  EXPECT_EQ(cells({"-nz", "9", "-nx", "7"}), (Cells{7, 7, 9}));
  EXPECT_EQ(cells({"-nx", "7", "--size", "5"}), (Cells{7, 5, 5}));
  EXPECT_EQ(cells({"--size", "5", "-nx", "7"}), (Cells{7, 5, 5}));
}

TEST(Options, BoundariesThatAreNotPeriodicAreRefusedByName) {
  EXPECT_EQ(refusal_of([] { read({"--boundary", "ppp"}); }), "");
  EXPECT_EQ(refusal_of([] { read({"--boundary", "pps"}); }),
            "--boundary pps: expected ppp: shrink-wrapped boxes are not supported");
  EXPECT_EQ(refusal_of([] { read({"--boundary", "ppf"}); }),
            "--boundary ppf: expected ppp: boxes are periodic along each axis");
}

TEST(Options, WrongOnesAreNamed) {
  EXPECT_EQ(refusal_of([] { read({"--lists", "cluster"}); }), "--lists cluster: expected auto, pairs or clusters");
  EXPECT_EQ(refusal_of([] { read({"--skinn", "1"}); }), "unknown option --skinn; --help lists them");
  EXPECT_EQ(refusal_of([] { read({"-n"}); }), "-n: its value is missing");
  EXPECT_EQ(refusal_of([] { read({"-n", "x"}); }), "-n x: expected a whole number from 0 to 1000000000");
  EXPECT_EQ(refusal_of([] { read({"--half_neigh", "2"}); }), "--half_neigh 2: expected 1 or 0");
  EXPECT_EQ(refusal_of([] { read({"--skin", "-1"}); }), "--skin -1: expected a number, 0.000000 at least");
}

TEST(BadRuns, OverlappingAtomsAreNamed) {
  const TemporaryFile data(
      "x\n\n3 atoms\n1 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nAtoms\n\n1 1 1 1 1\n2 1 5 5 5\n3 1 5 5 "
      "5.0000001\n");
  Settings settings;
  settings.data_file = data.path();
  OneRank ranks;
  Simulation simulation(settings, ranks);
  EXPECT_EQ(refusal_of([&] { simulation.start(); }), "atom 2 and atom 3 overlap: they are 0.000000 apart");
}

TEST(BadRuns, ATimeStepThatIsTooLargeIsNamed) {
  Settings settings;
  settings.cells = {5, 5, 5};
  settings.time_step = 0.5;
  OneRank ranks;
  Simulation simulation(settings, ranks);
  simulation.start();
  const std::string said = refusal_of([&] {
    for (int step = 0; step < 100; ++step) simulation.step();
  });
  EXPECT_NE(said.find("the time step is too large"), std::string::npos) << said;
}

}  // namespace
}  // namespace md
