// Kernel devices as a port: any network interface through AF_PACKET, or a TAP device. Both use virtio-net headers: the
// kernel completes checksums, segments super-segments of up to 64 KiB, and hands over coalesced ones.
//
// A kernel that has the stack's address on the device would answer the stack's peers with RST; shared_address.h
// prevents that.
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
  // An existing interface, whose hardware address the stack uses. Needs CAP_NET_RAW. `targets` selects the frames that
  // are taken (packet_filter.h), and the groups of an IPv6 address that the interface joins. `fanout`: joins this
  // group, in which each frame reaches one member (fanout.h).
  [[nodiscard]] static Result<std::unique_ptr<PacketPort>> open_interface(const std::string& name,
                                                                          const std::optional<FrameTargets>& targets,
                                                                          Fanout* fanout = nullptr);
  // A TAP device of this name, created if necessary, and set up. The kernel has the other end, with an address of its
  // own; the stack's address is `mac`. Needs CAP_NET_ADMIN.
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
  // Reads the frame in a buffer, `bytes` long with its virtio-net header. Returns false if it is not a valid frame.
  [[nodiscard]] bool take(std::size_t buffer, std::size_t bytes, ReceivedFrame& frame);
  std::size_t receive_packets(std::size_t count, std::array<std::size_t, burst>& bytes);
  std::size_t receive_tap(std::size_t count, std::array<std::size_t, burst>& bytes);

  Fd fd_;
  PortCapabilities capabilities_;
  bool tap_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;  // allocated on first use
  PortCounters counters_;
  mutable std::uint64_t dropped_by_kernel_ = 0;  // accumulated: the kernel's counter is reset by reading
};

}  // namespace offpath::tcp
