#include "md/files/data_file.h"

#include <gtest/gtest.h>

#include "md/files/temporary_file.h"

namespace md {
namespace {

const std::string data_header =
    "made by hand\n\n2 atoms # of argon\n1 atom types\n0 bonds\n\n0 4 xlo xhi\n-1 3 ylo yhi\n0 4.5 zlo zhi\n\n";

std::string refusal_of_file(const std::string& text) {
  const TemporaryFile file(text);
  const std::string said = refusal_of([&] { read_data_file(file.path()); });
  return said.empty() ? said : said.substr(file.path().size());
}

TEST(DataFile, IsRead) {
  const TemporaryFile file(
      data_header +
      "Masses\n\n1 2.5\n\nAtoms # atomic\n\n7 1 0.5 0.5 0.5\n9 1 4.25 -2 1 0 0 0\n\nVelocities\n\n9 1 2 3\n7 4 5 6\n");
  const DataFile data = read_data_file(file.path());
  EXPECT_EQ(data.box.length(1), 4);
  EXPECT_EQ(data.mass, std::vector<double>{2.5});
  ASSERT_EQ(data.atoms.size(), 2U);
  EXPECT_EQ(data.atoms[1].id, 9);
  EXPECT_EQ(data.atoms[1].x, (std::array<double, 3>{0.25, 2, 1}));  // into the box
  EXPECT_EQ(data.atoms[1].v, (std::array<double, 3>{1, 2, 3}));
  EXPECT_TRUE(data.velocities);
}

TEST(DataFile, WhatIsWrongIsNamed) {
  EXPECT_EQ(refusal_of_file("x\n\n1 atoms\n0 4 xlo xhi\nAtoms\n\n1 1 0 0 0\n"),
            ":5: the header does not give the box along all of x, y, z");
  EXPECT_EQ(refusal_of_file(data_header + "Atoms\n\n1 1 0 0 0\n"), ":14: the file ends after 1 of 2 atoms");
  EXPECT_EQ(refusal_of_file(data_header + "Atoms\n\n1 1 0 0 nan\n2 1 0 0 0\n"), ":13: 'nan' is not a finite number");
  EXPECT_EQ(refusal_of_file(data_header + "Atoms\n\n1 1 0 0 0\n1 1 1 0 0\n"), ":14: atom 1 occurs twice");
  EXPECT_EQ(refusal_of_file(data_header + "Atoms\n\n1 2 0 0 0\n"),
            ":13: the atom's type is '2', not a whole number from 1 to 1");
  EXPECT_EQ(refusal_of_file(data_header + "Atoms\n\n1 1 0 0\n"),
            ":13: expected 'id type x y z', with three image flags or none");
  EXPECT_EQ(refusal_of_file(data_header + "Bonds\n\n1 1 1 2\n"),
            ":11: section 'Bonds' is not one of Masses, Atoms, Velocities, Pair Coeffs, PairIJ "
            "Coeffs");
  EXPECT_EQ(refusal_of_file("x\n\n5 bonds\n"),
            ":3: header line ending in 'bonds' is not supported (atoms, atom types, xlo xhi, ylo yhi, zlo zhi are)");
}

TEST(DataFile, PairsOfTypesAreRead) {
  const std::string two = "x\n\n1 atoms\n2 atom types\n0 4 xlo xhi\n0 4 ylo yhi\n0 4 zlo zhi\n0 0 0 xy xz yz\n\n";
  const std::string atom = "Atoms\n\n1 2 0 0 0\n";
  const TemporaryFile mixed(two + "Pair Coeffs # lj/cut\n\n1 1 1\n2 0.25 1.5\n\n" + atom);
  const DataFile by_type = read_data_file(mixed.path());
  ASSERT_EQ(by_type.pairs.size(), 2U);
  EXPECT_EQ(by_type.pairs[1].a, 1);
  EXPECT_EQ(by_type.pairs[1].b, 1);
  EXPECT_EQ(by_type.pairs[1].sigma, 1.5);
  const TemporaryFile all(two + "PairIJ Coeffs\n\n1 1 1 1\n2 1 0.5 1.1\n2 2 0.25 1.5\n\n" + atom);
  EXPECT_EQ(read_data_file(all.path()).pairs[1].epsilon, 0.5);
  EXPECT_EQ(refusal_of_file(two + "Pair Coeffs\n\n1 1 1\n2 1\n\n" + atom),
            ":13: expected 'type epsilon sigma', with a cut-off or without");
  EXPECT_EQ(refusal_of_file(two + "Pair Coeffs\n\n1 1 1\n1 1 1\n\n" + atom), ":13: this pair of types occurs twice");
}

TEST(DataFile, TypesAreMixedAndCutAlike) {
  DataFile data;
  data.types = 2;
  data.mass = {1, 2};
  data.pairs = {{0, 0, 1, 1, 0}, {1, 1, 4, 2.25, 2.5}};
  Settings settings;
  const LjTypes geometric = types_of(data, settings);
  EXPECT_EQ(geometric.epsilon, (std::vector<double>{1, 2, 2, 4}));
  EXPECT_EQ(geometric.sigma, (std::vector<double>{1, 1.5, 1.5, 2.25}));
  settings.mixing = Mixing::arithmetic;
  EXPECT_EQ(types_of(data, settings).sigma[1], 1.625);
  data.pairs.insert(data.pairs.begin() + 1, {0, 1, 0.5, 1.25, 0});
  EXPECT_EQ(types_of(data, settings).sigma[2], 1.25) << "given pairs are not mixed";
  settings.cut = 3;
  EXPECT_NE(refusal_of([&] { types_of(data, settings); }).find("a pair's cut-off of 2.5"), std::string::npos);
  data.mass.clear();
  EXPECT_NE(refusal_of([&] { types_of(data, settings); }).find("no section Masses"), std::string::npos);
}

TEST(DataFile, ATriclinicBoxIsRefusedByName) {
  EXPECT_EQ(refusal_of_file("x\n\n1 atoms\n0 4 xlo xhi\n0 4 ylo yhi\n0 4 zlo zhi\n0.5 0 0 xy xz yz\n"),
            ":7: 'xy xz yz' makes the box triclinic; offpath-md computes in orthogonal boxes only");
  EXPECT_EQ(refusal_of_file("x\n\n1 atoms\n1 0 0 avec\n"),
            ":4: 'avec' makes the box triclinic; offpath-md computes in orthogonal boxes only");
}

}  // namespace
}  // namespace md
