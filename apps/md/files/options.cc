#include "md/files/options.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "md/files/input_file.h"
#include "md/files/text_lines.h"

namespace md {
namespace {

// The value of one option, and the option.
struct Given {
  std::string name, value;

  [[noreturn]] void refuse(const std::string& expected) const {
    throw BadInput(name + " " + value + ": expected " + expected);
  }
  [[nodiscard]] std::int64_t whole(std::int64_t least, std::int64_t most) const {
    const auto number = whole_number_of(value);
    if (!number || *number < least || *number > most) {
      refuse("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return *number;
  }
  [[nodiscard]] double number(double least) const {
    const auto number = number_of(value);
    if (!number || *number < least) refuse("a number, " + std::to_string(least) + " at least");
    return *number;
  }
  [[nodiscard]] bool first_of(const std::string& one, const std::string& other) const {
    if (value != one && value != other) refuse(one + " or " + other);
    return value == one;
  }
};

struct Option {
  std::vector<std::string> names;
  std::string meaning;
  std::function<void(const Given&, Settings&)> apply;
  bool alone = false;  // without a value
};

constexpr std::int64_t many = 1'000'000'000;

// Options of miniMD that have nothing to choose here.
void add_others_of_minimd(std::vector<Option>& all) {
  const auto without_effect = [&all](std::vector<std::string> names, const std::string& values, const std::string& why,
                                     std::int64_t least) {
    all.push_back({std::move(names), values + ", as miniMD has it, without effect: " + why,
                   [least](const Given& g, Settings& /*s*/) { static_cast<void>(g.whole(least, many)); }});
  };
  without_effect({"--sort"}, "STEPS", "atoms are sorted whenever lists are built", -1);
  without_effect({"-b", "--neigh_bins"}, "BINS along an axis", "the cut-off and the skin say how many there are", -1);
  without_effect({"-gn", "--ghost_newton"}, "1 | 0", "no forces of ghosts are sent back", 0);
  without_effect({"--ntypes"}, "TYPES", "all of miniMD's have the same parameters", 1);
  without_effect({"--teams"}, "TEAMS", "a rank has one team of threads (-t)", 1);
  all.push_back({{"--check_exchange"},
                 "as miniMD has it, without effect: exchanges are always checked",
                 [](const Given& /*g*/, Settings& /*s*/) {},
                 true});
  all.push_back({{"-sse"}, "0, as miniMD has it; for instruction sets: --kernels", [](const Given& g, Settings& /*s*/) {
                   if (g.value != "0") g.refuse("0: --kernels names the instruction set");
                 }});
  // Two of them have no value.
  for (const char* const name : {"-d", "--device", "-ng", "--num_gpus", "--skip_gpu", "-dm", "--device_map"}) {
    const bool alone = std::string_view(name) == "-dm" || std::string_view(name) == "--device_map";
    all.push_back({{name},
                   "refused: there are no kernels for GPUs",
                   [](const Given& g, Settings& /*s*/) { throw BadInput(g.name + ": there are no kernels for GPUs"); },
                   alone});
  }
}

std::vector<Option> make_options() {
  std::vector<Option> all;
  const auto add = [&all](std::vector<std::string> names, std::string meaning,
                          std::function<void(const Given&, Settings&)> apply) {
    all.push_back({std::move(names), std::move(meaning), std::move(apply)});
  };
  const auto add_alone = [&all](const std::string& name, std::string meaning, std::function<void(Settings&)> apply) {
    all.push_back(
        {{name}, std::move(meaning), [apply = std::move(apply)](const Given& /*g*/, Settings& s) { apply(s); }, true});
  };
  add({"-s", "--size"}, "CELLS: of the lattice, along each axis",
      [](const Given& g, Settings& s) { s.cells.fill(static_cast<int>(g.whole(1, 800))); });
  for (std::size_t d = 0; d < 3; ++d) {
    add({std::string("-n") + "xyz"[d]},
        d == 0 ? "CELLS: along this axis; without -s, also along those that are not given" : "CELLS: along this axis",
        [d](const Given& g, Settings& s) { s.cells[d] = static_cast<int>(g.whole(1, many)); });
  }
  add({"-n", "--nsteps"}, "STEPS", [](const Given& g, Settings& s) { s.steps = g.whole(0, many); });
  add({"-t", "--num_threads"}, "THREADS of every rank",
      [](const Given& g, Settings& s) { s.threads = static_cast<int>(g.whole(1, 1024)); });
  add({"--half_neigh"}, "1: a pair is in one list (-1, another way in miniMD, is the same here); 0: in both",
      [](const Given& g, Settings& s) { s.half = g.value == "-1" || g.first_of("1", "0"); });
  add({"--lists"}, "auto | pairs | clusters: of atoms, or of clusters of four; auto: clusters in mixed precision",
      [](const Given& g, Settings& s) {
        if (g.value == "auto")
          s.lists = Lists::automatic;
        else if (g.value == "pairs")
          s.lists = Lists::pairs;
        else if (g.value == "clusters")
          s.lists = Lists::clusters;
        else
          g.refuse("auto, pairs or clusters");
      });
  add({"--skin"}, "LENGTH by which lists reach beyond the cut-off",
      [](const Given& g, Settings& s) { s.skin = g.number(0); });
  add({"--every"}, "STEPS between lists", [](const Given& g, Settings& s) { s.interval = g.whole(1, many); });
  add({"--trigger"}, "interval | displacement: when new lists are made", [](const Given& g, Settings& s) {
    s.trigger = g.first_of("interval", "displacement") ? Trigger::interval : Trigger::displacement;
  });
  add({"--seed"}, "NUMBER: other initial velocities; 0: miniMD's",
      [](const Given& g, Settings& s) { s.seed = static_cast<std::int32_t>(g.whole(0, 1'000'000)); });
  add({"--dt"}, "TIME of a step", [](const Given& g, Settings& s) { s.time_step = g.number(0); });
  add({"--thermo"}, "STEPS between rows of output; 0: start and end",
      [](const Given& g, Settings& s) { s.thermo_interval = g.whole(0, many); });
  add({"-p", "--force"}, "lj | eam",
      [](const Given& g, Settings& s) { s.potential = g.first_of("lj", "eam") ? Potential::lj : Potential::eam; });
  add({"--potential_file"}, "FILE of EAM tables, funcfl or setfl",
      [](const Given& g, Settings& s) { s.potential_file = g.value; });
  add({"-f", "--data_file"}, "FILE of LAMMPS: atoms from there",
      [](const Given& g, Settings& s) { s.data_file = g.value; });
  add({"-u", "--units"}, "lj | metal",
      [](const Given& g, Settings& s) { s.units = g.first_of("lj", "metal") ? lj_units : metal_units; });
  add({"--precision"}, "double | mixed: pairs in single, sums in double precision", [](const Given& g, Settings& s) {
    s.precision = g.first_of("double", "mixed") ? Precision::whole : Precision::mixed;
  });
  add({"--kernels"}, "auto | scalar | avx2 | avx512 | neon", [](const Given& g, Settings& s) { s.kernels = g.value; });
  add({"--offload"}, "none | force | list | share | auto: the agent's part of the computation (OFFPATH_AGENT)",
      [](const Given& g, Settings& s) {
        const auto* const mode =
            std::ranges::find_if(offload_modes, [&](Offload each) { return g.value == name_of(each); });
        if (mode == offload_modes.end()) g.refuse("none, force, list, share or auto");
        s.offload = *mode;
      });
  add({"--exchange"}, "host | agent | auto, the faster: who exchanges ranks' positions and forces with --offload force",
      [](const Given& g, Settings& s) {
        const auto* const who =
            std::ranges::find_if(exchanges, [&](Exchange each) { return g.value == name_of(each); });
        if (who == exchanges.end()) g.refuse("host, agent or auto");
        s.exchange = *who;
      });
  add({"--share"},
      "PART of the atoms, below 1, that the agent computes with --offload share; 0, the default: as measured",
      [](const Given& g, Settings& s) {
        s.share = g.number(0);
        if (s.share >= 1) g.refuse("a number below 1");
      });
  add({"--agent_threads"}, "THREADS of the agent for this rank",
      [](const Given& g, Settings& s) { s.agent_threads = static_cast<int>(g.whole(1, 1024)); });
  add({"--xyz"}, "FILE for positions as XYZ", [](const Given& g, Settings& s) { s.xyz_file = g.value; });
  add({"--dump"}, "FILE for positions, velocities and forces in LAMMPS's dump format",
      [](const Given& g, Settings& s) { s.dump_file = g.value; });
  add({"--dump_every"}, "STEPS between dumps", [](const Given& g, Settings& s) { s.dump_interval = g.whole(1, many); });
  add({"--restart"}, "FILE for continuing the run later; also written at the end",
      [](const Given& g, Settings& s) { s.restart_file = g.value; });
  add({"--restart_every"}, "STEPS between restart files",
      [](const Given& g, Settings& s) { s.restart_interval = g.whole(1, many); });
  add({"--resume"}, "FILE of --restart from which to continue, with identical results",
      [](const Given& g, Settings& s) { s.resume_file = g.value; });
  add({"--report"}, "FILE for the run's times, as JSON", [](const Given& g, Settings& s) { s.report_file = g.value; });
  add({"--stream"}, "NAME of a stream that sends particles to the agent at OFFPATH_AGENT",
      [](const Given& g, Settings& s) { s.stream = g.value; });
  add({"--stream_every"}, "STEPS between batches",
      [](const Given& g, Settings& s) { s.stream_interval = g.whole(1, many); });
  add({"--nvt"}, "TEMPERATURE of a Nose-Hoover thermostat; without it the energy is constant",
      [](const Given& g, Settings& s) {
        s.nvt_temperature = g.number(0);
        if (s.nvt_temperature == 0) g.refuse("a number above 0");
      });
  add({"--nvt_damp"}, "TIME over which the thermostat levels a difference; by default 100 steps",
      [](const Given& g, Settings& s) {
        s.nvt_damping = g.number(0);
        if (s.nvt_damping == 0) g.refuse("a number above 0");
      });
  add({"--mix"}, "geometric | arithmetic: sigma of pairs of different types", [](const Given& g, Settings& s) {
    s.mixing = g.first_of("geometric", "arithmetic") ? Mixing::geometric : Mixing::arithmetic;
  });
  add({"--boundary"}, "ppp: the box is periodic along each axis; no other is supported",
      [](const Given& g, Settings& /*s*/) {
        if (g.value.find_first_of("sm") != std::string::npos) g.refuse("ppp: shrink-wrapped boxes are not supported");
        if (g.value != "ppp") g.refuse("ppp: boxes are periodic along each axis");
      });
  add_alone("--safe_exchange", "atoms may go farther than to the next rank between two lists",
            [](Settings& s) { s.safe_exchange = true; });
  add({"-o", "--yaml_output"}, "LEVEL: 0 none; above, --report's figures in a file offpath-md-DATE.yaml",
      [](const Given& g, Settings& s) { s.yaml_file = g.whole(0, 3) > 0; });
  add_alone("--yaml_screen", "prints --report's figures as YAML", [](Settings& s) { s.yaml_screen = true; });
  add_others_of_minimd(all);
  return all;
}

}  // namespace

Options read_options(std::span<char* const> arguments, const std::vector<std::string>& own) {
  Options options;
  // The input file is read first, wherever it is named: options override it.
  for (std::size_t k = 1; k < arguments.size(); ++k) {
    const std::string name = arguments[k];
    if (name == "-h" || name == "--help") options.help = true;
    if (name != "-i" && name != "--input_file") continue;
    if (k + 1 == arguments.size()) throw BadInput(name + ": the name of a file is missing");
    read_input_file(arguments[k + 1], options.settings);
  }
  if (options.help) return options;
  const std::vector<Option> known = make_options();
  std::map<std::string, std::string> given;  // the last value of each option
  for (std::size_t k = 1; k < arguments.size();) {
    const std::string name = arguments[k++];
    const bool input = name == "-i" || name == "--input_file";
    const Option* option = nullptr;
    for (const Option& one : known) {
      for (const std::string& spelling : one.names) {
        if (spelling == name) option = &one;
      }
    }
    const bool of_subcommand = std::find(own.begin(), own.end(), name) != own.end();
    if (option == nullptr && !input && !of_subcommand) throw BadInput("unknown option " + name + "; --help lists them");
    if (option != nullptr && option->alone) {
      option->apply({name, ""}, options.settings);
      continue;
    }
    if (k >= arguments.size()) throw BadInput(name + ": its value is missing");
    const std::string value = arguments[k++];
    if (option != nullptr) given[option->names.front()] = value;
    if (of_subcommand)
      options.own[name] = value;
    else if (!input)
      option->apply({name, value}, options.settings);
  }
  // As in miniMD: a side is stronger than -s wherever it stands, and -nx without -s is the side of a cube.
  for (const char* const side : {"-nx", "-ny", "-nz"}) {
    const auto last = given.find(side);
    if (last == given.end()) continue;
    const auto one = std::ranges::find_if(known, [&](const Option& each) { return each.names.front() == side; });
    one->apply({last->first, last->second}, options.settings);
  }
  if (given.contains("-nx") && !given.contains("-s")) {
    std::array<int, 3>& cells = options.settings.cells;
    if (!given.contains("-ny")) cells[1] = cells[0];
    if (!given.contains("-nz")) cells[2] = cells[0];
  }
  return options;
}

std::string help_text() {
  std::string text =
      "usage: offpath-md [-i FILE] [OPTION VALUE] ...     molecular dynamics; under mpirun, on all its ranks\n"
      "       offpath-md model [OPTION VALUE] ...         benefit of an agent: predicted and measured\n"
      "       offpath-md tdr [OPTION VALUE] ...           divergence of temperatures from exact ones\n\n"
      "  -i, --input_file FILE of miniMD; options override it\n";
  for (const Option& option : make_options()) {
    std::string names;
    for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
    text += "  " + names + " " + option.meaning + "\n";
  }
  return text;
}

}  // namespace md
