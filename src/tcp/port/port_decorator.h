// A port that wraps another one and forwards every call; decorators override what they change.
#pragma once

#include "tcp/port/port.h"

namespace offpath::tcp {

class PortDecorator : public Port {
 public:
  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override { return inner_.receive(frames, now); }
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override {
    return inner_.transmit(frames, now);
  }
  [[nodiscard]] PortCapabilities capabilities() const override { return inner_.capabilities(); }
  [[nodiscard]] int wait_descriptor() const override { return inner_.wait_descriptor(); }
  [[nodiscard]] PortCounters counters() const override { return inner_.counters(); }
  void close() override { inner_.close(); }
  [[nodiscard]] bool fall_asleep(TimeNs now) override { return inner_.fall_asleep(now); }
  [[nodiscard]] bool link_up() const override { return inner_.link_up(); }
  [[nodiscard]] TimeNs next_due() const override { return inner_.next_due(); }

 protected:
  explicit PortDecorator(Port& inner) noexcept : inner_(inner) {}  // `inner` outlives it
  Port& inner_;
};

}  // namespace offpath::tcp
