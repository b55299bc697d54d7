#include "md/files/eam_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "md/files/temporary_file.h"
#include "md/simulation.h"
#include "md/test_metal.h"

namespace md {
namespace {

std::string setfl(int elements) {
  std::string text = "one\ntwo\nthree\n" + std::to_string(elements);
  for (int e = 0; e < elements; ++e) text += " E" + std::to_string(e);
  text += "\n200 0.2 301 0.01 3.0\n";
  for (int e = 0; e < elements; ++e) {
    text += "1 60.0 2.5 fcc\n";
    for (int k = 0; k < 200; ++k) text += std::to_string(-std::sqrt(0.2 * k)) + "\n";
    for (int k = 0; k < 301; ++k) text += std::to_string((1 + e) * (0.01 * k - 3) * (0.01 * k - 3) / 4) + "\n";
  }
  for (int pair = 0; pair < elements * (elements + 1) / 2; ++pair) {
    for (int k = 0; k < 301; ++k) text += std::to_string(14.3888 * (3 - 0.01 * k) * (3 - 0.01 * k)) + "\n";
  }
  return text;
}

TEST(EamFile, Funcfl) {
  const TemporaryFile file(funcfl());
  const EamTables tables = read_eam_file(file.path());
  EXPECT_EQ(tables.elements, 1U);
  EXPECT_EQ(tables.mass[0], 60);
  EXPECT_EQ(tables.cut, 3);
  EXPECT_NEAR(tables.embedding[0].at(10).value, -std::sqrt(10.0), 1e-5);
  EXPECT_NEAR(tables.embedding[0].at(10).slope, -0.5 / std::sqrt(10.0), 1e-4);
  EXPECT_NEAR(tables.density[0].at(2.005).value, 0.995 * 0.995 / 4, 1e-5);
  EXPECT_NEAR(tables.pair_of(0, 0).at(2).value, 27.2 * 0.529, 1e-4);
}

TEST(EamFile, SetflOfTwoElements) {
  const TemporaryFile file(setfl(2));
  const EamTables tables = read_eam_file(file.path());
  EXPECT_EQ(tables.elements, 2U);
  EXPECT_EQ(tables.name, (std::vector<std::string>{"E0", "E1"}));
  EXPECT_NEAR(tables.density[1].at(1).value, 2, 1e-5);
  EXPECT_NEAR(tables.pair_of(0, 1).at(2).value, 14.3888, 1e-3);
}

TEST(EamFile, CutShortAnywhereIsNamed) {
  for (const std::string& text : {funcfl(), setfl(2)}) {
    for (const double part : {0.0, 0.001, 0.01, 0.3, 0.6, 0.9, 0.99}) {
      const TemporaryFile file(text.substr(0, static_cast<std::size_t>(part * static_cast<double>(text.size()))));
      EXPECT_NE(refusal_of([&] { read_eam_file(file.path()); }), "") << part;
    }
  }
  const std::string whole = funcfl();
  const TemporaryFile file(whole.substr(0, whole.size() - 20));
  EXPECT_NE(refusal_of([&] { read_eam_file(file.path()); }).find("of the 301 values of rho(r)"), std::string::npos);
}

TEST(EamFile, MoreThanTheTablesOrNoNumbersIsNamed) {
  const TemporaryFile more(funcfl() + "7\n");
  EXPECT_NE(refusal_of([&] { read_eam_file(more.path()); }).find("nothing more was expected"), std::string::npos);
  std::string text = funcfl();
  text.replace(text.rfind("0."), 2, "x.");
  const TemporaryFile wrong(text);
  EXPECT_NE(refusal_of([&] { read_eam_file(wrong.path()); }).find("is not a number; expected value"),
            std::string::npos);
}

TEST(EamForces, ConserveEnergyWithHalfAndFullLists) {
  const TemporaryFile file(funcfl());
  std::vector<std::string> rows;
  for (const bool half : {true, false}) {
    Settings settings;
    settings.units = metal_units;
    settings.potential = Potential::eam;
    settings.potential_file = file.path();
    settings.cells = {6, 6, 6};
    settings.density = 0.25;
    settings.temperature = 300;
    settings.time_step = 0.001;
    settings.skin = 0.5;
    settings.half = half;
    settings.threads = half ? 1 : 2;
    OneRank ranks;
    Simulation simulation(settings, ranks);
    simulation.start();
    const Thermo begin = simulation.thermo();
    for (int step = 0; step < 200; ++step) simulation.step();
    const Thermo end = simulation.thermo();
    EXPECT_NEAR(end.energy + end.kinetic, begin.energy + begin.kinetic, 1e-4 * std::abs(begin.energy));
    EXPECT_NE(end.temperature, begin.temperature);
    rows.push_back(row_of(200, end, 0));
  }
  EXPECT_EQ(rows[0], rows[1]);
}

}  // namespace
}  // namespace md
