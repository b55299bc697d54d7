// Packets with descriptors over a Unix socket (SOCK_SEQPACKET), for both ends.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/received_fds.h"
#include "plugin/message.h"

namespace offpath::plugin {

enum class Wait : bool { no, yes };

struct Packet {
  Bytes bytes;  // valid until the next receive()
  std::vector<Fd> descriptors;
};

class PacketReader {
 public:
  // `user`: charged for received descriptors; only on the agent.
  explicit PacketReader(std::shared_ptr<ReceivedFds::User> user = nullptr)
      : buffer_(packet_bytes_max), user_(std::move(user)) {}
  // Empty: the other side has closed its end. Error::would_block: there is no packet. A packet that is too long, or has
  // too many descriptors, is Error::protocol.
  [[nodiscard]] Result<std::optional<Packet>> receive(int socket, Wait wait);

 private:
  std::vector<std::byte> buffer_;
  std::shared_ptr<ReceivedFds::User> user_;
};

[[nodiscard]] Status send_packet(int socket, Bytes packet, std::span<const int> descriptors, Wait wait);
[[nodiscard]] Status send_packet(int socket, const FromWorker& message, std::span<const Fd> descriptors, Wait wait);

}  // namespace offpath::plugin
