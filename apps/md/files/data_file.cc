#include "md/files/data_file.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>

#include "md/files/text_lines.h"

namespace md {
namespace {

constexpr std::int64_t atoms_max = 2'000'000'000;

class Reader {
 public:
  explicit Reader(const std::string& path) : lines_(path) { lines_.next(); }  // the first line is a comment

  DataFile read() {
    read_header();
    while (!section_.empty()) {
      if (section_ == "Masses") {
        read_masses();
      } else if (section_ == "Pair") {
        read_pairs(data_.types, 1);
      } else if (section_ == "PairIJ") {
        read_pairs(data_.types * (data_.types + 1) / 2, 2);
      } else if (section_ == "Atoms") {
        read_atoms();
      } else if (section_ == "Velocities") {
        read_velocities();
      } else {
        lines_.fail("section '" + section_ + "' is not one of Masses, Atoms, Velocities, Pair Coeffs, PairIJ Coeffs");
      }
      next_section();
    }
    if (data_.atoms.empty()) lines_.fail("there is no section Atoms");
    return std::move(data_);
  }

 private:
  // The words of the next non-empty line, without its comment; none at the end.
  std::vector<std::string_view> next_words() {
    while (const auto line = lines_.next()) {
      auto words = words_of(line->substr(0, line->find('#')));
      if (!words.empty()) return words;
    }
    return {};
  }

  void next_section() {
    const auto words = next_words();
    section_ = words.empty() ? "" : std::string(words[0]);
  }

  double number(std::string_view word) const {
    const auto value = number_of(word);
    if (!value) lines_.fail("'" + std::string(word) + "' is not a finite number");
    return *value;
  }

  std::int64_t whole(std::string_view word, const std::string& what, std::int64_t least, std::int64_t most) const {
    const auto value = whole_number_of(word);
    if (!value || *value < least || *value > most) {
      lines_.fail(what + " is '" + std::string(word) + "', not a whole number from " + std::to_string(least) + " to " +
                  std::to_string(most));
    }
    return *value;
  }

  void read_header() {
    for (;;) {
      const auto words = next_words();
      if (words.empty()) lines_.fail("the file ends in its header");
      const std::string last(words.back());
      if (words.size() == 2 && last == "atoms") {
        count_ = whole(words[0], "the number of atoms", 1, atoms_max);
      } else if (words.size() == 3 && words[1] == "atom" && last == "types") {
        data_.types = static_cast<int>(whole(words[0], "the number of atom types", 1, 100));
      } else if (words.size() == 4 && (last == "xhi" || last == "yhi" || last == "zhi")) {
        const auto d = static_cast<std::size_t>(last[0] - 'x');
        data_.box.low[d] = number(words[0]);
        data_.box.high[d] = number(words[1]);
        if (!(data_.box.low[d] < data_.box.high[d])) lines_.fail("the box ends before it begins");
        axes_ |= 1U << d;
      } else if (words.size() == 6 && words[3] == "xy" && words[4] == "xz" && words[5] == "yz") {
        if (number(words[0]) != 0 || number(words[1]) != 0 || number(words[2]) != 0) refuse_triclinic("xy xz yz");
      } else if (last == "avec" || last == "bvec" || last == "cvec") {
        refuse_triclinic(last);
      } else if (words.size() >= 2 && whole_number_of(words[0]).value_or(1) == 0) {
        continue;  // "0 bonds" and similar lines
      } else if (number_of(words[0])) {
        lines_.fail("header line ending in '" + last +
                    "' is not supported (atoms, atom types, xlo xhi, ylo yhi, zlo zhi are)");
      } else {
        section_ = words[0];
        break;
      }
    }
    if (count_ == 0) lines_.fail("the header does not give the number of atoms");
    if (axes_ != 7) lines_.fail("the header does not give the box along all of x, y, z");
  }

  [[noreturn]] void refuse_triclinic(const std::string& key) const {
    lines_.fail("'" + key + "' makes the box triclinic; offpath-md computes in orthogonal boxes only");
  }

  // Lines of `named` types, epsilon, sigma and perhaps a cut-off.
  void read_pairs(int lines, std::size_t named) {
    data_.pairs.clear();
    for (int n = 0; n < lines; ++n) {
      const auto words = next_words();
      if (words.size() != named + 2 && words.size() != named + 3)
        lines_.fail(std::string("expected '") + (named == 1 ? "type" : "type type") +
                    " epsilon sigma', with a cut-off or without");
      const auto type = [&](std::size_t k) {
        return static_cast<int>(whole(words[k], "the type", 1, data_.types) - 1);
      };
      DataFile::Pair pair{type(0), type(named - 1), number(words[named]), number(words[named + 1]),
                          words.size() == named + 3 ? number(words[named + 2]) : 0};
      if (pair.a > pair.b) std::swap(pair.a, pair.b);
      if (pair.epsilon < 0 || pair.sigma <= 0) lines_.fail("epsilon must not be negative, sigma must be positive");
      for (const DataFile::Pair& other : data_.pairs) {
        if (other.a == pair.a && other.b == pair.b) lines_.fail("this pair of types occurs twice");
      }
      data_.pairs.push_back(pair);
    }
  }

