#include "tcp/port/fanout.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "tcp/port/packet_filter.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

namespace {

constexpr int unique_id = 0x2000;  // PACKET_FANOUT_FLAG_UNIQUEID, which older headers lack
constexpr std::uint32_t icmp_header_bytes = 8;

}  // namespace

// X is the offset of the IPv4 header that decides: 0, or behind the ICMP header. M[0] is the hash.
std::vector<sock_filter> steering_program(std::uint32_t cores) {
  using namespace wire::steering;
  std::vector<sock_filter> program;
  std::vector<std::size_t> to_core_0;  // conditional jumps to core 0, patched at the end
  const auto add = [&](int code, std::uint32_t k = 0) { program.push_back(statement(code, k)); };
  const auto unless = [&](std::uint32_t k) {
    to_core_0.push_back(program.size());
    program.push_back(if_equal(k, 0, 0));
  };
  const auto header_bytes = [&] {  // into A, of the IPv4 header at X
    add(BPF_LD | BPF_B | BPF_IND, filter_network);
    add(BPF_ALU | BPF_AND | BPF_K, 15);
    add(BPF_ALU | BPF_LSH | BPF_K, 2);
  };
  const auto multiply = [&](std::uint32_t by) { add(BPF_ALU | BPF_MUL | BPF_K, by); };
  const auto fold = [&](unsigned shift) {  // A ^= A >> shift
    add(BPF_MISC | BPF_TAX);
    add(BPF_ALU | BPF_RSH | BPF_K, shift);
    add(BPF_ALU | BPF_XOR | BPF_X);
  };
  add(BPF_LD | BPF_W | BPF_ABS, filter_ancillary + SKF_AD_PROTOCOL);
  unless(ETH_P_IP);
  add(BPF_LDX | BPF_W | BPF_IMM, 0);
  add(BPF_LD | BPF_B | BPF_ABS, filter_network + 9);
  constexpr std::uint8_t of_icmp = 6;
  program.push_back(if_equal(IPPROTO_ICMP, 0, of_icmp));
  header_bytes();
  add(BPF_ALU | BPF_ADD | BPF_K, icmp_header_bytes);
  add(BPF_MISC | BPF_TAX);
  add(BPF_LD | BPF_B | BPF_IND, filter_network + 9);
  unless(IPPROTO_TCP);
  add(BPF_LD | BPF_W | BPF_IND, filter_network + 12);
  add(BPF_ST, 0);
  add(BPF_LD | BPF_W | BPF_IND, filter_network + 16);
  add(BPF_ST, 1);
  header_bytes();
  add(BPF_ALU | BPF_ADD | BPF_X);
  add(BPF_MISC | BPF_TAX);
  add(BPF_LD | BPF_H | BPF_IND, filter_network);
  add(BPF_ST, 2);
  add(BPF_LD | BPF_H | BPF_IND, filter_network + 2);
  add(BPF_LDX | BPF_W | BPF_MEM, 2);
  add(BPF_ALU | BPF_XOR | BPF_X);
  multiply(ports_multiplier);
  add(BPF_LDX | BPF_W | BPF_MEM, 0);
  add(BPF_ALU | BPF_XOR | BPF_X);
  add(BPF_LDX | BPF_W | BPF_MEM, 1);
  add(BPF_ALU | BPF_XOR | BPF_X);
  fold(first_shift);
  multiply(first_multiplier);
  fold(second_shift);
  multiply(second_multiplier);
  fold(third_shift);
  add(BPF_ALU | BPF_MOD | BPF_K, cores);
  add(BPF_RET | BPF_A);
  for (const std::size_t at : to_core_0) program[at].jf = static_cast<std::uint8_t>(program.size() - at - 1);
  add(BPF_RET | BPF_K, 0);
  return program;
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

Status Fanout::begin(std::optional<Ipv4Address> address) {
  auto steering = steering_program(static_cast<std::uint32_t>(members_.size()));
  const sock_fprog program{static_cast<unsigned short>(steering.size()), steering.data()};
  if (::setsockopt(members_.front(), SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program) != 0)
    return fail_errno(errno, "PACKET_FANOUT_DATA");
  for (const int fd : members_) OFP_TRY(take_frames(fd, address));
  return {};
}

}  // namespace offpath::tcp
