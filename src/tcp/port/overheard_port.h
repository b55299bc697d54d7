// A port that passes every received ARP message on: for the cores to which ARP frames are not steered.
#pragma once

#include <functional>
#include <utility>

#include "tcp/port/port_decorator.h"
#include "tcp/segment/arp.h"
#include "tcp/segment/ethernet.h"

namespace offpath::tcp {

class OverheardPort final : public PortDecorator {
 public:
  using Tell = std::function<void(const ArpMessage&)>;
  OverheardPort(Port& inner, Tell tell) : PortDecorator(inner), tell_(std::move(tell)) {}  // `inner` outlives it

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override {
    const std::size_t count = inner_.receive(frames, now);
    for (const ReceivedFrame& frame : frames.first(count)) {
      if (frame.bytes.size() < ethernet_header_bytes || read_ethernet_header(frame.bytes.data()).type != ethertype_arp)
        continue;
      if (const auto message = read_arp(frame.bytes.subspan(ethernet_header_bytes))) tell_(*message);
    }
    return count;
  }

 private:
  Tell tell_;
};

}  // namespace offpath::tcp
