// Where frames come from and go to. Implementations: packet_port.h (the kernel's devices), memory_port.h (another stack
// in this process), dpdk_port.h (DPDK's); port_decorator.h is for what stands before any of them.
#pragma once

#include <span>

#include "base/clock.h"
#include "tcp/segment/address.h"
#include "tcp/segment/frame.h"

namespace offpath::tcp {

struct PortCapabilities {
  MacAddress mac{};
  std::uint16_t mtu = 1500;              // of what is behind the Ethernet header
  bool checksum = false;                 // completes TCP's checksum of what is sent
  std::uint32_t segmentation_bytes = 0;  // payload of a frame that it cuts into segments, at most; 0: it does not
};

struct PortCounters {
  std::uint64_t frames_in = 0, bytes_in = 0, frames_out = 0, bytes_out = 0;
  std::uint64_t dropped_in = 0, dropped_out = 0;  // as far as the port knows
};

class Port {
 public:
  virtual ~Port() = default;
  // Fills frames from the front; how many. Those of the call before are not valid any more.
  virtual std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) = 0;
  // How many were taken, from the front: the bytes of these are not needed any more. The others are to be given again,
  // or dropped, as a network may.
  virtual std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) = 0;
  [[nodiscard]] virtual PortCapabilities capabilities() const = 0;
  [[nodiscard]] virtual int wait_descriptor() const = 0;  // readable when there are frames; -1: there is none
  [[nodiscard]] virtual PortCounters counters() const = 0;
  virtual void close() = 0;  // nothing comes or goes any more
  // Whoever polls it is about to wait for its descriptor: arranges that this tells of frames from now on. False: there
  // are some already. Ends with the next receive.
  [[nodiscard]] virtual bool fall_asleep(TimeNs now) { return static_cast<void>(now), true; }
  [[nodiscard]] virtual bool link_up() const { return true; }  // as far as the port knows
  // When to ask it again although its descriptor does not say so: ports with a clock of their own, and such without a
  // descriptor.
  [[nodiscard]] virtual TimeNs next_due() const { return never; }
};

}  // namespace offpath::tcp
