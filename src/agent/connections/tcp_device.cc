#include "agent/connections/tcp_device.h"

#include <net/if.h>

#include <algorithm>

#include "base/log.h"
#include "tcp/port/dpdk_port.h"
#include "tcp/port/packet_port.h"
#include "tcp/port/xdp_port.h"

namespace offpath::agent {

namespace {

// A locally administered address (bit 2) that contains the end of the IP address, so it is unique in the network.
tcp::MacAddress mac_of(const tcp::StackOptions& stack) noexcept {
  const auto& bytes = (stack.v4.address.is_unspecified() ? stack.v6 : stack.v4).address.bytes;
  return {2, 0, bytes[12], bytes[13], bytes[14], bytes[15]};
}

tcp::FrameTargets targets_of(const TcpSettings& settings) noexcept {
  return {settings.stack.v4.address, settings.stack.v6.address, settings.cores > 1};
}

using Devices = std::vector<std::unique_ptr<tcp::Port>>;

template <class AnyPort>
Result<Devices> alone(Result<std::unique_ptr<AnyPort>> opened) {
  OFP_ASSIGN(auto port, std::move(opened));
  Devices devices;
  devices.push_back(std::move(port));
  return devices;
}

Result<Devices> open_packet(const TcpSettings& settings) {
  if (settings.cores == 1) return alone(tcp::PacketPort::open_interface(settings.device, targets_of(settings)));
  Devices devices;
  tcp::Fanout fanout;
  for (std::uint32_t core = 0; core < settings.cores; ++core) {
    OFP_ASSIGN(auto queue, tcp::PacketPort::open_interface(settings.device, targets_of(settings), &fanout));
    devices.push_back(std::move(queue));
  }
  OFP_TRY(fanout.begin(targets_of(settings)));
  return devices;
}

Result<Devices> open_xdp(const TcpSettings& settings, bool zero_copy_only) {
  return tcp::open_xdp({settings.device, targets_of(settings), settings.cores, zero_copy_only});
}

Result<Devices> open_best(const TcpSettings& settings) {
  auto by_xdp = open_xdp(settings, true);
  log(LogLevel::info, "tcp.device auto:{}: {}", settings.device, reason_of_choice(by_xdp));
  return by_xdp ? std::move(by_xdp) : open_packet(settings);
}

}  // namespace

std::string reason_of_choice(const Result<std::vector<std::unique_ptr<tcp::Port>>>& zero_copy) {
  if (zero_copy) return "AF_XDP, because its driver has zero-copy";
  return fmt::format("AF_PACKET, because AF_XDP carries streams more slowly unless the driver has zero-copy: {}",
                     zero_copy.error().message);
}

Result<std::vector<std::unique_ptr<tcp::Port>>> open_devices(const TcpSettings& settings) {
  switch (settings.kind) {
    case TcpSettings::Kind::tap:
      return alone(tcp::PacketPort::open_tap(settings.device, mac_of(settings.stack)));
    case TcpSettings::Kind::dpdk:
      return tcp::open_dpdk({settings.device, settings.dpdk_arguments, settings.cores});
    case TcpSettings::Kind::xdp:
      return open_xdp(settings, false);
    case TcpSettings::Kind::best:
      return open_best(settings);
    case TcpSettings::Kind::agent:  // has no device here (tcp_relay.h)
    case TcpSettings::Kind::interface:
      break;
  }
  return open_packet(settings);
}

Result<tcp::InterfaceAddress> address_to_take(const std::string& interface,
                                              std::span<const tcp::InterfaceAddress> there) {
  const auto first = std::ranges::find_if(
      there, [](const tcp::InterfaceAddress& each) { return each.address.is_v4() && tcp::is_unicast(each.address); });
  if (first == there.end())
    return fail(Error::invalid, "tcp.device: {} has no usable IPv4 address: set tcp.address", interface);
  if (first->prefix_length == 0)
    return fail(Error::invalid, "tcp.device: {} has {} with prefix length 0: set tcp.address with a longer prefix",
                interface, tcp::text_of(first->address));
  return *first;
}

Result<std::optional<tcp::SharedAddress>> settle_address(TcpSettings& settings) {
  if (!settings.kernel_has_interface()) return std::nullopt;
  if (::if_nametoindex(settings.device.c_str()) == 0)
    return fail(Error::not_found, "tcp.device: there is no interface {}; ip link lists the interfaces",
                settings.device);
  OFP_ASSIGN(const auto there, tcp::addresses_of_interface(settings.device));
  tcp::IpInterface &v4 = settings.stack.v4, &v6 = settings.stack.v6;
  if (v4.address.is_unspecified() && v6.address.is_unspecified()) {
    OFP_ASSIGN(const tcp::InterfaceAddress first, address_to_take(settings.device, there));
    OFP_ASSIGN(const auto gateway, tcp::gateway_of_interface(settings.device));
    v4 = {first.address, first.prefix_length, gateway.value_or(tcp::IpAddress{})};
    log(LogLevel::info, "tcp: {}/{} of {}{}, where the kernel handles everything but TCP", tcp::text_of(v4.address),
        v4.prefix_length, settings.device, gateway ? " by " + tcp::text_of(*gateway) : "");
  }
  const auto kernel_has = [&](const tcp::IpAddress& own) {
    return std::ranges::find(there, own, &tcp::InterfaceAddress::address) != there.end();
  };
  if (kernel_has(v6.address))
    return fail(
        Error::unsupported,
        "tcp.address6: the kernel has {} on {}, too, and does not share it: take it from the interface (ip addr "
        "del)",
        tcp::text_of(v6.address), settings.device);
  if (!kernel_has(v4.address)) return std::nullopt;
  OFP_ASSIGN(auto shared, tcp::SharedAddress::begin(settings.device, v4.address));
  return shared;
}

}  // namespace offpath::agent
