#include "md/offload/tdr.h"

#include <array>
#include <cstdio>

#include "md/files/bad_input.h"
#include "md/files/number_list.h"
#include "md/files/options.h"
#include "md/offload/auto_offload.h"
#include "md/offload/local_coworker.h"

namespace md {
namespace {

constexpr std::int64_t sampled_every = 10;

struct Rate {
  double skin, interval;
  std::int32_t seed;
  Offload mode;
  double rate;
};

// The numbers do not depend on who computes forces or lists elsewhere: here this process does.
std::vector<double> temperatures(Settings settings, Ranks& ranks) {
  Simulation simulation(
      settings, ranks,
      settings.offload == Offload::none ? nullptr : make_local_coworker(Simulation::shape_of(settings)));
  simulation.start();
  std::vector<double> found;
  while (simulation.steps_done() < settings.steps) {
    const bool sampled = (simulation.steps_done() + 1) % sampled_every == 0;
    if (sampled) simulation.expect_thermo();
    simulation.step();
    if (sampled) found.push_back(simulation.thermo().temperature);
  }
  return found;
}

double divergence(const std::vector<double>& of, const std::vector<double>& from) {
  std::vector<double> apart(of.size());
  for (std::size_t k = 0; k < of.size(); ++k) apart[k] = of[k] - from[k];
  return slope_of(apart) / static_cast<double>(sampled_every);
}

}  // namespace

double slope_of(const std::vector<double>& samples) {
  const auto n = static_cast<double>(samples.size());
  double mean = 0, above = 0, below = 0;
  for (const double value : samples) mean += value / n;
  for (std::size_t k = 0; k < samples.size(); ++k) {
    const double x = static_cast<double>(k) - (n - 1) / 2;
    above += x * (samples[k] - mean);
    below += x * x;
  }
  return below > 0 ? above / below : 0;
}

int tdr(std::span<char* const> arguments, Ranks& ranks) {
  const Options options = read_options(arguments, {"--skins", "--intervals", "--seeds"});
  if (ranks.count() != 1) throw BadInput("offpath-md tdr supports one rank only");
  if (options.settings.steps < 3 * sampled_every) throw BadInput("offpath-md tdr needs at least 30 steps");
  const std::vector<double> skins = numbers_of(options.own, "--skins", "0.1,0.3,0.5");
  const std::vector<double> intervals = numbers_of(options.own, "--intervals", "1,5,10,20");
  const double seeds = number_of(options.own, "--seeds", "1");
  std::vector<Rate> rates;
  std::printf("# skin interval seed mode TDR\n");
  for (const double skin : skins) {
    for (std::int32_t seed = 0; seed < static_cast<std::int32_t>(seeds); ++seed) {
      Settings settings = options.settings;
      settings.skin = skin;
      settings.seed = seed;
      settings.interval = 1;
      const std::vector<double> reference = temperatures(settings, ranks);
      for (const double interval : intervals) {
        for (const Offload mode : {Offload::none, Offload::force, Offload::list}) {
          if (mode == Offload::list && interval != intervals[0]) continue;  // it has no interval
          settings.interval = static_cast<std::int64_t>(interval);
          settings.offload = mode;
          rates.push_back({skin, interval, seed, mode, divergence(temperatures(settings, ranks), reference)});
          std::printf("%g %g %d %s %.6e\n", skin, interval, seed, name_of(mode), rates.back().rate);
          std::fflush(stdout);
        }
      }
    }
  }
  if (options.settings.report_file.empty()) return 0;
  std::FILE* file = std::fopen(options.settings.report_file.c_str(), "w");
  if (file == nullptr) throw BadInput(options.settings.report_file + ": cannot be written");
  std::fprintf(file, "{\"rates\": [");
  for (std::size_t k = 0; k < rates.size(); ++k) {
    const Rate& one = rates[k];
    std::fprintf(file, "%s\n  {\"skin\": %g, \"interval\": %g, \"seed\": %d, \"mode\": \"%s\", \"tdr\": %.9g}",
                 k == 0 ? "" : ",", one.skin, one.interval, one.seed, name_of(one.mode), one.rate);
  }
  std::fprintf(file, "]}\n");
  if (std::fclose(file) != 0) throw BadInput(options.settings.report_file + ": cannot be written");
  return 0;
}

}  // namespace md
