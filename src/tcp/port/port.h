// The interface between a stack and a device. Read this first. Implementations: packet_port.h (the kernel's devices),
// xdp_port.h (the same by AF_XDP), dpdk_port.h (DPDK's), testing/tcp/memory_port.h (another stack in this process);
// port_decorator.h is the base of ports that wrap another one.
#pragma once

#include <span>

#include "base/clock.h"
#include "tcp/segment/address.h"
#include "tcp/segment/frame.h"

namespace offpath::tcp {

struct PortCapabilities {
  MacAddress mac{};
  std::uint16_t mtu = 1500;              // of the Ethernet payload
  bool checksum = false;                 // completes TCP's checksum of sent frames
  std::uint32_t segmentation_bytes = 0;  // largest payload that it segments; 0: it does not segment
};

struct PortCounters {
  std::uint64_t frames_in = 0, bytes_in = 0, frames_out = 0, bytes_out = 0;
  std::uint64_t dropped_in = 0, dropped_out = 0;  // as far as the port knows
};

class Port {
 public:
  virtual ~Port() = default;
  // Fills frames from the front and returns how many. Frames of the previous call become invalid.
  virtual std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) = 0;
  // Returns how many frames were accepted, from the front; their memory is free again. The caller offers the others
  // again, or drops them, as a network may.
  virtual std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) = 0;
  [[nodiscard]] virtual PortCapabilities capabilities() const = 0;
  [[nodiscard]] virtual int wait_descriptor() const = 0;  // readable when frames have arrived; -1: none
  [[nodiscard]] virtual PortCounters counters() const = 0;
  virtual void close() = 0;  // no frame is received or sent afterwards
  // Called before the loop waits for the descriptor: arranges that it becomes readable for frames from now on. Returns
  // false if frames are there already. Ends with the next receive.
  [[nodiscard]] virtual bool fall_asleep(TimeNs /*now*/) { return true; }
  [[nodiscard]] virtual bool link_up() const { return true; }  // as far as the port knows
  // When to poll it although its descriptor is not readable: for ports with a clock of their own, and ports without a
  // descriptor.
  [[nodiscard]] virtual TimeNs next_due() const { return never; }
};

}  // namespace offpath::tcp
