#include "settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace offpath::adios {
namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& expected) {
  throw std::invalid_argument("Offpath: parameter " + key + " is \"" + value + "\"; expected " + expected);
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

template <class Number>
Number number(const std::string& key, const std::string& value, const std::string& expected) {
  Number parsed{};
  const char* const end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, parsed);
  if (error != std::errc{} || stopped != end) refuse(key, value, expected);
  return parsed;
}

bool truth(const std::string& key, const std::string& value) {
  const std::string said = lower(value);
  if (said == "true" || said == "on" || said == "yes" || said == "1") return true;
  if (said == "false" || said == "off" || said == "no" || said == "0") return false;
  refuse(key, value, "on or off");
}

std::chrono::nanoseconds seconds(const std::string& key, const std::string& value) {
  const auto given = number<double>(key, value, "seconds, or -1 to wait forever");
  if (given < 0) return std::chrono::nanoseconds(-1);
  if (!(given < 1e9)) refuse(key, value, "less than 1e9 seconds");
  return std::chrono::nanoseconds(static_cast<std::int64_t>(given * 1e9));
}

// The environment variables in which launchers pass size and rank to each process.
std::uint32_t from_launcher(bool size) {
  using Names = std::array<const char*, 2>;
  for (const Names& names : {Names{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, Names{"PMI_SIZE", "PMI_RANK"},
                             Names{"SLURM_NTASKS", "SLURM_PROCID"}}) {
    const char* const value = std::getenv(names[size ? 0 : 1]);  // NOLINT(concurrency-mt-unsafe): at open only
    if (value != nullptr && std::getenv(names[0]) != nullptr)    // NOLINT(concurrency-mt-unsafe)
      return number<std::uint32_t>(names[size ? 0 : 1], value, "a number");
  }
  throw std::invalid_argument(
      "Offpath: parameter Ranks is \"launcher\", but the environment has none of OMPI_COMM_WORLD_SIZE, PMI_SIZE and "
      "SLURM_NTASKS: start the program by mpirun or srun, or give Ranks and Rank as numbers");
}

}  // namespace

Settings read_settings(const std::map<std::string, std::string>& given, const std::string& io_name) {
  Settings settings;
  settings.pool = "local:/" + io_name;
  for (const auto& [key, value] : given) {
    const std::string known = lower(key);
    if (known == "address") {
      settings.address = value;
    } else if (known == "pool") {
      settings.pool = value;
    } else if (known == "snapshot") {
      settings.snapshot = truth(key, value);
    } else if (known == "consume") {
      settings.consume = truth(key, value);
    } else if (known == "timeout") {
      settings.timeout = seconds(key, value);
    } else if (known == "keep") {
      settings.keep = number<std::uint64_t>(key, value, "a number of steps, 0 for all");
    } else if (known == "ifnoagent") {
      const std::string said = lower(value);
      if (said != "fail" && said != "skip") refuse(key, value, "fail or skip");
      settings.skip = said == "skip";
    } else if (known == "ranks") {
      const bool launcher = lower(value) == "launcher";
      settings.ranks = launcher ? from_launcher(true) : number<std::uint32_t>(key, value, "a number, or launcher");
      if (launcher) settings.rank = from_launcher(false);
    } else if (known == "rank") {
      settings.rank = number<std::uint32_t>(key, value, "a number");
    } else if (known != "pluginname" && known != "pluginlibrary" && known != "verbose") {
      throw std::invalid_argument("Offpath: there is no parameter " + key +
                                  "; known are Address, Pool, Snapshot, Timeout, Keep, Consume, IfNoAgent, Ranks and "
                                  "Rank");
    }
  }
  if (settings.ranks == 0 || settings.rank >= settings.ranks)
    throw std::invalid_argument("Offpath: rank " + std::to_string(settings.rank) + " of " +
                                std::to_string(settings.ranks) + " ranks");
  return settings;
}

}  // namespace offpath::adios
