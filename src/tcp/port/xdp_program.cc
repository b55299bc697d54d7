#include "tcp/port/xdp_program.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>

#include <cstddef>

#include "tcp/port/bpf_program.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/ipv6.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

namespace {

using namespace wire::steering;

// Registers; calls overwrite 0 to 5. `word` is what was read last. `data` and `end` enclose the frame.
struct In {
  static constexpr int result = 0, argument_1 = 1, argument_2 = 2, argument_3 = 3, word = 2, addresses = 4, ports = 5,
                       context = 6, data = 7, end = 8;
};
constexpr int ip_at = ethernet_header_bytes, ports_bytes = 4;

// Jumps unless the frame has `bytes`.
void need(BpfProgram& program, int bytes, BpfProgram::Label& otherwise) {
  program.copy(In::word, In::data);
  program.add(BPF_ALU64 | BPF_ADD | BPF_K, In::word, 0, 0, bytes);
  program.jump_if_beyond(In::word, In::end, otherwise);
}

// Puts the exclusive or of the ports at `at` into `In::ports`.
void read_ports(BpfProgram& program, int at) {
  program.load(BPF_H, In::ports, In::data, at);
  program.load(BPF_H, In::word, In::data, at + 2);
  program.combine(BPF_XOR, In::ports, In::word);
  program.to_host_order(16, In::ports);
}

// Puts the exclusive or of the addresses into `In::addresses`, and that of the ports into `In::ports`.
void read_ipv4(BpfProgram& program, const IpAddress& own, BpfProgram::Label& found, BpfProgram::Label& pass) {
  constexpr int fragment_at = ip_at + 6, protocol_at = ip_at + 9, source_at = ip_at + 12, target_at = ip_at + 16;
  constexpr std::uint16_t offset_or_more = 0x3fff;
  need(program, ip_at + ipv4_header_bytes + ports_bytes, pass);
  program.load(BPF_W, In::addresses, In::data, target_at);
  program.jump_unless(In::addresses, htonl(own.v4()), pass);
  program.load(BPF_B, In::word, In::data, protocol_at);
  program.jump_unless(In::word, protocol_tcp, pass);
  program.load(BPF_H, In::word, In::data, fragment_at);
  program.calculate(BPF_AND, In::word, htons(offset_or_more));
  program.jump_unless(In::word, 0, pass);
  program.load(BPF_W, In::word, In::data, source_at);
  program.combine(BPF_XOR, In::addresses, In::word);
  // A stretch for each length of the header: to offsets that are computed the verifier agrees with CAP_PERFMON alone.
  program.load(BPF_B, In::word, In::data, ip_at);
  program.calculate(BPF_AND, In::word, 15);
  for (int words = 5; words <= 15; ++words) {
    BpfProgram::Label longer;
    program.jump_unless(In::word, static_cast<std::uint32_t>(words), longer);
    need(program, ip_at + 4 * words + ports_bytes, pass);
    read_ports(program, ip_at + 4 * words);
    program.jump(found);
    program.place(longer);
  }
  program.jump(pass);
}

void read_ipv6(BpfProgram& program, const IpAddress& own, BpfProgram::Label& pass) {
  constexpr int next_header_at = ip_at + 6, addresses_at = ip_at + 8, target_at = ip_at + 24;
  need(program, ip_at + ipv6_header_bytes + ports_bytes, pass);
  program.load(BPF_B, In::word, In::data, next_header_at);
  program.jump_unless(In::word, protocol_tcp, pass);
  for (unsigned word = 0; word < 4; ++word) {
    program.load(BPF_W, In::word, In::data, target_at + static_cast<int>(4 * word));
    program.jump_unless(In::word, htonl(own.word(word)), pass);
  }
  program.load(BPF_W, In::addresses, In::data, addresses_at);
  for (int word = 1; word < 8; ++word) {
    program.load(BPF_W, In::word, In::data, addresses_at + 4 * word);
    program.combine(BPF_XOR, In::addresses, In::word);
  }
  read_ports(program, ip_at + ipv6_header_bytes);
}

// Turns `In::addresses` and `In::ports` into the core, in `In::addresses`.
void find_core(BpfProgram& program, std::uint32_t cores) {
  const auto multiply = [&](int of, std::uint32_t by) {
    program.calculate(BPF_MUL, of, static_cast<std::int32_t>(by));
  };
  const auto fold = [&](unsigned shift) {
    program.add(BPF_ALU | BPF_MOV | BPF_X, In::ports, In::addresses);
    program.calculate(BPF_RSH, In::ports, static_cast<std::int32_t>(shift));
    program.combine(BPF_XOR, In::addresses, In::ports);
  };
  program.to_host_order(32, In::addresses);
  multiply(In::ports, ports_multiplier);
  program.combine(BPF_XOR, In::addresses, In::ports);
  fold(first_shift);
  multiply(In::addresses, first_multiplier);
  fold(second_shift);
  multiply(In::addresses, second_multiplier);
  fold(third_shift);
  program.calculate(BPF_MOD, In::addresses, static_cast<std::int32_t>(cores));
}

}  // namespace

std::vector<bpf_insn> redirecting_program(const FrameTargets& targets, std::uint32_t cores, int sockets) {
  const bool has_v4 = !targets.v4.is_unspecified(), has_v6 = !targets.v6.is_unspecified();
  BpfProgram program;
  BpfProgram::Label pass, v4, v6, found;
  program.copy(In::context, In::argument_1);
  program.load(BPF_W, In::data, In::context, offsetof(xdp_md, data));
  program.load(BPF_W, In::end, In::context, offsetof(xdp_md, data_end));
  need(program, ip_at, pass);
  program.load(BPF_H, In::addresses, In::data, offsetof(ethhdr, h_proto));
  if (has_v4) program.jump_if(In::addresses, htons(ETH_P_IP), v4);
  if (has_v6) program.jump_if(In::addresses, htons(ETH_P_IPV6), v6);
  program.jump(pass);
  if (has_v4) {
    program.place(v4);
    read_ipv4(program, targets.v4, found, pass);
  }
  if (has_v6) {
    program.place(v6);
    read_ipv6(program, targets.v6, pass);
  }
  program.place(found);
  find_core(program, cores);
  program.load(BPF_W, In::argument_2, In::context, offsetof(xdp_md, rx_queue_index));
  program.calculate(BPF_MUL, In::argument_2, static_cast<std::int32_t>(cores));
  program.combine(BPF_ADD, In::argument_2, In::addresses);
  program.load_map(In::argument_1, sockets);
  program.set(In::argument_3, XDP_PASS);  // if the map has no such socket
  program.call(BPF_FUNC_redirect_map);
  program.exit();
  program.place(pass);
  program.set(In::result, XDP_PASS);
  program.exit();
  return program.take();
}

}  // namespace offpath::tcp