  void read_masses() {
    data_.mass.assign(static_cast<std::size_t>(data_.types), 0);
    for (int n = 0; n < data_.types; ++n) {
      const auto words = next_words();
      if (words.size() < 2) lines_.fail("a type and its mass were expected");
      const double mass = number(words[1]);
      if (mass <= 0) lines_.fail("a mass has to be positive");
      double& of_type = data_.mass[static_cast<std::size_t>(whole(words[0], "the type", 1, data_.types) - 1)];
      if (of_type != 0) lines_.fail("this type has a mass already");
      of_type = mass;
    }
  }

  void read_atoms() {
    data_.atoms.reserve(static_cast<std::size_t>(count_));
    for (std::int64_t n = 0; n < count_; ++n) {
      const auto words = next_words();
      if (words.empty())
        lines_.fail("the file ends after " + std::to_string(n) + " of " + std::to_string(count_) + " atoms");
      if (words.size() != 5 && words.size() != 8)
        lines_.fail("expected 'id type x y z', with three image flags or none");
      DataAtom atom;
      atom.id = static_cast<std::int32_t>(whole(words[0], "the atom's id", 1, 2147483647));
      atom.type = static_cast<std::uint8_t>(whole(words[1], "the atom's type", 1, data_.types) - 1);
      for (std::size_t d = 0; d < 3; ++d) {
        atom.x[d] = data_.box.wrapped(d, number(words[2 + d]));
      }
      if (!places_.emplace(atom.id, data_.atoms.size()).second)
        lines_.fail("atom " + std::to_string(atom.id) + " occurs twice");
      data_.atoms.push_back(atom);
    }
  }

  void read_velocities() {
    if (data_.atoms.empty()) lines_.fail("the section Atoms has to come before Velocities");
    data_.velocities = true;
    for (std::int64_t n = 0; n < count_; ++n) {
      const auto words = next_words();
      if (words.size() < 4)
        lines_.fail("an atom's id and velocity were expected, for " + std::to_string(count_ - n) + " more atoms");
      const auto place = places_.find(static_cast<std::int32_t>(whole(words[0], "the atom's id", 1, 2147483647)));
      if (place == places_.end()) lines_.fail("atom " + std::string(words[0]) + " has a velocity and no position");
      for (std::size_t d = 0; d < 3; ++d) data_.atoms[place->second].v[d] = number(words[1 + d]);
    }
  }

  TextLines lines_;
  DataFile data_;
  std::string section_;
  std::int64_t count_ = 0;
  unsigned axes_ = 0;
  std::unordered_map<std::int32_t, std::size_t> places_;
};

}  // namespace

DataFile read_data_file(const std::string& path) { return Reader(path).read(); }

void share_head(DataFile& data, Ranks& ranks) {
  struct Head {
    Box box;
    int types;
    bool velocities;
    std::size_t masses, pairs;
  };
  Head head{data.box, data.types, data.velocities, data.mass.size(), data.pairs.size()};
  std::vector<std::byte> bytes(sizeof head + head.masses * sizeof(double) + head.pairs * sizeof(DataFile::Pair));
  std::memcpy(bytes.data(), &head, sizeof head);
  std::copy_n(std::as_bytes(std::span(data.mass)).begin(), head.masses * sizeof(double), bytes.begin() + sizeof head);
  std::copy_n(std::as_bytes(std::span(data.pairs)).begin(), head.pairs * sizeof(DataFile::Pair),
              bytes.end() - static_cast<std::ptrdiff_t>(head.pairs * sizeof(DataFile::Pair)));
  ranks.broadcast(bytes);
  std::memcpy(&head, bytes.data(), sizeof head);
  data.box = head.box;
  data.types = head.types;
  data.velocities = head.velocities;
  data.mass.resize(head.masses);
  data.pairs.resize(head.pairs);
  const std::byte* from = bytes.data() + sizeof head;
  std::copy_n(from, head.masses * sizeof(double), std::as_writable_bytes(std::span(data.mass)).begin());
  std::copy_n(from + head.masses * sizeof(double), head.pairs * sizeof(DataFile::Pair),
              std::as_writable_bytes(std::span(data.pairs)).begin());
}

LjTypes types_of(const DataFile& data, const Settings& settings) {
  LjTypes types;
  types.count = data.pairs.empty() ? 1 : static_cast<std::size_t>(data.types);
  if (types.count > 1 && data.mass.empty())
    throw BadInput(settings.data_file + ": several types of atoms, and no section Masses");
  types.mass = data.mass;
  types.mass.resize(types.count, settings.mass);
  types.epsilon.assign(types.count * types.count, settings.epsilon);
  types.sigma.assign(types.count * types.count, settings.sigma);
  for (const DataFile::Pair& pair : data.pairs) {
    if (pair.cut != 0 && pair.cut != settings.cut) {
      throw BadInput(settings.data_file + ": a pair's cut-off of " + std::to_string(pair.cut) +
                     "; all pairs have the one of the run, " + std::to_string(settings.cut));
    }
    const auto a = static_cast<std::size_t>(pair.a), b = static_cast<std::size_t>(pair.b);
    for (const std::size_t at : {a * types.count + b, b * types.count + a}) {
      types.epsilon[at] = pair.epsilon;
      types.sigma[at] = pair.sigma;
    }
  }
  if (data.pairs.size() == types.count) types.mix(settings.mixing);
  return types;
}

}  // namespace md
