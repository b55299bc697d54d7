// Single frames for a port on one end of a veth pair, from the other end ("far").
#pragma once

#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "tcp/port/port.h"
#include "tcp/segment/ethernet.h"

namespace offpath::kernel_test {

inline constexpr std::uint16_t ethertype_of_experiments = 0x88b5;  // IEEE 802

// Made in the namespace of the device. Closing its socket takes the kernel some milliseconds, so one sends many frames.
class RawSender {
 public:
  explicit RawSender(const char* device = "far") : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
    to_.sll_family = AF_PACKET;
    to_.sll_ifindex = static_cast<int>(::if_nametoindex(device));
  }
  void send(const std::vector<std::byte>& frame) const {
    const auto* const to = reinterpret_cast<const sockaddr*>(&to_);
    ASSERT_EQ(::sendto(fd_.get(), frame.data(), frame.size(), 0, to, sizeof to_), static_cast<ssize_t>(frame.size()));
  }

 private:
  Fd fd_;
  sockaddr_ll to_{};
};

// To be called in the namespace of "far". `after_addresses`: the ethertype, and a tag before it where there is one.
inline void send_raw_frame(const tcp::MacAddress& to_mac, const std::vector<std::uint8_t>& after_addresses) {
  std::vector<std::byte> frame(60);
  tcp::write_ethernet_header({to_mac, {2, 0, 0, 0, 0, 1}, 0}, frame.data());
  std::memcpy(&frame[12], after_addresses.data(), after_addresses.size());
  RawSender().send(frame);
}

// Until one that `is_it`; for a second if none is expected.
template <class IsIt>
bool receives(tcp::Port& device, const IsIt& is_it, bool expected = true) {
  std::array<tcp::ReceivedFrame, 64> frames;
  for (const TimeNs end = monotonic_ns() + (expected ? 30 : 1) * second_ns; monotonic_ns() < end;) {
    const std::size_t count = device.receive(frames, monotonic_ns());
    for (std::size_t i = 0; i < count; ++i)
      if (is_it(frames[i])) return true;
  }
  return false;
}

inline bool is_experiment(const tcp::ReceivedFrame& frame) {
  return tcp::read_ethernet_header(frame.bytes.data()).type == ethertype_of_experiments;
}

inline const std::vector<std::uint8_t> untagged{0x88, 0xb5}, of_vlan_5{0x81, 0x00, 0x00, 0x05, 0x88, 0xb5},
    of_a_priority{0x81, 0x00, 0xe0, 0x00, 0x88, 0xb5};

}  // namespace offpath::kernel_test
