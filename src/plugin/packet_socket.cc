#include "plugin/packet_socket.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/sent_fds.h"

namespace offpath::plugin {

Result<std::optional<Packet>> PacketReader::receive(int socket, Wait wait) {
  const iovec piece{buffer_.data(), buffer_.size()};
  Packet packet;
  int said = 0;
  const ssize_t length = receive_with_descriptors(socket, {&piece, 1}, wait == Wait::yes ? 0 : MSG_DONTWAIT, user_,
                                                  packet.descriptors, said);
  if (length < 0) return fail_errno(errno, "recvmsg");
  if ((said & (MSG_TRUNC | MSG_CTRUNC)) != 0 || packet.descriptors.size() > packet_descriptors_max)
    return fail(Error::protocol, "a packet of more than {} bytes or {} descriptors, or no room for these",
                buffer_.size(), packet_descriptors_max);
  // A packet without bytes looks like the end; packets of this protocol are never empty.
  if (length == 0) return std::optional<Packet>();
  packet.bytes = Bytes(buffer_).first(static_cast<std::size_t>(length));
  return std::optional(std::move(packet));
}

Status send_packet(int socket, Bytes packet, std::span<const int> descriptors, Wait wait) {
  OFP_ASSERT(descriptors.size() <= packet_descriptors_max && packet.size() <= packet_bytes_max);
  const iovec piece{const_cast<std::byte*>(packet.data()), packet.size()};
  const ssize_t sent = send_with_descriptors(socket, {&piece, 1}, descriptors, wait == Wait::yes ? 0 : MSG_DONTWAIT);
  if (sent < 0) return fail_errno(errno, "sendmsg");
  return {};
}

Status send_packet(int socket, const FromWorker& message, std::span<const Fd> descriptors, Wait wait) {
  std::vector<std::byte> packet;
  encode(message, packet);
  std::vector<int> numbers;
  for (const Fd& fd : descriptors) numbers.push_back(fd.get());
  return send_packet(socket, packet, numbers, wait);
}

}  // namespace offpath::plugin
