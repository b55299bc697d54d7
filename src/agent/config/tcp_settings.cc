#include "agent/config/tcp_settings.h"

#include <algorithm>
#include <charconv>

#include "agent/config/core_list.h"
#include "link/address.h"
#include "tcp/congestion/congestion.h"
#include "tcp/segment/ipv6.h"
#include "wire/areas/tcp_area.h"

namespace offpath::agent {

namespace {

// The keys of one family.
struct FamilyKeys {
  tcp::IpFamily family;
  const char *address, *gateway, *example;
  unsigned prefix_most;
};
constexpr FamilyKeys keys_of_v4{tcp::IpFamily::v4, "tcp.address", "tcp.gateway", "10.0.0.2/24", 31},
    keys_of_v6{tcp::IpFamily::v6, "tcp.address6", "tcp.gateway6", "2001:db8::2/64", 128};

constexpr std::string_view no_gateway = "none";  // of IPv6: and no router that advertises itself

Status parse_address(const Config& config, const FamilyKeys& keys, tcp::IpInterface& own) {
  const std::string& text = config.text(keys.address);
  const std::size_t slash = text.find('/');
  const auto address = tcp::ip_address(std::string_view(text).substr(0, slash));
  unsigned prefix = 0;
  const char* const end = text.data() + text.size();
  const bool good = slash != std::string::npos && [&] {
    const auto [rest, error] = std::from_chars(text.data() + slash + 1, end, prefix);
    return error == std::errc() && rest == end && prefix >= 1 && prefix <= keys.prefix_most;
  }();
  if (!address || !good || address->family() != keys.family || !tcp::is_unicast(*address))
    return bad_value(config, keys.address, "'{}' is not an address with a prefix length, such as {}", text,
                     keys.example);
  own.address = *address;
  own.prefix_length = static_cast<std::uint8_t>(prefix);
  return {};
}

Status parse_gateway(const Config& config, const FamilyKeys& keys, tcp::IpInterface& own) {
  const std::string& text = config.text(keys.gateway);
  if (text.empty()) return {};
  if (keys.family == tcp::IpFamily::v6 && text == no_gateway && !own.address.is_unspecified()) return {};
  if (own.address.is_unspecified())
    return bad_value(config, keys.gateway, "it needs {}{}", keys.address,
                     keys.family == tcp::IpFamily::v4 ? "; without that both are taken from the interface" : "");
  const auto gateway = tcp::ip_address(text);
  if (!gateway) return bad_value(config, keys.gateway, "{}", gateway.error().message);
  // Routers of IPv6 have link-local addresses.
  const bool is_here = tcp::share_prefix(*gateway, own.address, own.prefix_length) ||
                       (keys.family == tcp::IpFamily::v6 && tcp::is_link_local(*gateway));
  if (!is_here || !tcp::is_unicast(*gateway) || *gateway == own.address)
    return bad_value(config, keys.gateway, "{} is not another address in the network of {}", text,
                     config.text(keys.address));
  own.gateway = *gateway;
  return {};
}

Status parse_addresses(const Config& config, TcpSettings& settings) {
  const bool has_v6 = !config.text("tcp.address6").empty();
  // Without any address it is the interface's own.
  const bool may_lack_v4 = has_v6 || settings.kernel_has_interface();
  if (!config.text("tcp.address").empty() || !may_lack_v4)
    OFP_TRY(parse_address(config, keys_of_v4, settings.stack.v4));
  if (has_v6) OFP_TRY(parse_address(config, keys_of_v6, settings.stack.v6));
  if (has_v6 && settings.kind == TcpSettings::Kind::dpdk)
    return bad_value(config, "tcp.address6", "a DPDK device supports only IPv4");
  OFP_TRY(parse_gateway(config, keys_of_v4, settings.stack.v4));
  settings.stack.hears_routers = config.text("tcp.gateway6").empty();
  return parse_gateway(config, keys_of_v6, settings.stack.v6);
}

// Everything about the network is that agent's.
Status check_relay(const Config& config, const TcpSettings& settings) {
  for (const char* const key : {"tcp.address", "tcp.address6"})
    if (!config.text(key).empty())
      return bad_value(config, key, "agent:ADDRESS takes the address of the agent that has the network");
  const auto address = link::Address::parse(settings.device);
  if (!address) return bad_value(config, "tcp.device", "{}", address.error().message);
  if (address->kind == link::Address::Kind::unix_socket)
    return bad_value(config, "tcp.device",
                     "agent:{} is on this machine: programs connect to that agent without this one", settings.device);
  return {};
}

// The kind of device: the prefix of tcp.device.
Status parse_device(const Config& config, TcpSettings& settings) {
  using DeviceKind = TcpSettings::Kind;
  for (const auto& [beginning, kind] : {std::pair<std::string_view, DeviceKind>{"xdp:", DeviceKind::xdp},
                                        {"auto:", DeviceKind::best},
                                        {"tap:", DeviceKind::tap},
                                        {"dpdk:", DeviceKind::dpdk},
                                        {"agent:", DeviceKind::agent}}) {
    if (!settings.device.starts_with(beginning)) continue;
    settings.device.erase(0, beginning.size());
    settings.kind = kind;
    break;
  }
  settings.dpdk_arguments = config.texts("tcp.dpdk_arguments");
  if (settings.kind != DeviceKind::dpdk) {
    if (!settings.dpdk_arguments.empty())
      return bad_value(config, "tcp.dpdk_arguments", "they are for dpdk:DEVICE, and tcp.device is not a DPDK device");
    return {};
  }
  // Accepts a PCI address, or a driver's name with parameters: nothing that DPDK would read as an option.
  constexpr std::string_view also = "_-.:,=/@+()[]";
  const auto is_good = [&](char each) {
    return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
           also.find(each) != std::string_view::npos;
  };
  const std::string& device = settings.device;
  if (device.empty() || device.front() == '-' || !std::ranges::all_of(device, is_good))
    return bad_value(config, "tcp.device",
                     "'{}' is not a DPDK device such as 0000:03:00.0 or net_af_packet0,iface=eth0", brief(device));
  return {};
}

Status parse_cores(const Config& config, TcpSettings& settings) {
  settings.cores = static_cast<std::uint32_t>(config.integer("tcp.cores"));
  OFP_ASSIGN(settings.pin, read_core_list(config, "tcp.pin"));
  if (!settings.pin.empty() && settings.pin.size() != settings.cores - 1)
    return bad_value(config, "tcp.pin",
                     "{} cores for the {} loops that tcp.cores = {} adds to the agent's own, which agent.pin pins",
                     settings.pin.size(), settings.cores - 1, settings.cores);
  if (settings.cores == 1) return {};
  if (settings.kind == TcpSettings::Kind::tap)
    return bad_value(config, "tcp.cores", "{} cores need a device with a queue for each; {} serves 1", settings.cores,
                     config.text("tcp.device"));
  if (!settings.trace_file.empty())
    return bad_value(config, "tcp.trace_file", "stages are recorded only if tcp.cores is 1, not {}", settings.cores);
  return {};
}

}  // namespace

std::uint16_t mtu_least(const tcp::StackOptions& stack) noexcept {
  return stack.v6.address.is_unspecified() ? std::uint16_t{576} : tcp::ipv6_mtu_least;
}

Result<std::optional<TcpSettings>> read_tcp(const Config& config) {
  TcpSettings settings;
  settings.device = config.text("tcp.device");
  if (settings.device.empty()) {
    for (const char* const key : {"tcp.address", "tcp.address6"})
      if (!config.text(key).empty()) return bad_value(config, key, "it needs tcp.device, which is not set");
    return std::nullopt;
  }
  OFP_TRY(parse_device(config, settings));
  settings.limits.programs_max = static_cast<std::uint32_t>(config.integer("tcp.programs_max"));
  if (settings.kind == TcpSettings::Kind::agent) {
    OFP_TRY(check_relay(config, settings));
    return settings;
  }
  OFP_TRY(parse_addresses(config, settings));
  settings.mtu = static_cast<std::uint16_t>(config.integer("tcp.mtu"));
  if (const std::uint16_t least = mtu_least(settings.stack); settings.mtu != 0 && settings.mtu < least)
    return bad_value(config, "tcp.mtu", "{} is less than {}", settings.mtu, least);
  settings.congestion = config.text("tcp.congestion");
  if (const auto known = tcp::congestion_control(settings.congestion); !known)
    return bad_value(config, "tcp.congestion", "{}", known.error().message);
  settings.limits.congestions = 0;
  for (const std::string& name : config.texts("tcp.congestion_allowed")) {
    const auto known = tcp::congestion_control(name);
    if (!known) return bad_value(config, "tcp.congestion_allowed", "{}", known.error().message);
    settings.limits.congestions |= wire::tcp_congestion_bit((*known)->kind());
  }
  const std::string& ecn = config.text("tcp.ecn");
  if (ecn != "classic" && ecn != "accurate")
    return bad_value(config, "tcp.ecn", "'{}' is neither classic nor accurate", ecn);
  if (ecn == "accurate") settings.stack.ecn = tcp::EcnUse::accurate;
  settings.trace_file = config.text("tcp.trace_file");
  OFP_TRY(parse_cores(config, settings));
  const std::string& slow_path = config.text("tcp.slow_path");
  if (slow_path != "agent" && slow_path != "host")
    return bad_value(config, "tcp.slow_path", "'{}' is neither agent nor host", slow_path);
  settings.slow_path_on_host = slow_path == "host";
  const bool has_v6 = !settings.stack.v6.address.is_unspecified();
  if (settings.slow_path_on_host && settings.stack.ecn == tcp::EcnUse::accurate)
    return bad_value(config, "tcp.slow_path",
                     "a slow-path process on the host supports only classic ECN; tcp.ecn is {}", ecn);
  if (settings.slow_path_on_host && has_v6)
    return bad_value(config, "tcp.slow_path",
                     "a slow-path process on the host supports only IPv4; tcp.address6 is set");
  if (has_v6 && settings.cores > 1 && settings.stack.v6.gateway.is_unspecified() &&
      config.text("tcp.gateway6") != no_gateway)
    return bad_value(config, "tcp.gateway6",
                     "routers are heard only if tcp.cores is 1, not {}: name the gateway, or say {}", settings.cores,
                     no_gateway);
  if (settings.slow_path_on_host && settings.cores > 1)
    return bad_value(config, "tcp.slow_path", "a slow-path process on the host serves one core; tcp.cores is {}",
                     settings.cores);
  settings.stack.flows_max = static_cast<std::uint32_t>(config.integer("tcp.flows_max"));
  settings.stack.time_wait_max = std::min(settings.stack.time_wait_max, settings.stack.flows_max / 4 + 1);
  settings.stack.orphans_max = static_cast<std::uint32_t>(config.integer("tcp.orphans_max"));
  settings.stack.orphan_ns = config.duration_ns("tcp.orphan_time");
  settings.stack.orphan_lifetime_ns = config.duration_ns("tcp.orphan_lifetime");
  settings.stack.rto.minimum_ns = config.duration_ns("tcp.rto_min");
  settings.limits.flows_of_program_max = static_cast<std::uint32_t>(config.integer("tcp.flows_of_program"));
  settings.limits.receive_bytes_max = config.bytes("tcp.receive_memory_max");
  settings.limits.receive_bytes_of_user_max = config.bytes("tcp.receive_memory_of_user");
  settings.limits.bytes_of_program_max = config.bytes("tcp.memory_of_program");
  return settings;
}

}  // namespace offpath::agent
