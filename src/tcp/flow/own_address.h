// The stack's own IPv6 address, before and while it is used: whether another node of the link has it (RFC 4862, 5.4),
// that switches learn who listens to its group (RFC 3810), and which router leads to other networks, where none is
// configured (RFC 4861, 6.3). A state machine. Of several stacks with the address, one speaks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "tcp/flow/context.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

class OwnAddress {
 public:
  OwnAddress(StackContext& context, TimeNs now) noexcept;

  // Frames of this address are neither sent nor taken before it is known to be nobody else's.
  [[nodiscard]] bool is_usable() const noexcept { return state_ == State::usable; }
  // An advertisement or a solicitation that was received.
  void take(const NeighbourMessage& message, TimeNs now) noexcept;
  // Of several stacks with the address, the one that speaks has found this out.
  void settle(bool usable, TimeNs now) noexcept;
  // The router does not answer any more.
  void lose_router(TimeNs now) noexcept;
  // A router asks who listens, and wants to know within this time.
  void take_query(TimeNs within_ns, TimeNs now) noexcept;
  // What is to be sent comes from next_frame(), and is_usable() may have changed.
  void on_time(TimeNs now) noexcept;
  [[nodiscard]] TimeNs next_due() const noexcept { return std::min({check_at_, ask_at_, report_at_, router_until_}); }
  [[nodiscard]] bool next_frame(FrameToSend& frame) noexcept;  // false: there is none

 private:
  // RetransTimer and RTR_SOLICITATION_INTERVAL of RFC 4861, 10
  static constexpr TimeNs check_every_ns = second_ns, ask_every_ns = 4 * second_ns;
  static constexpr TimeNs report_every_ns = second_ns;  // and not more often, whoever asks
  enum class State : std::uint8_t { none, tentative, usable, duplicate };

  [[nodiscard]] bool speaks() const noexcept { return context_.options.core == 0; }
  [[nodiscard]] bool hears_routers() const noexcept {
    return context_.options.hears_routers && context_.options.v6.gateway.is_unspecified();
  }
  void be_usable(TimeNs now) noexcept;
  void take_router(const NeighbourMessage& message, TimeNs now) noexcept;

  StackContext& context_;
  State state_ = State::none;
  bool sends_check_ = false, sends_ask_ = false, sends_report_ = false;
  std::uint8_t checks_ = 0, asks_ = 0, reports_ = 0;
  TimeNs check_at_ = never, ask_at_ = never, report_at_ = never, router_until_ = never;
  TimeNs reported_at_ = 0;
};

}  // namespace offpath::tcp
