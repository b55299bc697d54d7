#include "tcp/port/packet_filter.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>

#include "tcp/segment/icmp.h"

namespace offpath::tcp {

namespace {

Status attach(int socket, std::span<sock_filter> program) {
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
    return fail_errno(errno, "SO_ATTACH_FILTER");
  return {};
}

}  // namespace

Status take_nothing(int socket) {
  std::array program{statement(BPF_RET | BPF_K, 0)};
  return attach(socket, program);
}

std::vector<sock_filter> taking_program(std::optional<Ipv4Address> address) {
  constexpr std::uint32_t vlan = 0xfff, offset_or_more = 0x3fff, whole = ~0u;
  struct Exit {
    std::size_t at;
    bool if_true, takes;
  };
  std::vector<sock_filter> program;
  std::vector<Exit> exits;
  const auto load = [&](int size, std::uint32_t from) { program.push_back(statement(BPF_LD | size | BPF_ABS, from)); };
  const auto leave = [&](sock_filter jump, bool if_true, bool takes) {
    exits.push_back({program.size(), if_true, takes});
    program.push_back(jump);
  };
  const auto only = [&](std::uint32_t k) { leave(if_equal(k, 0, 0), false, false); };
  load(BPF_W, filter_ancillary + SKF_AD_PKTTYPE);
  leave(if_equal(PACKET_OUTGOING, 0, 0), true, false);
  load(BPF_W, filter_ancillary + SKF_AD_VLAN_TAG_PRESENT);
  program.push_back(if_equal(0, 3, 0));
  load(BPF_W, filter_ancillary + SKF_AD_VLAN_TAG);
  program.push_back(statement(BPF_ALU | BPF_AND | BPF_K, vlan));
  only(0);
  if (address) {
    load(BPF_W, filter_ancillary + SKF_AD_PROTOCOL);
    leave(if_equal(ETH_P_ARP, 0, 0), true, true);
    only(ETH_P_IP);
    load(BPF_W, filter_network + 16);
    only(address->value);
    load(BPF_H, filter_network + 6);
    program.push_back(statement(BPF_ALU | BPF_AND | BPF_K, offset_or_more));
    only(0);
    load(BPF_B, filter_network + 9);
    leave(if_equal(IPPROTO_TCP, 0, 0), true, true);
    only(IPPROTO_ICMP);
    load(BPF_B, filter_network);
    program.push_back(statement(BPF_ALU | BPF_AND | BPF_K, 15));
    program.push_back(statement(BPF_ALU | BPF_LSH | BPF_K, 2));
    program.push_back(statement(BPF_MISC | BPF_TAX, 0));
    program.push_back(statement(BPF_LD | BPF_B | BPF_IND, filter_network));
    only(icmp_unreachable);
  }
  const std::size_t takes = program.size();
  program.push_back(statement(BPF_RET | BPF_K, whole));
  program.push_back(statement(BPF_RET | BPF_K, 0));
  for (const Exit& each : exits) {
    const auto by = static_cast<std::uint8_t>(takes + (each.takes ? 0 : 1) - each.at - 1);
    (each.if_true ? program[each.at].jt : program[each.at].jf) = by;
  }
  return program;
}

Status take_frames(int socket, std::optional<Ipv4Address> address) {
  auto program = taking_program(address);
  return attach(socket, program);
}

}  // namespace offpath::tcp
