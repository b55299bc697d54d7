#include "agent/cores/core_settings.h"

#include <sys/stat.h>

#include <algorithm>

#include <fmt/format.h>

#include "group/core_name.h"

namespace offpath::agent {

using Kind = link::Address::Kind;

namespace {

constexpr std::uint64_t core_share_min = 1 << 20;

std::string beside(const std::string& path, unsigned core) {
  const bool has_suffix = path.ends_with(".sock");
  return fmt::format("{}+{}{}", has_suffix ? path.substr(0, path.size() - 5) : path, core, has_suffix ? ".sock" : "");
}

std::string spill_directory_of(const std::string& agent, unsigned core) {
  return core == 0 || agent.empty() ? agent : fmt::format("{}+{}", agent, core);
}

std::vector<std::string> names_of_cores(const AgentSettings& agent) {
  std::vector<std::string> names;
  for (unsigned core = 0; core < agent.cores; ++core) names.push_back(group::core_name(agent.name, core));
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::vector<link::Address> addresses_of_core(const std::vector<link::Address>& agent, unsigned core) {
  std::vector<link::Address> own;
  for (const link::Address& address : agent) {
    link::Address& each = own.emplace_back(address);
    if (each.kind == Kind::unix_socket)
      each.path = beside(each.path, core);
    else if (each.port != 0)
      each.port = static_cast<std::uint16_t>(each.port + 1 + core);
  }
  return own;
}

AgentSettings settings_of_core(const AgentSettings& agent, unsigned core) {
  AgentSettings own = agent;
  own.name = group::core_name(agent.name, core);
  own.listen = addresses_of_core(agent.listen, core);
  own.http.reset();
  own.pin = agent.pins.empty() ? std::optional<unsigned>() : agent.pins[core];
  own.spill_directory = spill_directory_of(agent.spill_directory, core);
  own.dispatcher.cores = names_of_cores(agent);
  for (std::uint64_t* bytes : {&own.dispatcher.mover.memory_bytes_max, &own.dispatcher.mover.user_bytes_max,
                               &own.dispatcher.tasks.messages.bytes_max})
    *bytes = std::max(*bytes / agent.cores, core_share_min);
  own.dispatcher.buffers.cached_bytes_max /= agent.cores;
  if (core > 0) {
    own.flight.reset();
    std::erase_if(own.dispatcher.computes.triggers,
                  [](const pool::TriggerOptions& each) { return each.every_ns != 0; });
  }
  for (unsigned other = 0; other < agent.cores; ++other) {
    if (other == core) continue;
    const std::vector<link::Address> theirs = addresses_of_core(agent.listen, other);
    own.group.membership.seeds.push_back(std::ranges::find(theirs, Kind::unix_socket, &link::Address::kind)->text());
  }
  return own;
}

std::vector<std::string> objects_left_out(const AgentSettings& agent) {
  std::vector<std::string> left;
  for (unsigned core = agent.cores; core < group::cores_max && !agent.spill_directory.empty(); ++core) {
    const std::string directory = spill_directory_of(agent.spill_directory, core);
    struct stat status{};
    if (stat(directory.c_str(), &status) == 0)
      left.push_back(
          fmt::format("{} is left from a start with more cores: its objects are found only with agent.cores = {} or "
                      "more",
                      directory, core + 1));
  }
  return left;
}

}  // namespace offpath::agent
