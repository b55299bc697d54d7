#include "tcp/port/shared_address.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace offpath::tcp {

namespace {

constexpr std::uint32_t attach_tcx_ingress = 46;  // BPF_TCX_INGRESS, which older headers lack
constexpr std::int32_t drop = 2, go_on = -1;      // TCX_DROP, TCX_NEXT

constexpr bpf_insn instruction(int code, std::uint8_t to, std::uint8_t from, std::int16_t offset,
                               std::int32_t immediate) noexcept {
  return {static_cast<std::uint8_t>(code), to, from, offset, immediate};
}

// The IPv4 header is at SKF_NET_OFF, whatever precedes it.
std::array<bpf_insn, 11> program_of(const IpAddress& address) noexcept {
  constexpr std::uint8_t context = 6, first = 1, word = 2;
  constexpr std::int32_t protocol_at = SKF_NET_OFF + 9, target_at = SKF_NET_OFF + 16;
  return {instruction(BPF_ALU64 | BPF_MOV | BPF_X, context, first, 0, 0),
          instruction(BPF_LDX | BPF_MEM | BPF_W, word, first, offsetof(__sk_buff, protocol), 0),
          instruction(BPF_JMP | BPF_JNE | BPF_K, word, 0, 6, htons(ETH_P_IP)),
          instruction(BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, target_at),
          instruction(BPF_JMP32 | BPF_JNE | BPF_K, 0, 0, 4, static_cast<std::int32_t>(address.v4())),
          instruction(BPF_LD | BPF_ABS | BPF_B, 0, 0, 0, protocol_at),
          instruction(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 2, IPPROTO_TCP),
          instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, drop),
          instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
          instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, go_on),
          instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)};
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
                    "take it from the interface (ip addr del) and name it in tcp.address",
                    text_of(address), interface, what));
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
