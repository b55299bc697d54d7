#include "tcp/flow/own_address.h"

#include <utility>

#include "tcp/segment/multicast_listener.h"
#include "tcp/segment/neighbour_discovery.h"

namespace offpath::tcp {

OwnAddress::OwnAddress(StackContext& context, TimeNs now) noexcept : context_(context) {
  const StackOptions& options = context.options;
  routers_.reserve(routers_max);
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
  choose_router(now);
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
  if (Router* const known = message.reply ? find_router(message.sender) : nullptr) {
    if (!message.is_router)
      routers_.erase(routers_.begin() + (known - routers_.data()));
    else if (message.solicited)
      known->silent = false;
    return choose_router(now);
  }
  if (state_ != State::tentative || !speaks()) return;
  const IpAddress& own = context_.options.v6.address;
  // Another node has the address, or wants it too.
  const bool is_had = message.reply && message.sender == own,
             is_wanted = !message.reply && message.sender.is_unspecified() && message.target == own;
  if (is_had || is_wanted) settle(false, now);
}

// Further routers are ignored.
void OwnAddress::take_router(const NeighbourMessage& message, TimeNs now) noexcept {
  constexpr std::uint16_t lifetime_s_max = 9000;  // RFC 4861, 6.2.1
  if (!hears_routers() || state_ == State::none) return;
  Router* known = find_router(message.sender);
  if (*message.router_s == 0) {
    if (known == nullptr) return;
    routers_.erase(routers_.begin() + (known - routers_.data()));
  } else if (known != nullptr || (known = add_router(message.sender)) != nullptr) {
    known->until = now + std::min(*message.router_s, lifetime_s_max) * second_ns;
    known->silent = false;
  }
  choose_router(now);
}

OwnAddress::Router* OwnAddress::find_router(const IpAddress& address) noexcept {
  const auto found = std::ranges::find(routers_, address, &Router::address);
  return found == routers_.end() ? nullptr : &*found;
}

OwnAddress::Router* OwnAddress::add_router(const IpAddress& address) noexcept {
  if (routers_.size() < routers_max) return &routers_.emplace_back(Router{.address = address});
  const auto silent = std::ranges::find(routers_, true, &Router::silent);
  if (silent == routers_.end()) return nullptr;
  *silent = {.address = address};
  return &*silent;
}

bool OwnAddress::take_silence(const IpAddress& neighbour, TimeNs now) noexcept {
  Router* const silent = find_router(neighbour);
  if (silent == nullptr) return false;
  silent->silent = true;
  // If all are silent, they are tried in turn (RFC 4861, 6.3.6).
  if (neighbour == context_.router)
    context_.router = routers_[static_cast<std::size_t>(silent - routers_.data() + 1) % routers_.size()].address;
  choose_router(now);
  return true;
}

bool OwnAddress::has_router() const noexcept {
  return std::ranges::any_of(routers_,
                             [&](const Router& each) { return each.address == context_.router && !each.silent; });
}

void OwnAddress::choose_router(TimeNs now) noexcept {
  if (!hears_routers()) return;
  if (!has_router()) {
    const auto other = std::ranges::find(routers_, false, &Router::silent);
    if (other != routers_.end())
      context_.router = other->address;
    else if (find_router(context_.router) == nullptr)
      context_.router = routers_.empty() ? IpAddress{} : routers_.front().address;
  }
  router_until_ = never;
  for (const Router& each : routers_) router_until_ = std::min(router_until_, each.until);
  // Routers are asked when the last one is lost, a limited number of times (RFC 4861, 6.3.7).
  const bool had_router = std::exchange(had_router_, has_router() || state_ != State::usable);
  if (has_router()) {
    ask_at_ = never;
  } else if (had_router && ask_at_ == never && speaks() && state_ == State::usable &&
             context_.options.start.router_requests > 0) {
    asks_ = 0;
    ask_at_ = now;
  }
}

// Nodes answer at different times, which depend on their addresses.
void OwnAddress::take_query(TimeNs within_ns, TimeNs now) noexcept {
  if (!speaks() || state_ == State::none || state_ == State::duplicate) return;
  const TimeNs delay_ns = within_ns / 256 * context_.options.v6.address.bytes.back();
  report_at_ = std::min(report_at_, std::max(now + delay_ns, reported_at_ + report_every_ns));
}

void OwnAddress::on_time(TimeNs now) noexcept {
  const Ipv6Start& start = context_.options.start;
  if (now >= router_until_) {
    std::erase_if(routers_, [now](const Router& each) { return each.until <= now; });
    choose_router(now);
  }
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
