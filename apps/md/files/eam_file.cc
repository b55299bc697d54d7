#include "md/files/eam_file.h"

#include <algorithm>

#include "md/files/text_lines.h"

namespace md {
namespace {

constexpr double hartree_bohr = 27.2 * 0.529;  // eV Angstrom: the factor used for funcfl's Z Z / r in published tables

struct Grid {
  std::size_t rhos = 0, distances = 0;
  double rho_spacing = 0, distance_spacing = 0, cut = 0;
};

std::vector<std::string_view> words_of_next(TextLines& lines, const std::string& expected) {
  const auto line = lines.next();
  if (!line) lines.fail("the file ends where " + expected + " was expected");
  return words_of(*line);
}

std::size_t count_of(const TextLines& lines, std::string_view word, const std::string& what) {
  const auto count = whole_number_of(word);
  if (!count || *count < 5 || *count > 10'000'000)
    lines.fail(what + " is '" + std::string(word) + "', not a number from 5 to 10000000");
  return static_cast<std::size_t>(*count);
}

double positive_of(const TextLines& lines, std::string_view word, const std::string& what) {
  const auto number = number_of(word);
  if (!number || *number <= 0) lines.fail(what + " is '" + std::string(word) + "', not a positive number");
  return *number;
}

Grid read_grid(TextLines& lines) {
  const auto words = words_of_next(lines, "'nrho drho nr dr cut'");
  if (words.size() < 5) lines.fail("'nrho drho nr dr cut' are five numbers, not " + std::to_string(words.size()));
  Grid grid;
  grid.rhos = count_of(lines, words[0], "nrho");
  grid.rho_spacing = positive_of(lines, words[1], "drho");
  grid.distances = count_of(lines, words[2], "nr");
  grid.distance_spacing = positive_of(lines, words[3], "dr");
  grid.cut = positive_of(lines, words[4], "the cut-off");
  return grid;
}

double read_mass(TextLines& lines) {
  const auto words = words_of_next(lines, "an element's number and mass");
  if (words.size() < 2) lines.fail("an element's number and mass were expected");
  return positive_of(lines, words[1], "the mass");
}

// Reads `count` numbers, over as many lines as they take.
std::vector<double> read_values(TextLines& lines, std::size_t count, const std::string& what) {
  std::vector<double> values;
  values.reserve(count);
  while (values.size() < count) {
    const auto line = lines.next();
    if (!line)
      lines.fail("the file ends after " + std::to_string(values.size()) + " of the " + std::to_string(count) +
                 " values of " + what);
    for (const std::string_view word : words_of(*line)) {
      const auto number = number_of(word);
      if (!number)
        lines.fail("'" + std::string(word) + "' is not a number; expected value " + std::to_string(values.size() + 1) +
                   " of " + what);
      if (values.size() == count)
        lines.fail("more than the " + std::to_string(count) + " values of " + what + " on this line");
      values.push_back(*number);
    }
  }
  return values;
}

void expect_end(TextLines& lines) {
  while (const auto line = lines.next()) {
    if (!words_of(*line).empty()) lines.fail("nothing more was expected after the tables");
  }
}

EamTables read_funcfl(TextLines& lines) {
  EamTables tables;
  tables.elements = 1;
  lines.next();
  tables.mass.push_back(read_mass(lines));
  const Grid grid = read_grid(lines);
  tables.cut = grid.cut;
  const std::vector<double> embedding = read_values(lines, grid.rhos, "F(rho)");
  std::vector<double> charge = read_values(lines, grid.distances, "Z(r)");
  const std::vector<double> density = read_values(lines, grid.distances, "rho(r)");
  expect_end(lines);
  for (double& z : charge) z *= z * hartree_bohr;
  // The usual grid of a funcfl table ends one point before the file's.
  tables.embedding.emplace_back(std::span(embedding).first(grid.rhos - 1), grid.rho_spacing);
  tables.density.emplace_back(std::span(density).first(grid.distances - 1), grid.distance_spacing);
  tables.pair.emplace_back(std::span<const double>(charge).first(grid.distances - 1), grid.distance_spacing);
  return tables;
}

EamTables read_setfl(TextLines& lines) {
  EamTables tables;
  for (int comment = 0; comment < 3; ++comment) lines.next();
  const auto words = words_of_next(lines, "the number of elements");
  const auto count = words.empty() ? std::nullopt : whole_number_of(words[0]);
  if (!count || *count < 1 || *count > 100 || words.size() != static_cast<std::size_t>(*count) + 1) {
    lines.fail("the number of elements and their names were expected");
  }
  tables.elements = static_cast<std::size_t>(*count);
  tables.name.assign(words.begin() + 1, words.end());
  const Grid grid = read_grid(lines);
  tables.cut = grid.cut;
  for (const std::string& name : tables.name) {
    tables.mass.push_back(read_mass(lines));
    tables.embedding.emplace_back(read_values(lines, grid.rhos, "F(rho) of " + name), grid.rho_spacing);
    tables.density.emplace_back(read_values(lines, grid.distances, "rho(r) of " + name), grid.distance_spacing);
  }
  tables.pair.resize(tables.elements * tables.elements);
  for (std::size_t i = 0; i < tables.elements; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const std::string what = "r phi(r) of " + tables.name[i] + " and " + tables.name[j];
      const Spline spline(read_values(lines, grid.distances, what), grid.distance_spacing);
      tables.pair[i * tables.elements + j] = spline;
      tables.pair[j * tables.elements + i] = spline;
    }
  }
  expect_end(lines);
  return tables;
}

// The third line of a funcfl file is its grid; of a setfl file, a comment.
bool is_funcfl(const std::string& path) {
  TextLines lines(path);
  lines.next();
  const auto second = lines.next(), third = lines.next();
  if (!second || !third) return true;
  const auto mass = words_of(*second), grid = words_of(*third);
  const auto numeric = [](std::string_view word) { return number_of(word).has_value(); };
  return mass.size() >= 2 && numeric(mass[0]) && numeric(mass[1]) && grid.size() >= 5 &&
         std::all_of(grid.begin(), grid.begin() + 5, numeric);
}

}  // namespace

EamTables read_eam_file(const std::string& path) {
  const bool funcfl = is_funcfl(path);
  TextLines lines(path);
  return funcfl ? read_funcfl(lines) : read_setfl(lines);
}

}  // namespace md
