// All settings of a run: defaults first, then an input file, then the command line.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "md/units.h"

namespace md {

enum class Potential { lj, eam };
enum class Trigger { interval, displacement };               // when lists are built again
enum class Offload { none, force, list, share, automatic };  // the agent's part; automatic: the fastest
// The side that exchanges ghosts and forces in steps with forces elsewhere; automatic: the faster one.
enum class Exchange { host, agent, automatic };
enum class Lists { automatic, pairs, clusters };  // automatic: the faster ones (kind_of_lists)
enum class Precision { whole, mixed };            // double throughout; pairs in float, sums in double

inline constexpr std::array offload_modes{Offload::none, Offload::force, Offload::list, Offload::share,
                                          Offload::automatic};

[[nodiscard]] constexpr const char* name_of(Offload mode) noexcept {
  switch (mode) {
    case Offload::none:
      return "none";
    case Offload::force:
      return "force";
    case Offload::list:
      return "list";
    case Offload::share:
      return "share";
    case Offload::automatic:
      return "auto";
  }
  return "?";
}

inline constexpr std::array exchanges{Exchange::host, Exchange::agent, Exchange::automatic};

[[nodiscard]] constexpr const char* name_of(Exchange exchange) noexcept {
  return exchange == Exchange::host ? "host" : exchange == Exchange::agent ? "agent" : "auto";
}

// How parameters of two types of atoms become those of their pairs.
enum class Mixing { geometric, arithmetic };

struct Settings {
  Units units = lj_units;
  Potential potential = Potential::lj;
  double epsilon = 1, sigma = 1;
  std::string potential_file;  // EAM
  std::string data_file;       // LAMMPS data instead of a lattice

  std::array<int, 3> cells{32, 32, 32};
  double density = 0.8442;
  double temperature = 1.44;
  std::int32_t seed = 0;  // of velocities; 0: miniMD's
  double mass = 1;
  std::size_t lj_types = 1;  // of atoms, as a data file gives them
  Mixing mixing = Mixing::geometric;
  double nvt_temperature = 0, nvt_damping = 0;  // of the thermostat, 0: none; 0: a hundred steps

  std::int64_t steps = 100;
  double time_step = 0.005;
  double cut = 2.5, skin = 0.3;
  std::int64_t interval = 20;  // of lists; with the displacement trigger, between checks
  Trigger trigger = Trigger::interval;
  std::int64_t thermo_interval = 100;  // 0: only first and last step

  bool half = true;
  Lists lists = Lists::automatic;
  int threads = 1;
  int agent_threads = 1;  // of the agent, for this rank
  Precision precision = Precision::whole;
  std::string kernels = "auto";
  Offload offload = Offload::none;
  Exchange exchange = Exchange::host;
  double share = 0;            // of the atoms, that the agent computes with Offload::share; 0: as both are fast
  bool safe_exchange = false;  // atoms may go farther than to the next rank

  std::string xyz_file, dump_file, restart_file, resume_file;  // empty: none
  std::int64_t dump_interval = 100, restart_interval = 1000;
  std::string report_file;                      // figures of the run, as JSON
  bool yaml_file = false, yaml_screen = false;  // the same as YAML, as miniMD has it
  std::string stream;                           // particles for the move service; empty: none
  std::int64_t stream_interval = 100;
};

}  // namespace md
