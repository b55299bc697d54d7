#include "tcp/packet_filter.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace offpath::tcp {

namespace {

Status attach(int socket, std::span<sock_filter> program) {
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0) return fail_errno(errno, "SO_ATTACH_FILTER");
  return {};
}

}  // namespace

Status take_nothing(int socket) {
  std::array program{statement(BPF_RET | BPF_K, 0)};
  return attach(socket, program);
}

Status take_untagged(int socket) {
  constexpr std::uint32_t vlan = 0xfff, whole = ~0u;
  std::array program{statement(BPF_LD | BPF_W | BPF_ABS, filter_ancillary + SKF_AD_VLAN_TAG_PRESENT),
                     if_equal(0, 3, 0),
                     statement(BPF_LD | BPF_W | BPF_ABS, filter_ancillary + SKF_AD_VLAN_TAG),
                     statement(BPF_ALU | BPF_AND | BPF_K, vlan),
                     if_equal(0, 0, 1),
                     statement(BPF_RET | BPF_K, whole),
                     statement(BPF_RET | BPF_K, 0)};
  return attach(socket, program);
}

}  // namespace offpath::tcp
