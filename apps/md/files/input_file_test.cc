#include "md/files/input_file.h"

#include <gtest/gtest.h>

#include "md/files/temporary_file.h"

namespace md {
namespace {

using testing::Test;

const std::vector<std::string> lines{"a liquid",
                                     "",
                                     "lj  units",
                                     "none  data file",
                                     "lj  force style",
                                     "1.0 1.0  epsilon and sigma",
                                     "8 9 10  size",
                                     "250  timesteps",
                                     "0.005  timestep",
                                     "1.44  temperature",
                                     "0.8442  density",
                                     "20  interval",
                                     "2.5 0.30  cut-off and skin",
                                     "50  thermo"};

std::string joined(std::vector<std::string> all) {
  std::string text;
  for (const std::string& line : all) text += line + "\n";
  return text;
}

std::string refusal(std::vector<std::string> all) {
  const TemporaryFile file(joined(std::move(all)));
  Settings settings;
  const std::string text = refusal_of([&] { read_input_file(file.path(), settings); });
  return text.empty() ? text : text.substr(file.path().size());
}

TEST(InputFile, IsRead) {
  const TemporaryFile file(joined(lines));
  Settings settings;
  read_input_file(file.path(), settings);
  EXPECT_EQ(settings.cells, (std::array<int, 3>{8, 9, 10}));
  EXPECT_EQ(settings.steps, 250);
  EXPECT_EQ(settings.interval, 20);
  EXPECT_EQ(settings.thermo_interval, 50);
  EXPECT_EQ(settings.cut, 2.5);
  EXPECT_EQ(settings.skin, 0.3);
  EXPECT_EQ(settings.density, 0.8442);
}

TEST(InputFile, EachMissingLineIsNamed) {
  for (std::size_t n = 0; n < lines.size(); ++n) {
    std::vector<std::string> cut(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_NE(refusal(cut).find("is missing: the file ends after " + std::to_string(n) + " of 14 lines"),
              std::string::npos)
        << n;
  }
}

TEST(InputFile, WrongAndExtraValuesAreNamed) {
  const auto with = [](std::size_t n, const std::string& line) {
    std::vector<std::string> changed = lines;
    changed[n] = line;
    return refusal(changed);
  };
  EXPECT_EQ(with(2, "real"), ":3: the units is 'real', neither 'lj' nor 'metal'");
  EXPECT_EQ(with(4, "reax"), ":5: the force style is 'reax', neither 'lj' nor 'eam'");
  EXPECT_EQ(with(5, "1.0"), ":6: the Lennard-Jones parameters: 2 values expected, 1 found");
  EXPECT_EQ(with(6, "8 9"), ":7: the size of the problem: 3 values expected, 2 found");
  EXPECT_EQ(with(6, "8 9 10 11 size"), ":7: the size of the problem: 3 values expected, '11' is one too many");
  EXPECT_EQ(with(7, "many"), ":8: the number of steps: 'many' is not a whole number");
  EXPECT_EQ(with(8, "0"), ":9: the time step: 0 is too small");
  EXPECT_EQ(with(8, "nan"), ":9: the time step: 'nan' is not a number");
  EXPECT_EQ(with(11, "0 never"), ":12: the interval of neighbour lists: 0 is not from 1 to 1000000000");
  EXPECT_EQ(with(12, "2.5 -0.1"), ":13: cut-off and skin: -0.1 is too small");
  std::vector<std::string> more = lines;
  more.emplace_back("1 more");
  EXPECT_EQ(refusal(more), ":15: nothing more was expected: an input has 14 lines");
}

TEST(InputFile, OneThatIsNotThere) {
  Settings settings;
  EXPECT_EQ(refusal_of([&] { read_input_file("/nowhere/in.lj", settings); }), "/nowhere/in.lj: cannot be read");
}

}  // namespace
}  // namespace md
