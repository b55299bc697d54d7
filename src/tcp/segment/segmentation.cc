#include "tcp/segment/segmentation.h"

#include <algorithm>

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {
namespace {

void append(std::vector<std::byte>& to, const FrameToSend& frame, std::size_t from, std::size_t bytes) {
  for (const Bytes& part : frame.payload) {
    const std::size_t skipped = std::min(from, part.size()), taken = std::min(bytes, part.size() - skipped);
    to.insert(to.end(), part.begin() + static_cast<std::ptrdiff_t>(skipped),
              part.begin() + static_cast<std::ptrdiff_t>(skipped + taken));
    from -= skipped;
    bytes -= taken;
  }
}

}  // namespace

void complete_tcp_checksum(MutableBytes frame) noexcept {
  if (frame.size() < ethernet_header_bytes) return;
  IpPacket packet;
  if (read_ip(read_ethernet_header(frame.data()).type, frame.subspan(ethernet_header_bytes), packet) != Drop::none)
    return;
  if (packet.protocol != protocol_tcp || packet.payload.size() < tcp_header_bytes) return;
  std::byte* tcp = frame.data() + (packet.payload.data() - frame.data());
  store_be16(tcp + tcp_checksum_offset, 0);
  Checksum checksum;
  checksum.add_pseudo_header(packet.source, packet.target, protocol_tcp,
                             static_cast<std::uint32_t>(packet.payload.size()));
  checksum.add(packet.payload);
  store_be16(tcp + tcp_checksum_offset, checksum.finish());
}

std::vector<std::byte> whole_frame(const FrameToSend& frame) {
  std::vector<std::byte> bytes(frame.header.begin(), frame.header.begin() + frame.header_bytes);
  append(bytes, frame, 0, frame.payload_bytes());
  if (frame.checksum_partial) complete_tcp_checksum(bytes);
  return bytes;
}

void for_each_wire_frame(const FrameToSend& frame, const std::function<void(std::vector<std::byte>&&)>& take) {
  const std::size_t payload = frame.payload_bytes();
  if (frame.segment_bytes == 0 || payload <= frame.segment_bytes) return take(whole_frame(frame));
  const std::uint32_t sequence = load_be32(&frame.header[frame.tcp_offset + 4u]);
  const auto flags = static_cast<std::uint8_t>(frame.header[frame.tcp_offset + 13u]);
  for (std::size_t at = 0; at < payload; at += frame.segment_bytes) {
    const std::size_t bytes = std::min<std::size_t>(frame.segment_bytes, payload - at);
    std::vector<std::byte> wire(frame.header.begin(), frame.header.begin() + frame.header_bytes);
    append(wire, frame, at, bytes);
    std::uint8_t own = flags;
    if (at + bytes < payload) own &= static_cast<std::uint8_t>(~(flag::fin | flag::psh));
    if (at > 0) own &= static_cast<std::uint8_t>(~flag::cwr);
    store_be32(&wire[frame.tcp_offset + 4u], sequence + static_cast<std::uint32_t>(at));
    wire[frame.tcp_offset + 13u] = std::byte{own};
    write_ip_length(read_ethernet_header(wire.data()).type, MutableBytes(wire).subspan(ethernet_header_bytes));
    complete_tcp_checksum(wire);
    take(std::move(wire));
  }
}

}  // namespace offpath::tcp
