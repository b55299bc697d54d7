#include "agent/tcp_settings.h"

#include <charconv>

#include "tcp/congestion.h"

namespace offpath::agent {

namespace {

Status parse_address(const Config& config, tcp::StackOptions& stack) {
  const std::string& text = config.text("tcp.address");
  const std::size_t slash = text.find('/');
  const auto address = tcp::ipv4_address(std::string_view(text).substr(0, slash));
  unsigned prefix = 0;
  const char* const end = text.data() + text.size();
  const bool good = slash != std::string::npos && [&] {
    const auto [rest, error] = std::from_chars(text.data() + slash + 1, end, prefix);
    return error == std::errc() && rest == end && prefix >= 1 && prefix <= 31;
  }();
  if (!address || !good || !address->is_unicast())
    return bad_value(config, "tcp.address", "'{}' is no address with the length of its network, such as 10.0.0.2/24", text);
  stack.address = *address;
  stack.prefix_length = static_cast<std::uint8_t>(prefix);
  return {};
}

Status parse_gateway(const Config& config, tcp::StackOptions& stack) {
  const std::string& text = config.text("tcp.gateway");
  if (text.empty()) return {};
  const auto gateway = tcp::ipv4_address(text);
  if (!gateway) return bad_value(config, "tcp.gateway", "{}", gateway.error().message);
  const unsigned shift = 32u - stack.prefix_length;
  if (gateway->value >> shift != stack.address.value >> shift || *gateway == stack.address)
    return bad_value(config, "tcp.gateway", "{} is none of the others in the network of {}", text, config.text("tcp.address"));
  stack.gateway = *gateway;
  return {};
}

}  // namespace

Result<std::optional<TcpSettings>> read_tcp(const Config& config) {
  constexpr std::string_view tap = "tap:";
  TcpSettings settings;
  settings.device = config.text("tcp.device");
  if (settings.device.empty()) {
    if (!config.text("tcp.address").empty()) return bad_value(config, "tcp.address", "it is the address of tcp.device, which is not set");
    return std::nullopt;
  }
  settings.tap = settings.device.starts_with(tap);
  if (settings.tap) settings.device.erase(0, tap.size());
  OFP_TRY(parse_address(config, settings.stack));
  OFP_TRY(parse_gateway(config, settings.stack));
  settings.mtu = static_cast<std::uint16_t>(config.integer("tcp.mtu"));
  if (settings.mtu != 0 && settings.mtu < 576) return bad_value(config, "tcp.mtu", "{} is less than 576", settings.mtu);
  settings.congestion = config.text("tcp.congestion");
  if (const auto known = tcp::congestion_control(settings.congestion); !known) return bad_value(config, "tcp.congestion", "{}", known.error().message);
  settings.trace_file = config.text("tcp.trace_file");
  settings.stack.flows_max = static_cast<std::uint32_t>(config.integer("tcp.flows_max"));
  settings.stack.time_wait_max = std::min(settings.stack.time_wait_max, settings.stack.flows_max / 4 + 1);
  settings.limits.programs_max = static_cast<std::uint32_t>(config.integer("tcp.programs_max"));
  settings.limits.flows_of_program_max = static_cast<std::uint32_t>(config.integer("tcp.flows_of_program"));
  settings.limits.bytes_of_program_max = config.bytes("tcp.memory_of_program");
  return settings;
}

}  // namespace offpath::agent
