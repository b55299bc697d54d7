#include "plugin/worker_arguments.h"

#include <algorithm>

#include "base/text.h"

namespace offpath::plugin {

namespace {

template <class T>
Result<T> argument_of(std::string_view text) {
  const auto value = number_of<T>(text);
  if (!value) return fail(Error::invalid, "'{}' is not a number", text);
  return *value;
}

}  // namespace

std::vector<std::string> worker_arguments(const WorkerOptions& options) {
  std::string cores;
  for (unsigned core : options.cores) cores += (cores.empty() ? "" : ",") + std::to_string(core);
  return {options.path,
          std::to_string(options.memory_bytes),
          std::to_string(options.nice),
          cores.empty() ? "-" : cores,
          options.own ? "own" : "configured",
          options.becomes ? std::to_string(options.becomes->user) : "-",
          options.becomes ? std::to_string(options.becomes->group) : "-",
          std::to_string(options.agent),
          std::string(sandbox_names[static_cast<std::size_t>(options.sandbox)])};
}

Result<WorkerOptions> read_worker_arguments(const std::vector<std::string>& arguments) {
  if (arguments.size() != 9)
    return fail(Error::invalid, "{} arguments: only offpath-agent starts this program", arguments.size());
  WorkerOptions options;
  options.path = arguments[0];
  OFP_ASSIGN(options.memory_bytes, argument_of<std::uint64_t>(arguments[1]));
  OFP_ASSIGN(options.nice, argument_of<int>(arguments[2]));
  std::string_view cores = arguments[3] == "-" ? std::string_view() : std::string_view(arguments[3]);
  while (!cores.empty()) {
    const std::size_t comma = std::min(cores.find(','), cores.size());
    OFP_ASSIGN(const unsigned core, argument_of<unsigned>(cores.substr(0, comma)));
    options.cores.push_back(core);
    cores.remove_prefix(std::min(comma + 1, cores.size()));
  }
  options.own = arguments[4] == "own";
  if (!options.own && arguments[4] != "configured")
    return fail(Error::invalid, "'{}' is neither own nor configured", arguments[4]);
  if (arguments[5] != "-") {
    OFP_ASSIGN(const auto user, argument_of<uid_t>(arguments[5]));
    OFP_ASSIGN(const auto group, argument_of<gid_t>(arguments[6]));
    options.becomes = WorkerOptions::Identity{user, group};
  }
  OFP_ASSIGN(options.agent, argument_of<pid_t>(arguments[7]));
  const auto sandbox = sandbox_of(arguments[8]);
  if (!sandbox) return fail(Error::invalid, "'{}' is neither on nor log nor off", arguments[8]);
  options.sandbox = *sandbox;
  return options;
}

}  // namespace offpath::plugin
