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

#include "tcp/port/bpf_program.h"

namespace offpath::tcp {

namespace {

constexpr std::uint32_t attach_tcx_ingress = 46;  // BPF_TCX_INGRESS, which older headers lack
constexpr std::int32_t drop = 2, go_on = -1;      // TCX_DROP, TCX_NEXT

// The IPv4 header is at SKF_NET_OFF, whatever precedes it. Loads by that offset take the context in register 6, and end
// the program with 0 (TCX_PASS) where the frame is shorter.
std::vector<bpf_insn> program_of(const IpAddress& address) {
  constexpr int result = 0, argument = 1, protocol = 2, context = 6;
  constexpr std::int32_t protocol_at = SKF_NET_OFF + 9, target_at = SKF_NET_OFF + 16;
  BpfProgram program;
  BpfProgram::Label others;
  program.copy(context, argument);
  program.load(BPF_W, protocol, argument, offsetof(__sk_buff, protocol));
  program.jump_unless(protocol, htons(ETH_P_IP), others);
  program.add(BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, target_at);
  program.jump_unless(result, address.v4(), others);
  program.add(BPF_LD | BPF_ABS | BPF_B, 0, 0, 0, protocol_at);
  program.jump_unless(result, IPPROTO_TCP, others);
  program.set(result, drop);
  program.exit();
  program.place(others);
  program.set(result, go_on);
  program.exit();
  return program.take();
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
  attributes.insn_cnt = static_cast<std::uint32_t>(program.size());
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
