#include "tcp/flow/own_address.h"

#include <utility>

#include "tcp/segment/multicast_listener.h"
#include "tcp/segment/neighbour_discovery.h"

namespace offpath::tcp {

OwnAddress::OwnAddress(StackContext& context, TimeNs now) noexcept : context_(context) {
  const StackOptions& options = context.options;
  if (options.v6.address.is_unspecified()) return;
  if (speaks() && options.start.group_reports > 0) report_at_ = now;
  if (options.start.address_checks == 0) {
    be_usable(now);
  } else {
    state_ = State::tentative;
    if (speaks()) check_at_ = now;
  }
}

void OwnAddress::be_usable(TimeNs now) noexcept {
  state_ = State::usable;
  check_at_ = never;
  if (speaks() && hears_routers() && context_.options.start.router_requests > 0 && context_.router.is_unspecified())
    ask_at_ = now;
}

void OwnAddress::settle(bool usable, TimeNs now) noexcept {
  if (state_ != State::tentative) return;
  if (usable) return be_usable(now);
  state_ = State::duplicate;
  context_.is_duplicate = true;
  check_at_ = report_at_ = never;
}

void OwnAddress::take(const NeighbourMessage& message, TimeNs now) noexcept {
  if (message.router_s) return take_router(message, now);
  if (message.reply && !message.is_router && message.sender == context_.router) return lose_router(now);
  if (state_ != State::tentative || !speaks()) return;
  const IpAddress& own = context_.options.v6.address;
  // Somebody has it, or wants it, too.
  const bool is_had = message.reply && message.sender == own,
             is_wanted = !message.reply && message.sender.is_unspecified() && message.target == own;
  if (is_had || is_wanted) settle(false, now);
}

// The first one is kept as long as it says that it is a router, and answers: any number of others change nothing.
void OwnAddress::take_router(const NeighbourMessage& message, TimeNs now) noexcept {
  constexpr std::uint16_t lifetime_s_max = 9000;  // RFC 4861, 6.2.1
  if (!hears_routers() || state_ == State::none) return;
  const bool is_known = message.sender == context_.router;
  if (is_known && *message.router_s == 0) return lose_router(now);
  if (!is_known && (!context_.router.is_unspecified() || *message.router_s == 0)) return;
  context_.router = message.sender;
  router_until_ = now + std::min(*message.router_s, lifetime_s_max) * second_ns;
  ask_at_ = never;
}

void OwnAddress::lose_router(TimeNs now) noexcept {
  context_.router = {};
  router_until_ = never;
  asks_ = 0;
  if (state_ == State::usable) be_usable(now);  // asks for another one
}

// Nodes answer at different times: each at that which follows from its address.
void OwnAddress::take_query(TimeNs within_ns, TimeNs now) noexcept {
  if (!speaks() || state_ == State::none || state_ == State::duplicate) return;
  const TimeNs delay_ns = within_ns / 256 * context_.options.v6.address.bytes.back();
  report_at_ = std::min(report_at_, std::max(now + delay_ns, reported_at_ + report_every_ns));
}

void OwnAddress::on_time(TimeNs now) noexcept {
  const Ipv6Start& start = context_.options.start;
  if (now >= router_until_) lose_router(now);
  if (now >= report_at_) {
    sends_report_ = true;
    reported_at_ = now;
    report_at_ = reports_ + 1 < start.group_reports ? now + report_every_ns : never;
  }
  if (now >= check_at_ && checks_ < start.address_checks) {
    ++checks_;
    check_at_ = now + check_every_ns;
    sends_check_ = speaks();
  } else if (now >= check_at_) {
    be_usable(now);
  }
  if (now >= ask_at_) {
    sends_ask_ = true;
    ask_at_ = ++asks_ < start.router_requests ? now + ask_every_ns : never;
  }
}

bool OwnAddress::next_frame(FrameToSend& frame) noexcept {
  const IpAddress& own = context_.options.v6.address;
  const MacAddress& mac = context_.port.mac;
  if (std::exchange(sends_report_, false)) {
    const bool joins = reports_ < context_.options.start.group_reports;
    if (joins) ++reports_;
    write_listener_report(solicited_node(own), joins, mac, frame);
  } else if (std::exchange(sends_check_, false)) {
    write_neighbour_frame({.sender = {}, .target_mac = {}, .target = own}, mac, group_mac(own), frame);
  } else if (std::exchange(sends_ask_, false)) {
    write_router_solicitation(own, mac, frame);
  } else {
    return false;
  }
  return true;
}

}  // namespace offpath::tcp
