#include "plugin/packet_socket.h"

#include <sys/socket.h>

#include <cerrno>

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
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * packet_descriptors_max)]{};
  iovec piece{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | (wait == Wait::yes ? 0 : MSG_DONTWAIT));
  } while (sent < 0 && errno == EINTR);
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
