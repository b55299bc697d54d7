#include "plugin/packet_socket.h"

#include <sys/socket.h>

#include <cerrno>

namespace offpath::plugin {

Result<std::optional<Packet>> PacketReader::receive(int socket, Wait wait) {
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * (packet_descriptors_max + 3))];
  iovec piece{buffer_.data(), buffer_.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t length = 0;
  do {
    length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (wait == Wait::yes ? 0 : MSG_DONTWAIT));
  } while (length < 0 && errno == EINTR);
  if (length < 0) return fail_errno(errno, "recvmsg");
  Packet packet;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i)
      packet.descriptors.emplace_back(load<int>(reinterpret_cast<std::byte*>(CMSG_DATA(header)) + i * sizeof(int)));
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return fail(Error::protocol, "a packet of more than {} bytes or {} descriptors, or no room for these", buffer_.size(), packet_descriptors_max);
  // A packet of no bytes looks like the end, and none of ours has none.
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
