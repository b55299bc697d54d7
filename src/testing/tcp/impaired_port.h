// A port with a bad network behind it, in both directions.
#pragma once

#include <vector>

#include "tcp/port/port_decorator.h"
#include "testing/tcp/impaired_path.h"

namespace offpath::tcp {

class ImpairedPort final : public PortDecorator {
 public:
  // Frames are cut into segments before they meet faults.
  ImpairedPort(Port& inner, const Impairments& out, const Impairments& in, std::uint64_t seed)
      : PortDecorator(inner), out_(out, seed), in_(in, seed + 1) {}

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override;
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override;
  [[nodiscard]] PortCounters counters() const override;
  [[nodiscard]] TimeNs next_due() const override {
    return std::min({out_.next_due(), in_.next_due(), inner_.next_due()});
  }
  void set(const Impairments& out, const Impairments& in) noexcept { out_.set(out), in_.set(in); }

 private:
  void send_due(TimeNs now);

  ImpairedPath out_, in_;
  std::vector<std::vector<std::byte>> given_;
};

}  // namespace offpath::tcp
