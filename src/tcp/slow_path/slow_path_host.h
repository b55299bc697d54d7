// The other end: a stack that does the slow path for an agent's stack, in a process of the host. A state machine: it is
// polled with the time, and knows neither channel nor descriptor.
//
// Frames that it sends may take three quarters of the ring; more frames are dropped. So they never make it wait for an
// agent that takes nothing while it has much to send; otherwise each end would wait for the other.
#pragma once

#include <memory>
#include <optional>

#include "tcp/slow_path/slow_path_area.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

class HostSlowPath final : public FastPath {
 public:
  // `memory`: the area, zeroed before it was announced to the agent; outlives this.
  HostSlowPath(MutableBytes memory, const wire::TcpSlowLayout& layout)
      : area_(SlowPathArea::Side::process, memory, layout), ring_bytes_(layout.ring_bytes) {}

  // True: there was work. Error: an invalid message of the agent.
  [[nodiscard]] Result<bool> poll(TimeNs now);
  [[nodiscard]] bool wants_wake() noexcept { return area_.wants_wake(); }
  // False: there is something to do.
  [[nodiscard]] bool fall_asleep(TimeNs now) noexcept;
  void wake_up() noexcept { area_.wake_up(); }
  [[nodiscard]] TimeNs next_due() const noexcept { return stack_ ? stack_->next_due() : never; }

  [[nodiscard]] const Stack* stack() const noexcept {
    return stack_ ? &*stack_ : nullptr;
  }  // null: no message of the agent yet

  void adopt(const wire::TcpHandedFlow& flow, const ReceivedFrame* frame) override;
  void failed(const FlowKey& key, std::uint32_t attempt, FlowError error) override;
  void returned(const ReceivedFrame& frame) override;
  void neighbour(const IpAddress& address, const MacAddress& mac) override;

 private:
  // No flow of this stack carries a byte.
  struct NoPayload final : Owner {
    std::optional<std::uint64_t> accept(std::uint64_t, FlowId, const FlowKey&) override { return std::nullopt; }
    Payload payload(FlowId, std::uint64_t, std::uint64_t, std::uint32_t) override { return {}; }
    void store(FlowId, std::uint64_t, std::uint64_t, Bytes) override {}
  };
  [[nodiscard]] Status take(const SlowPathArea::Record& record, TimeNs now);
  [[nodiscard]] Status set_up(const wire::TcpSlowSetup& setup, TimeNs now);
  bool send(TimeNs now);

  SlowPathArea area_;
  std::uint64_t ring_bytes_;
  NoPayload owner_;
  std::optional<Stack> stack_;
};

}  // namespace offpath::tcp
