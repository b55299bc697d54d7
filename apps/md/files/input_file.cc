#include "md/files/input_file.h"

#include <filesystem>

#include "md/files/text_lines.h"

namespace md {
namespace {

constexpr int lines_in_all = 14;

class InputLines {
 public:
  explicit InputLines(const std::string& path) : lines_(path) {}

  // Reads the words of the next line, which should contain `what`.
  void advance(const std::string& what) {
    what_ = what;
    const auto line = lines_.next();
    if (!line) {
      lines_.fail(what + " is missing: the file ends after " + std::to_string(lines_.number() - 1) + " of " +
                  std::to_string(lines_in_all) + " lines");
    }
    words_ = words_of(*line);
  }

  std::string word(const std::string& one, const std::string& other) {
    if (words_.empty()) lines_.fail(what_ + " is missing");
    const std::string found(words_[0]);
    if (!one.empty() && found != one && found != other)
      lines_.fail(what_ + " is '" + found + "', neither '" + one + "' nor '" + other + "'");
    return found;
  }

  double number(std::size_t place, std::size_t of, double least, bool least_too = false) {
    expect(place, of);
    const auto value = number_of(words_[place]);
    if (!value) lines_.fail(what_ + ": '" + std::string(words_[place]) + "' is not a number");
    if (*value < least || (*value == least && !least_too)) {
      lines_.fail(what_ + ": " + std::string(words_[place]) + " is too small");
    }
    return *value;
  }

  std::int64_t whole(std::size_t place, std::size_t of, std::int64_t least) {
    expect(place, of);
    const auto value = whole_number_of(words_[place]);
    if (!value) lines_.fail(what_ + ": '" + std::string(words_[place]) + "' is not a whole number");
    if (*value < least || *value > 1'000'000'000)
      lines_.fail(what_ + ": " + std::to_string(*value) + " is not from " + std::to_string(least) + " to 1000000000");
    return *value;
  }

  void expect_end() {
    while (const auto line = lines_.next()) {
      if (!words_of(*line).empty())
        lines_.fail("nothing more was expected: an input has " + std::to_string(lines_in_all) + " lines");
    }
  }

 private:
  // Checks that the line has `of` values, and that no further number follows.
  void expect(std::size_t place, std::size_t of) {
    if (words_.size() <= place)
      lines_.fail(what_ + ": " + std::to_string(of) + " values expected, " + std::to_string(words_.size()) + " found");
    if (words_.size() > of && number_of(words_[of]))
      lines_.fail(what_ + ": " + std::to_string(of) + " values expected, '" + std::string(words_[of]) +
                  "' is one too many");
  }

  TextLines lines_;
  std::string what_;
  std::vector<std::string_view> words_;
};

}  // namespace

void read_input_file(const std::string& path, Settings& settings) {
  InputLines in(path);
  in.advance("a remark");
  in.advance("a remark");
  in.advance("the units");
  settings.units = in.word("lj", "metal") == "metal" ? metal_units : lj_units;
  in.advance("the data file");
  const std::string data = in.word("", "");
  settings.data_file = data == "none" ? "" : (std::filesystem::path(path).parent_path() / data).string();
  in.advance("the force style");
  settings.potential = in.word("lj", "eam") == "eam" ? Potential::eam : Potential::lj;
  in.advance("the Lennard-Jones parameters");
  settings.epsilon = in.number(0, 2, 0);
  settings.sigma = in.number(1, 2, 0);
  in.advance("the size of the problem");
  for (std::size_t d = 0; d < 3; ++d) settings.cells[d] = static_cast<int>(in.whole(d, 3, 1));
  in.advance("the number of steps");
  settings.steps = in.whole(0, 1, 0);
  in.advance("the time step");
  settings.time_step = in.number(0, 1, 0);
  in.advance("the temperature");
  settings.temperature = in.number(0, 1, 0, true);
  in.advance("the density");
  settings.density = in.number(0, 1, 0);
  in.advance("the interval of neighbour lists");
  settings.interval = in.whole(0, 1, 1);
  in.advance("cut-off and skin");
  settings.cut = in.number(0, 2, 0);
  settings.skin = in.number(1, 2, 0, true);
  in.advance("the interval of thermo output");
  settings.thermo_interval = in.whole(0, 1, 0);
  in.expect_end();
  if (settings.potential == Potential::eam && settings.potential_file.empty()) {
    settings.potential_file = (std::filesystem::path(path).parent_path() / "Cu_u6.eam").string();
  }
}

}  // namespace md
