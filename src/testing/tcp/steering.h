// The kernel's execution of a fanout's program, in this process: for tests.
#pragma once

#include <linux/filter.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tcp/port/fanout.h"
#include "tcp/port/port.h"
#include "tcp/segment/big_endian.h"
#include "tcp/segment/ethernet.h"

namespace offpath::tcp {

// The kernel's other knowledge of a frame: how it came (linux/if_packet.h), and the tag of a VLAN that it took off.
struct FrameTold {
  std::uint32_t type = 0;
  std::optional<std::uint32_t> tag{};
};

// The statements that steering_program() and taking_program() are made of. A load beyond the frame ends with 0, as in
// the kernel.
[[nodiscard]] inline std::uint32_t run_filter(std::span<const sock_filter> program, Bytes frame,
                                              const FrameTold& to = {}) {
  constexpr auto network = static_cast<std::uint32_t>(SKF_NET_OFF), ancillary = static_cast<std::uint32_t>(SKF_AD_OFF);
  std::uint32_t a = 0, x = 0;
  std::array<std::uint32_t, BPF_MEMWORDS> memory{};
  const Bytes body = frame.subspan(ethernet_header_bytes);
  const auto load = [&](std::uint32_t at, unsigned bytes) -> std::optional<std::uint32_t> {
    if (at == ancillary + SKF_AD_PKTTYPE) return to.type;
    if (at == ancillary + SKF_AD_VLAN_TAG_PRESENT) return to.tag ? 1 : 0;
    if (at == ancillary + SKF_AD_VLAN_TAG) return to.tag.value_or(0);
    if (at == ancillary + SKF_AD_PROTOCOL) return read_ethernet_header(frame.data()).type;
    const std::uint32_t from = at - network;
    if (std::uint64_t{from} + bytes > body.size()) return std::nullopt;
    std::uint32_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint32_t>(body[from + i]);
    return value;
  };
  for (std::size_t at = 0; at < program.size(); ++at) {
    const sock_filter& step = program[at];
    const unsigned bytes = BPF_SIZE(step.code) == BPF_W ? 4 : BPF_SIZE(step.code) == BPF_H ? 2 : 1;
    const std::uint32_t operand = BPF_SRC(step.code) == BPF_X ? x : step.k;
    switch (BPF_CLASS(step.code)) {
      case BPF_LD: {
        if (BPF_MODE(step.code) == BPF_MEM) {
          a = memory.at(step.k);
          break;
        }
        const auto value = load(BPF_MODE(step.code) == BPF_IND ? x + step.k : step.k, bytes);
        if (!value) return 0;
        a = *value;
        break;
      }
      case BPF_LDX:
        x = BPF_MODE(step.code) == BPF_MEM ? memory.at(step.k) : step.k;
        break;
      case BPF_ST:
        memory.at(step.k) = a;
        break;
      case BPF_ALU:
        switch (BPF_OP(step.code)) {
          case BPF_ADD:
            a += operand;
            break;
          case BPF_MUL:
            a *= operand;
            break;
          case BPF_AND:
            a &= operand;
            break;
          case BPF_XOR:
            a ^= operand;
            break;
          case BPF_LSH:
            a <<= operand;
            break;
          case BPF_RSH:
            a >>= operand;
            break;
          case BPF_MOD:
            a %= operand;
            break;
          default:
            OFP_ASSERT(false);
        }
        break;
      case BPF_JMP:
        at += a == step.k ? step.jt : step.jf;
        break;
      case BPF_MISC:
        x = a;
        break;
      case BPF_RET:
        return BPF_RVAL(step.code) == BPF_A ? a : step.k;
      default:
        OFP_ASSERT(false);
    }
  }
  OFP_ASSERT(false);
  return 0;
}

// Ports of several cores on one: each frame reaches one of them.
class SteeredPorts {
 public:
  SteeredPorts(Port& inner, std::uint32_t cores) : inner_(inner), program_(steering_program(cores)) {
    for (std::uint32_t core = 0; core < cores; ++core) queues_.push_back(std::make_unique<Queue>(*this));
  }
  [[nodiscard]] Port& core(std::uint32_t core) { return *queues_[core]; }
  [[nodiscard]] bool has_frames() const {
    return std::ranges::any_of(queues_, [](const auto& queue) { return !queue->waiting.empty(); });
  }

 private:
  struct Arrived {
    std::vector<std::byte> bytes;
    bool checksum_verified;
  };
  struct Queue final : Port {
    explicit Queue(SteeredPorts& all_) : all(all_) {}
    std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override {
      all.steer(now);
      given.clear();
      for (; given.size() < frames.size() && !waiting.empty(); waiting.pop_front())
        given.push_back(std::move(waiting.front()));
      for (std::size_t i = 0; i < given.size(); ++i) frames[i] = {given[i].bytes, given[i].checksum_verified};
      return given.size();
    }
    std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override {
      return all.inner_.transmit(frames, now);
    }
    [[nodiscard]] PortCapabilities capabilities() const override { return all.inner_.capabilities(); }
    [[nodiscard]] int wait_descriptor() const override { return -1; }
    [[nodiscard]] PortCounters counters() const override { return {}; }
    void close() override {}
    [[nodiscard]] TimeNs next_due() const override { return all.inner_.next_due(); }
    SteeredPorts& all;
    std::deque<Arrived> waiting;
    std::vector<Arrived> given;
  };
  void steer(TimeNs now) {
    std::array<ReceivedFrame, 64> frames;
    for (std::size_t count = frames.size(); count == frames.size();) {
      count = inner_.receive(frames, now);
      for (const ReceivedFrame& frame : std::span(frames).first(count)) {
        if (frame.bytes.size() < ethernet_header_bytes) continue;
        const std::uint32_t core = run_filter(program_, frame.bytes);
        queues_.at(core)->waiting.push_back({{frame.bytes.begin(), frame.bytes.end()}, frame.checksum_verified});
      }
    }
  }

  Port& inner_;
  std::vector<sock_filter> program_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

}  // namespace offpath::tcp
