#include "tcp/port/shared_address.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace offpath::tcp {

namespace {

constexpr std::uint32_t attach_tcx_ingress = 46;  // BPF_TCX_INGRESS, which older headers lack
constexpr std::int32_t drop = 2, go_on = -1;      // TCX_DROP, TCX_NEXT

constexpr bpf_insn instruction(int code, std::uint8_t to, std::uint8_t from, std::int16_t offset,
                               std::int32_t immediate) noexcept {
  return {static_cast<std::uint8_t>(code), to, from, offset, immediate};
}

// The IP header is at SKF_NET_OFF, whatever precedes it. Any other frame goes on.
std::vector<bpf_insn> program_of(const IpAddress& address) {
  constexpr std::uint8_t context = 6, first = 1, word = 2;
  const bool is_v4 = address.is_v4();
  const std::int32_t protocol_at = SKF_NET_OFF + (is_v4 ? 9 : 6), target_at = SKF_NET_OFF + (is_v4 ? 16 : 24);
  std::vector<bpf_insn> program{instruction(BPF_ALU64 | BPF_MOV | BPF_X, context, first, 0, 0),
                                instruction(BPF_LDX | BPF_MEM | BPF_W, word, first, offsetof(__sk_buff, protocol), 0)};
  std::vector<std::size_t> to_others;  // jumps, patched at the end
  const auto go_on_unless = [&](int code, std::uint8_t value, std::uint32_t is) {
    to_others.push_back(program.size());
    program.push_back(instruction(code | BPF_JNE | BPF_K, value, 0, 0, static_cast<std::int32_t>(is)));
  };
  go_on_unless(BPF_JMP, word, htons(is_v4 ? ETH_P_IP : ETH_P_IPV6));
  for (unsigned i = is_v4 ? 3 : 0; i < 4; ++i) {
    const auto offset = static_cast<std::int32_t>(is_v4 ? 0 : 4 * i);
    program.push_back(instruction(BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, target_at + offset));
    go_on_unless(BPF_JMP32, 0, address.word(i));
  }
  program.push_back(instruction(BPF_LD | BPF_ABS | BPF_B, 0, 0, 0, protocol_at));
  go_on_unless(BPF_JMP, 0, IPPROTO_TCP);
  for (const std::int32_t verdict : {drop, go_on}) {
    if (verdict == go_on)
      for (const std::size_t at : to_others) program[at].off = static_cast<std::int16_t>(program.size() - at - 1);
    program.push_back(instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, verdict));
    program.push_back(instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
  }
  return program;
}

int bpf(int command, bpf_attr& attributes) noexcept {
  return static_cast<int>(::syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

}  // namespace

Result<SharedAddress> SharedAddress::begin(const std::string& interface, const IpAddress& address) {
  const auto failed = [&](const char* what, int error) {
    return fail_errno(
        error,
        fmt::format("the kernel has {} on {}, too, and cannot be told to leave TCP there alone (Linux 6.6 can): {}; "
                    "take it from the interface (ip addr del) and name it in {}",
                    text_of(address), interface, what, address.is_v4() ? "tcp.address" : "tcp.address6"));
  };
  const unsigned index = ::if_nametoindex(interface.c_str());
  if (index == 0) return fail_errno(errno, "if_nametoindex of " + interface);
  const auto program = program_of(address);
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_SCHED_CLS;
  attributes.insns = reinterpret_cast<std::uintptr_t>(program.data());
  attributes.insn_cnt = program.size();
  attributes.license = reinterpret_cast<std::uintptr_t>("Apache-2.0");
  const Fd loaded(bpf(BPF_PROG_LOAD, attributes));
  if (!loaded) return failed("BPF_PROG_LOAD", errno);
  attributes = {};
  attributes.link_create.prog_fd = static_cast<std::uint32_t>(loaded.get());
  attributes.link_create.target_ifindex = index;
  attributes.link_create.attach_type = attach_tcx_ingress;
  Fd link(bpf(BPF_LINK_CREATE, attributes));
  if (!link) return failed("BPF_LINK_CREATE", errno);
  return SharedAddress(std::move(link));
}

}  // namespace offpath::tcp
