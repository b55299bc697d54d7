// Any bytes as a datagram, as ARP and as ICMP: dropped under a reason, or read within their bounds. A segment's
// options, once read, survive writing and reading again.
#include <array>
#include <vector>

#include "base/status.h"
#include "tcp/segment/arp.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/segment.h"

using namespace offpath;
using namespace offpath::tcp;

namespace {

bool within(Bytes inner, Bytes outer) {
  return inner.empty() || (inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size());
}

void check_segment(const Ipv4Packet& packet) {
  Segment segment;
  if (read_segment(packet, true, segment) != Drop::none) return;
  OFP_ASSERT(within(segment.payload, packet.payload));
  OFP_ASSERT(segment.options.sack_count <= sack_blocks_max &&
             segment.options.window_scale.value_or(0) <= window_scale_max);
  std::array<std::byte, tcp_options_bytes_max> written{};
  TcpOptions options = segment.options;
  // Options that arrived unaligned may need more room when written: SACK blocks are then left out.
  const std::size_t bytes = write_tcp_options(options, written);
  OFP_ASSERT(bytes <= written.size() && bytes % 4 == 0);
  const TcpOptions again = read_tcp_options(Bytes(written).first(bytes));
  OFP_ASSERT(again.sack_count <= options.sack_count);
  options.sack_count = again.sack_count;
  for (std::size_t i = again.sack_count; i < sack_blocks_max; ++i) options.sack[i] = {};
  OFP_ASSERT(again == options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  const Bytes bytes(copy);
  static_cast<void>(read_arp(bytes));
  static_cast<void>(read_icmp_unreachable(bytes, {0x0a000001}));
  Ipv4Packet packet;
  if (read_ipv4(bytes, packet) == Drop::none) OFP_ASSERT(within(packet.payload, bytes));
  // Also behind the header's checksum.
  check_segment({{0x0a000002}, {0x0a000001}, protocol_tcp, Ecn::not_capable, bytes});
  return 0;
}
