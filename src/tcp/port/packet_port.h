// The kernel's devices as a port: any network interface by AF_PACKET, or a TAP device. Both with virtio-net headers, by
// which the kernel completes checksums and cuts super-segments of up to 64 KiB, and hands over such as it has put
// together itself.
//
// A kernel that has the stack's address on the device would answer the stack's peers with RST: shared_address.h keeps
// it from that.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "tcp/port/fanout.h"
#include "tcp/port/port.h"

namespace offpath::tcp {

class PacketPort final : public Port {
 public:
  // An interface that there is; its hardware address is the stack's. Needs CAP_NET_RAW. What it takes, `address` says
  // (packet_filter.h). `fanout`: as one of several, of which each frame reaches one (fanout.h).
  [[nodiscard]] static Result<std::unique_ptr<PacketPort>> open_interface(const std::string& name,
                                                                          std::optional<Ipv4Address> address,
                                                                          Fanout* fanout = nullptr);
  // A TAP device of this name, made if there is none, and up. The kernel has the other end, with an address of its own;
  // the stack's is `mac`. Needs CAP_NET_ADMIN.
  [[nodiscard]] static Result<std::unique_ptr<PacketPort>> open_tap(const std::string& name, const MacAddress& mac);

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override;
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override;
  [[nodiscard]] PortCapabilities capabilities() const override { return capabilities_; }
  [[nodiscard]] int wait_descriptor() const override { return fd_.get(); }
  [[nodiscard]] PortCounters counters() const override;
  void close() override { fd_.reset(); }

 private:
  static constexpr std::size_t burst = 64;
  static constexpr std::size_t frame_bytes_max = 65'536 + 64;

  PacketPort(Fd fd, const PortCapabilities& capabilities, bool tap)
      : fd_(std::move(fd)), capabilities_(capabilities), tap_(tap), buffers_(burst) {}
  // The frame in a buffer, `bytes` long with its virtio-net header. False: it is none.
  [[nodiscard]] bool take(std::size_t buffer, std::size_t bytes, ReceivedFrame& frame);
  std::size_t receive_packets(std::size_t count, std::array<std::size_t, burst>& bytes);
  std::size_t receive_tap(std::size_t count, std::array<std::size_t, burst>& bytes);

  Fd fd_;
  PortCapabilities capabilities_;
  bool tap_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;  // taken when they are needed first
  PortCounters counters_;
  mutable std::uint64_t dropped_by_kernel_ = 0;  // the kernel forgets them when they are read
};

}  // namespace offpath::tcp
