// Two ports in one process, each the other's network. Frames arrive in order and immediately; impaired_port.h makes a
// worse network of it.
//
// Read this first in src/testing/tcp, then network.h and virtual_time.h (two stacks in one process), impaired_path.h
// (faults), stack_parts.h (single parts of a stack), packet_script.h (scripted segments), programs.h and two_programs.h
// (with programs).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tcp/port/port.h"
#include "testing/tcp/family.h"
#include "testing/tcp/pcap.h"

namespace offpath::tcp {

struct MemoryPortOptions {
  std::uint16_t mtu = test_mtu(1500);
  bool checksum = true;                  // offload, done when a frame is sent
  std::uint32_t segmentation_bytes = 0;  // offload: frames are cut when they are sent
  bool whole_segments = false;           // frames that would be cut arrive whole, as between two ends of one machine
  std::size_t frames_max = 4096;         // waiting at the receiver; further frames are dropped
};

class MemoryPort final : public Port {
 public:
  // Addresses end in 1 and 2.
  [[nodiscard]] static std::pair<std::unique_ptr<MemoryPort>, std::unique_ptr<MemoryPort>> pair(
      const MemoryPortOptions& options);
  ~MemoryPort() override { close(); }

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override;
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override;
  [[nodiscard]] PortCapabilities capabilities() const override;
  [[nodiscard]] int wait_descriptor() const override { return -1; }
  [[nodiscard]] PortCounters counters() const override { return counters_; }
  void close() override;

  // Frames that this end sends and receives are written there as well. It outlives the port.
  void capture(PcapWriter* writer) noexcept { pcap_ = writer; }
  // Called for each frame that this end sends.
  void watch(std::function<void(Bytes)> seen) { seen_ = std::move(seen); }
  [[nodiscard]] bool has_frames() const noexcept { return !waiting_.empty(); }

 private:
  struct Arrived {
    std::vector<std::byte> bytes;
    bool checksum_verified;
  };
  MemoryPort(const MemoryPortOptions& options, std::uint8_t number) : options_(options), number_(number) {}
  void arrive(Arrived frame);

  MemoryPortOptions options_;
  std::uint8_t number_;
  MemoryPort* other_ = nullptr;
  std::deque<Arrived> waiting_;
  std::vector<Arrived> given_;  // to the caller of receive
  PortCounters counters_;
  PcapWriter* pcap_ = nullptr;
  std::function<void(Bytes)> seen_;
};

}  // namespace offpath::tcp
