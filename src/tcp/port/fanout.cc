#include "tcp/port/fanout.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <cerrno>

#include "tcp/port/filter_program.h"
#include "tcp/segment/ipv6.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

namespace {

constexpr int unique_id = 0x2000;  // PACKET_FANOUT_FLAG_UNIQUEID, which older headers lack
constexpr std::uint32_t icmp_header_bytes = 8, icmpv6_informational = 0x80;  // a bit of its type

using namespace wire::steering;
using Label = FilterProgram::Label;

// Puts the exclusive or of the IPv4 addresses into M[0], and that of the ports into A. X is the offset of the header
// that decides: 0, or behind the ICMP header.
void read_ipv4_flow(FilterProgram& program, Label& core_0) {
  Label of_tcp;
  const auto header_bytes = [&] {  // into A, of the IPv4 header at X
    program.add(BPF_LD | BPF_B | BPF_IND, filter_network);
    program.add(BPF_ALU | BPF_AND | BPF_K, 15);
    program.add(BPF_ALU | BPF_LSH | BPF_K, 2);
  };
  program.add(BPF_LDX | BPF_W | BPF_IMM, 0);
  program.load(BPF_B, filter_network + 9);
  program.jump_unless(protocol_icmp, of_tcp);
  header_bytes();
  program.add(BPF_ALU | BPF_ADD | BPF_K, icmp_header_bytes);
  program.add(BPF_MISC | BPF_TAX);
  program.add(BPF_LD | BPF_B | BPF_IND, filter_network + 9);
  program.place(of_tcp);
  program.jump_unless(protocol_tcp, core_0);
  program.add(BPF_LD | BPF_W | BPF_IND, filter_network + 12);
  program.add(BPF_ST, 0);
  program.add(BPF_LD | BPF_W | BPF_IND, filter_network + 16);
  program.add(BPF_ST, 1);
  header_bytes();
  program.add(BPF_ALU | BPF_ADD | BPF_X);
  program.add(BPF_MISC | BPF_TAX);
  program.add(BPF_LD | BPF_H | BPF_IND, filter_network);
  program.add(BPF_ST, 2);
  program.add(BPF_LD | BPF_H | BPF_IND, filter_network + 2);
  program.add(BPF_ST, 3);
  program.add(BPF_LD | BPF_MEM, 0);
  program.add(BPF_LDX | BPF_W | BPF_MEM, 1);
  program.add(BPF_ALU | BPF_XOR | BPF_X);
  program.add(BPF_ST, 0);
  program.add(BPF_LD | BPF_MEM, 3);
  program.add(BPF_LDX | BPF_W | BPF_MEM, 2);
  program.add(BPF_ALU | BPF_XOR | BPF_X);
}

// The same of the IPv6 header at this place, which has TCP's behind it.
void read_ipv6_flow(FilterProgram& program, std::uint32_t header_at) {
  constexpr std::uint32_t addresses = 8, words = 8;
  program.load(BPF_W, header_at + addresses);
  for (std::uint32_t word = 1; word < words; ++word) {
    program.add(BPF_MISC | BPF_TAX);
    program.load(BPF_W, header_at + addresses + 4 * word);
    program.add(BPF_ALU | BPF_XOR | BPF_X);
  }
  program.add(BPF_ST, 0);
  program.load(BPF_H, header_at + ipv6_header_bytes);
  program.add(BPF_MISC | BPF_TAX);
  program.load(BPF_H, header_at + ipv6_header_bytes + 2);
  program.add(BPF_ALU | BPF_XOR | BPF_X);
}

}  // namespace

std::vector<sock_filter> steering_program(std::uint32_t cores) {
  FilterProgram program;
  Label core_0, v6, quotes, hash;
  constexpr std::uint32_t next_header = 6, quoted = filter_network + ipv6_header_bytes + icmp_header_bytes;
  const auto multiply = [&](std::uint32_t by) { program.add(BPF_ALU | BPF_MUL | BPF_K, by); };
  const auto fold = [&](unsigned shift) {  // A ^= A >> shift
    program.add(BPF_MISC | BPF_TAX);
    program.add(BPF_ALU | BPF_RSH | BPF_K, shift);
    program.add(BPF_ALU | BPF_XOR | BPF_X);
  };
  program.load(BPF_W, filter_ancillary + SKF_AD_PROTOCOL);
  program.jump_if(ETH_P_IPV6, v6);
  program.jump_unless(ETH_P_IP, core_0);
  read_ipv4_flow(program, core_0);
  program.jump(hash);
  program.place(v6);
  program.load(BPF_B, filter_network + next_header);
  program.jump_if(protocol_icmpv6, quotes);
  program.jump_unless(protocol_tcp, core_0);
  read_ipv6_flow(program, filter_network);
  program.jump(hash);
  program.place(quotes);
  program.load(BPF_B, filter_network + ipv6_header_bytes);
  program.add(BPF_ALU | BPF_AND | BPF_K, icmpv6_informational);
  program.jump_unless(0, core_0);
  program.load(BPF_B, quoted + next_header);
  program.jump_unless(protocol_tcp, core_0);
  read_ipv6_flow(program, quoted);
  program.place(hash);
  multiply(ports_multiplier);
  program.add(BPF_LDX | BPF_W | BPF_MEM, 0);
  program.add(BPF_ALU | BPF_XOR | BPF_X);
  fold(first_shift);
  multiply(first_multiplier);
  fold(second_shift);
  multiply(second_multiplier);
  fold(third_shift);
  program.add(BPF_ALU | BPF_MOD | BPF_K, cores);
  program.add(BPF_RET | BPF_A);
  program.place(core_0);
  program.add(BPF_RET | BPF_K, 0);
  return program.take();
}

Status Fanout::join(int fd) {
  const bool first = group_ < 0;
  const int type = PACKET_FANOUT_CBPF | (first ? unique_id : 0);
  int asked = (first ? 0 : group_) | type << 16;
  if (::setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &asked, sizeof asked) != 0)
    return fail_errno(errno, "PACKET_FANOUT, which more cores than one take (tcp.cores)");
  if (first) {
    socklen_t bytes = sizeof asked;
    if (::getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &asked, &bytes) != 0) return fail_errno(errno, "PACKET_FANOUT");
    group_ = asked & 0xffff;
  }
  members_.push_back(fd);
  return {};
}

Status Fanout::begin(const std::optional<FrameTargets>& targets) {
  auto steering = steering_program(static_cast<std::uint32_t>(members_.size()));
  const sock_fprog program{static_cast<unsigned short>(steering.size()), steering.data()};
  if (::setsockopt(members_.front(), SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program) != 0)
    return fail_errno(errno, "PACKET_FANOUT_DATA");
  for (const int fd : members_) OFP_TRY(take_frames(fd, targets));
  return {};
}

}  // namespace offpath::tcp
