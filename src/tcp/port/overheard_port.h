// A port that forwards neighbours' messages in received frames to cores to which such frames are not steered.
#pragma once

#include <functional>
#include <utility>

#include "tcp/port/port_decorator.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

class OverheardPort final : public PortDecorator {
 public:
  using Tell = std::function<void(const NeighbourMessage&)>;
  OverheardPort(Port& inner, Tell tell) : PortDecorator(inner), tell_(std::move(tell)) {}  // `inner` outlives it

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override {
    const std::size_t count = inner_.receive(frames, now);
    for (const ReceivedFrame& frame : frames.first(count))
      if (const auto message = read_neighbour_frame(frame.bytes)) tell_(*message);
    return count;
  }

 private:
  Tell tell_;
};

}  // namespace offpath::tcp
