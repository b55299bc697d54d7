#include "tcp/port/packet_filter.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>

#include "tcp/port/filter_program.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/ipv6.h"
#include "tcp/segment/multicast_listener.h"
#include "tcp/segment/neighbour_discovery.h"

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
  FilterProgram nothing;
  nothing.add(BPF_RET | BPF_K, 0);
  auto program = nothing.take();
  return attach(socket, program);
}

namespace {

using Label = FilterProgram::Label;

// The conditions on a datagram to the stack's own IPv4 address.
void take_ipv4(FilterProgram& program, const FrameTargets& targets, Label& takes, Label& drops) {
  constexpr std::uint32_t offset_or_more = 0x3fff;
  program.load(BPF_W, filter_network + 16);
  program.jump_unless(targets.v4.v4(), drops);
  program.load(BPF_H, filter_network + 6);
  program.add(BPF_ALU | BPF_AND | BPF_K, offset_or_more);
  program.jump_unless(0, drops);
  program.load(BPF_B, filter_network + 9);
  if (targets.tcp) program.jump_if(protocol_tcp, takes);
  program.jump_unless(protocol_icmp, drops);
  program.load(BPF_B, filter_network);
  program.add(BPF_ALU | BPF_AND | BPF_K, 15);
  program.add(BPF_ALU | BPF_LSH | BPF_K, 2);
  program.add(BPF_MISC | BPF_TAX);
  program.add(BPF_LD | BPF_B | BPF_IND, filter_network);
  program.jump_if(icmp_unreachable, takes);
  program.jump(drops);
}

void take_ipv6(FilterProgram& program, const FrameTargets& targets, Label& takes, Label& drops) {
  constexpr std::uint32_t next_header_at = filter_network + 6, target_at = filter_network + 24,
                          icmpv6_type_at = filter_network + ipv6_header_bytes;
  constexpr std::uint8_t hop_by_hop = 0, extensions[] = {hop_by_hop, 43, 60};  // those that ipv6.h skips
  Label other, group, options;
  for (unsigned word = 0; word < 4; ++word) {
    program.load(BPF_W, target_at + 4 * word);
    program.jump_unless(targets.v6.word(word), other);
  }
  program.load(BPF_B, next_header_at);
  if (targets.tcp) program.jump_if(protocol_tcp, takes);
  if (!targets.steered)
    for (const std::uint8_t extension : extensions) program.jump_if(extension, takes);
  program.jump_unless(protocol_icmpv6, drops);
  program.load(BPF_B, icmpv6_type_at);
  for (const std::uint8_t type : {icmpv6_unreachable, icmpv6_too_big, icmpv6_parameter_problem})
    program.jump_if(type, takes);
  program.jump(group);
  program.place(other);
  program.load(BPF_B, target_at);
  program.jump_unless(0xff, drops);
  program.load(BPF_B, next_header_at);
  program.jump_if(hop_by_hop, options);
  program.jump_unless(protocol_icmpv6, drops);
  program.load(BPF_B, icmpv6_type_at);
  program.place(group);
  for (const std::uint8_t type : {nd_router_advertisement, nd_neighbour_solicitation, nd_neighbour_advertisement})
    program.jump_if(type, takes);
  program.jump(drops);
  // Routers' queries for listeners of a group follow an option of eight bytes.
  program.place(options);
  program.load(BPF_B, icmpv6_type_at + 8);
  program.jump_if(mld_query, takes);
  program.jump(drops);
}

}  // namespace

std::vector<sock_filter> taking_program(const std::optional<FrameTargets>& targets) {
  constexpr std::uint32_t vlan = 0xfff, whole = ~0u;
  FilterProgram program;
  Label takes, drops, untagged, v4, v6;
  program.load(BPF_W, filter_ancillary + SKF_AD_PKTTYPE);
  program.jump_if(PACKET_OUTGOING, drops);
  program.load(BPF_W, filter_ancillary + SKF_AD_VLAN_TAG_PRESENT);
  program.jump_if(0, untagged);
  program.load(BPF_W, filter_ancillary + SKF_AD_VLAN_TAG);
  program.add(BPF_ALU | BPF_AND | BPF_K, vlan);
  program.jump_unless(0, drops);
  program.place(untagged);
  if (targets) {
    program.load(BPF_W, filter_ancillary + SKF_AD_PROTOCOL);
    program.jump_if(ETH_P_ARP, takes);
    if (!targets->v4.is_unspecified()) program.jump_if(ETH_P_IP, v4);
    if (!targets->v6.is_unspecified()) program.jump_if(ETH_P_IPV6, v6);
    program.jump(drops);
    program.place(v4);
    if (!targets->v4.is_unspecified()) take_ipv4(program, *targets, takes, drops);
    program.place(v6);
    if (!targets->v6.is_unspecified()) take_ipv6(program, *targets, takes, drops);
  }
  program.place(takes);
  program.add(BPF_RET | BPF_K, whole);
  program.place(drops);
  program.add(BPF_RET | BPF_K, 0);
  return program.take();
}

Status take_frames(int socket, const std::optional<FrameTargets>& targets) {
  auto program = taking_program(targets);
  return attach(socket, program);
}

}  // namespace offpath::tcp
