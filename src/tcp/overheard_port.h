// A port whose ARP messages are told to somebody besides: the cores that frames are not steered to.
#pragma once

#include <functional>
#include <utility>

#include "tcp/arp.h"
#include "tcp/ethernet.h"
#include "tcp/port.h"

namespace offpath::tcp {

class OverheardPort final : public Port {
 public:
  using Tell = std::function<void(const ArpMessage&)>;
  OverheardPort(Port& inner, Tell tell) : inner_(inner), tell_(std::move(tell)) {}  // `inner` outlives it

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override {
    const std::size_t count = inner_.receive(frames, now);
    for (const ReceivedFrame& frame : frames.first(count)) {
      if (frame.bytes.size() < ethernet_header_bytes || read_ethernet_header(frame.bytes.data()).type != ethertype_arp) continue;
      if (const auto message = read_arp(frame.bytes.subspan(ethernet_header_bytes))) tell_(*message);
    }
    return count;
  }
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override { return inner_.transmit(frames, now); }
  [[nodiscard]] PortCapabilities capabilities() const override { return inner_.capabilities(); }
  [[nodiscard]] int wait_descriptor() const override { return inner_.wait_descriptor(); }
  [[nodiscard]] PortCounters counters() const override { return inner_.counters(); }
  void close() override { inner_.close(); }
  [[nodiscard]] bool fall_asleep(TimeNs now) override { return inner_.fall_asleep(now); }
  [[nodiscard]] bool link_up() const override { return inner_.link_up(); }
  [[nodiscard]] TimeNs next_due() const override { return inner_.next_due(); }

 private:
  Port& inner_;
  Tell tell_;
};

}  // namespace offpath::tcp
