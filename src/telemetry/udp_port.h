// A UDP socket to one sampler: datagrams from any other address do not reach it.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::exchange {

class UdpPort {
 public:
  // "node17:7480", "[::1]:7480". Resolves the name, which may take seconds.
  [[nodiscard]] static Result<UdpPort> connect(const std::string& address);

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // A datagram that cannot be sent counts as lost.
  void send(Bytes datagram) noexcept;
  // The next datagram; none: would block. Errors of earlier datagrams are skipped.
  [[nodiscard]] std::optional<Bytes> receive(MutableBytes buffer) noexcept;

 private:
  explicit UdpPort(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace offpath::exchange
