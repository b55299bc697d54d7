// Refuses what an agent of several cores (agent.cores) cannot have.
#include <algorithm>

#include <fmt/format.h>

#include "agent/config/settings.h"
#include "group/core_name.h"

namespace offpath::agent {

using Kind = link::Address::Kind;

namespace {

constexpr std::uint64_t memory_share_min = 1 << 20;  // of memory

Status check_addresses(const Config& config, const AgentSettings& settings) {
  const auto local = std::ranges::find(settings.listen, Kind::unix_socket, &link::Address::kind);
  if (local == settings.listen.end())
    return bad_value(config, "agent.cores",
                     "{} cores reach each other by Unix sockets: add a unix: address to agent.listen", settings.cores);
  for (const link::Address& address : settings.listen) {
    if (address.kind == Kind::verbs || address.kind == Kind::doca)
      return bad_value(config, "agent.cores", "{} cores can listen at unix, tcp and tls addresses, not at {}",
                       settings.cores, address.text());
    const std::size_t core_bytes = fmt::formatted_size("+{}-http", settings.cores);
    if (address.kind == Kind::unix_socket && address.path.size() + core_bytes > link::unix_path_bytes_max)
      return bad_value(config, "agent.cores",
                       "the cores' own sockets beside {} have longer names than the kernel takes ({} bytes)",
                       address.text(), link::unix_path_bytes_max);
    if (address.port != 0 && address.port + settings.cores > UINT16_MAX)
      return bad_value(config, "agent.cores", "{} leaves too few higher ports for {} cores", address.text(),
                       settings.cores);
  }
  return {};
}

}  // namespace

Status check_cores(const Config& config, const AgentSettings& settings) {
  if (group::is_later_core(settings.name))
    return bad_value(config, "agent.name", "'{}' ends like the name of a core of another agent: choose another name",
                     settings.name);
  if (!settings.pins.empty() && settings.pins.size() != settings.cores)
    return bad_value(config, "agent.pins", "{} cores for {} loops (agent.cores)", settings.pins.size(), settings.cores);
  if (!settings.pins.empty() && settings.pin)
    return bad_value(config, "agent.pin", "agent.pins is set too: set one of the two");
  if (settings.cores == 1) return {};
  if (settings.pin)
    return bad_value(config, "agent.pin", "one core for {} loops (agent.cores): set agent.pins instead",
                     settings.cores);
  OFP_TRY(check_addresses(config, settings));
  struct Alone {
    bool is_there;
    const char *key, *what;
  };
  const Alone alone[] = {
      {settings.tcp.has_value(), "tcp.device", "a device belongs to one agent; tcp.cores spreads its connections"},
      {settings.profile.name != "none", "agent.profile", "it imitates the link of one device"},
      {!settings.actuators.list.empty(), "[[actuator]]", "limits of the machine are set by one agent"},
      {!settings.dispatcher.exchanges.empty(), "[[exchange]]", "an agent has one record in each exchange"},
      {!settings.sampling.hosts.empty(), "[[host]]", "a host is sampled by one agent"},
      {!settings.sampling.sources.empty(), "[[source]]", "a machine is sampled by one agent"},
      {!settings.alarms.rules.empty(), "[[alarm]]", "alarms judge the samples of one agent"},
      {settings.group_from_launcher, "group.from_launcher", "a launcher starts one agent for each process"},
      {!settings.group_address.empty(), "group.address", "each core has an address of its own"},
  };
  for (const Alone& each : alone)
    if (each.is_there)
      return bad_value(config, "agent.cores", "{} cores cannot have {}: {}", settings.cores, each.key, each.what);
  if (settings.dispatcher.mover.memory_bytes_max / settings.cores < memory_share_min)
    return bad_value(config, "agent.cores", "memory.bytes_max of {} bytes leaves less than 1MiB for each of {} cores",
                     settings.dispatcher.mover.memory_bytes_max, settings.cores);
  return {};
}

}  // namespace offpath::agent
