// The stack's own IPv6 address: duplicate address detection (RFC 4862, 5.4), reports of its group to switches (RFC
// 3810), and routers to other networks without a configured gateway (RFC 4861, 6.3). A state machine. Of several stacks
// with the address, one sends messages.
//
// One router is used as long as it answers (neighbours.h), then another one that advertises itself. If none answers,
// they are tried in turn, and asked to advertise themselves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "tcp/flow/context.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

class OwnAddress {
 public:
  OwnAddress(StackContext& context, TimeNs now) noexcept;

  // Frames of this address are neither sent nor accepted before it is known to be unique.
  [[nodiscard]] bool is_usable() const noexcept { return state_ == State::usable; }
  // An advertisement or a solicitation that was received.
  void take(const NeighbourMessage& message, TimeNs now) noexcept;
  // The result of the stack that sends messages for this address.
  void settle(bool usable, TimeNs now) noexcept;
  // A neighbour does not answer. True: it is a router.
  [[nodiscard]] bool take_silence(const IpAddress& neighbour, TimeNs now) noexcept;
  // Whether the current router is not known to be silent.
  [[nodiscard]] bool has_router() const noexcept;
  // A router asks for listeners, with this time limit for answers.
  void take_query(TimeNs within_ns, TimeNs now) noexcept;
  // Messages to send come from next_frame(), and is_usable() may have changed.
  void on_time(TimeNs now) noexcept;
  [[nodiscard]] TimeNs next_due() const noexcept { return std::min({check_at_, ask_at_, report_at_, router_until_}); }
  [[nodiscard]] bool next_frame(FrameToSend& frame) noexcept;  // false at the end

 private:
  // RetransTimer and RTR_SOLICITATION_INTERVAL of RFC 4861, 10
  static constexpr TimeNs check_every_ns = second_ns, ask_every_ns = 4 * second_ns;
  static constexpr TimeNs report_every_ns = second_ns;  // a minimum interval, regardless of queries
  enum class State : std::uint8_t { none, tentative, usable, duplicate };

  [[nodiscard]] bool speaks() const noexcept { return context_.options.core == 0; }
  [[nodiscard]] bool hears_routers() const noexcept {
    return context_.options.hears_routers && context_.options.v6.gateway.is_unspecified();
  }
  static constexpr std::size_t routers_max = 4;
  struct Router {
    IpAddress address{};
    TimeNs until = 0;
    bool silent = false;
  };

  void be_usable(TimeNs now) noexcept;
  void take_router(const NeighbourMessage& message, TimeNs now) noexcept;
  [[nodiscard]] Router* find_router(const IpAddress& address) noexcept;
  [[nodiscard]] Router* add_router(const IpAddress& address) noexcept;  // null: there are too many
  void choose_router(TimeNs now) noexcept;

  StackContext& context_;
  State state_ = State::none;
  bool sends_check_ = false, sends_ask_ = false, sends_report_ = false;
  bool had_router_ = true;  // or has not asked for one yet
  std::uint8_t checks_ = 0, asks_ = 0, reports_ = 0;
  TimeNs check_at_ = never, ask_at_ = never, report_at_ = never, router_until_ = never;
  TimeNs reported_at_ = 0;
  std::vector<Router> routers_;  // in the order in which they came
};

}  // namespace offpath::tcp
