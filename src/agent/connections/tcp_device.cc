#include "agent/connections/tcp_device.h"

#include <net/if.h>

#include <algorithm>

#include "base/log.h"
#include "tcp/port/dpdk_port.h"
#include "tcp/port/packet_port.h"

namespace offpath::agent {

namespace {

// A locally administered address (bit 2) that contains the IPv4 address, so it is unique in the network.
tcp::MacAddress mac_of(tcp::Ipv4Address address) noexcept {
  const auto byte = [address](unsigned shift) { return static_cast<std::uint8_t>(address.value >> shift); };
  return {2, 0, byte(24), byte(16), byte(8), byte(0)};
}

Result<std::unique_ptr<tcp::Port>> open_only(const TcpSettings& settings) {
  switch (settings.kind) {
    case TcpSettings::Kind::tap:
      return tcp::PacketPort::open_tap(settings.device, mac_of(settings.stack.address));
    case TcpSettings::Kind::dpdk:
      return tcp::open_dpdk({settings.device, settings.dpdk_arguments});
    case TcpSettings::Kind::agent:  // has no device here (tcp_relay.h)
    case TcpSettings::Kind::interface:
      break;
  }
  return tcp::PacketPort::open_interface(settings.device, settings.stack.address);
}

}  // namespace

Result<std::vector<std::unique_ptr<tcp::Port>>> open_devices(const TcpSettings& settings) {
  std::vector<std::unique_ptr<tcp::Port>> devices;
  if (settings.cores == 1) {
    OFP_ASSIGN(auto only, open_only(settings));
    devices.push_back(std::move(only));
    return devices;
  }
  tcp::Fanout fanout;
  for (std::uint32_t core = 0; core < settings.cores; ++core) {
    OFP_ASSIGN(auto queue, tcp::PacketPort::open_interface(settings.device, settings.stack.address, &fanout));
    devices.push_back(std::move(queue));
  }
  OFP_TRY(fanout.begin(settings.stack.address));
  return devices;
}

Result<tcp::InterfaceAddress> address_to_take(const std::string& interface,
                                              std::span<const tcp::InterfaceAddress> there) {
  const auto first =
      std::ranges::find_if(there, [](const tcp::InterfaceAddress& each) { return each.address.is_unicast(); });
  if (first == there.end())
    return fail(Error::invalid, "tcp.device: {} has no usable IPv4 address: set tcp.address", interface);
  if (first->prefix_length == 0)
    return fail(Error::invalid, "tcp.device: {} has {} with prefix length 0: set tcp.address with a longer prefix",
                interface, tcp::text_of(first->address));
  return *first;
}

Result<std::optional<tcp::SharedAddress>> settle_address(TcpSettings& settings) {
  if (settings.kind != TcpSettings::Kind::interface) return std::nullopt;
  if (::if_nametoindex(settings.device.c_str()) == 0)
    return fail(Error::not_found, "tcp.device: there is no interface {}; ip link lists the interfaces",
                settings.device);
  OFP_ASSIGN(const auto there, tcp::addresses_of_interface(settings.device));
  if (settings.stack.address.value == 0) {
    OFP_ASSIGN(const tcp::InterfaceAddress first, address_to_take(settings.device, there));
    settings.stack.address = first.address;
    settings.stack.prefix_length = first.prefix_length;
    OFP_ASSIGN(const auto gateway, tcp::gateway_of_interface(settings.device));
    settings.stack.gateway = gateway.value_or(tcp::Ipv4Address{});
    log(LogLevel::info, "tcp: {}/{} of {}{}, where the kernel handles everything but TCP",
        tcp::text_of(settings.stack.address), settings.stack.prefix_length, settings.device,
        gateway ? " by " + tcp::text_of(*gateway) : "");
  }
  if (std::ranges::find(there, settings.stack.address, &tcp::InterfaceAddress::address) == there.end())
    return std::nullopt;
  OFP_ASSIGN(auto shared, tcp::SharedAddress::begin(settings.device, settings.stack.address));
  return shared;
}

}  // namespace offpath::agent
