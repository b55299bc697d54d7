// Members of an exchange over a loopback fabric, in virtual time: for unit tests and tests/sim. Time advances from
// event to event. Members can be stopped (they do nothing, and arriving parcels wait), killed and restarted.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "exchange/exchange.h"
#include "testing/exchange/loopback_carrier.h"

namespace offpath::exchange {

class LoopbackMembers {
 public:
  struct Member {
    std::unique_ptr<Exchange> exchange;  // null: dead
    std::unique_ptr<LoopbackCarrier> carrier;
    TimeNs stopped_until = 0;
    TimeNs clock_shift = 0;  // of its own monotonic clock against the fabric's: any number, as on different machines
    double clock_rate = 1;
    std::vector<ViewPtr> views;
    std::optional<std::vector<std::byte>> publishes;  // its record for each round; empty: never one
    TimeNs next = 0;
  };

  LoopbackMembers(ExchangeOptions options, Shape shape, std::size_t count, std::uint64_t seed)
      : options_(std::move(options)), shape_(shape), fabric_(count, seed), members_(count), seed_(seed) {
    for (std::size_t i = 0; i < count; ++i) places_.push_back({fmt::format("m{}", i)});
    for (MemberIndex i = 0; i < count; ++i) {
      publish(i, std::vector<std::byte>(8, static_cast<std::byte>(i)));
      start(i);
    }
  }

  void start(MemberIndex i) {
    Member& member = members_[i];
    auto topology = Topology::make(shape_, places_);
    fabric_.forget(i);
    member.carrier = std::make_unique<LoopbackCarrier>(fabric_, i);
    member.exchange =
        std::make_unique<Exchange>(options_, std::move(*topology), i, ++nonces_ + seed_ * 1000003, local(member, now_));
    member.next = now_;
  }
  void kill(MemberIndex i) {
    members_[i].exchange.reset();
    members_[i].stopped_until = 0;
  }
  void stop(MemberIndex i, TimeNs until) { members_[i].stopped_until = until; }
  void publish(MemberIndex i, std::vector<std::byte> record) { members_[i].publishes = std::move(record); }

  // Calls `each(now)` after everything that happens; false ends the run.
  template <class Each>
  void run_until(TimeNs end, const Each& each) {
    while (now_ < end) {
      TimeNs next = end;
      for (MemberIndex i = 0; i < members_.size(); ++i) {
        const Member& member = members_[i];
        if (!member.exchange) continue;
        const TimeNs wakes = std::max(std::min(member.next, fabric_.next_arrival(i)), member.stopped_until);
        next = std::min(next, std::max(wakes, now_));
      }
      now_ = next;
      if (now_ >= end) break;
      for (MemberIndex i = 0; i < members_.size(); ++i) turn(i);
      if (!each(now_)) return;
    }
  }
  void run_for(TimeNs time) {
    run_until(now_ + time, [](TimeNs) { return true; });
  }

  [[nodiscard]] TimeNs now() const noexcept { return now_; }
  [[nodiscard]] LoopbackFabric& fabric() noexcept { return fabric_; }
  [[nodiscard]] Member& operator[](MemberIndex i) noexcept { return members_[i]; }
  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  [[nodiscard]] bool runs(MemberIndex i) const noexcept {
    return members_[i].exchange && members_[i].stopped_until <= now_;
  }
  // The member's clock at the fabric's time.
  [[nodiscard]] static TimeNs local(const Member& member, TimeNs now) noexcept {
    return member.clock_shift + static_cast<TimeNs>(static_cast<double>(now) * member.clock_rate);
  }
  // Whether all members were notified, as by an owner with a membership (docs/internals/group.md).
  void tell(MemberIndex whom, MemberIndex about, bool is_up) {
    if (members_[whom].exchange) members_[whom].exchange->on_member(about, is_up, local(members_[whom], now_));
  }

 private:
  void turn(MemberIndex i) {
    Member& member = members_[i];
    if (!runs(i) || std::min(member.next, fabric_.next_arrival(i)) > now_) return;
    const TimeNs time = local(member, now_);
    ExchangeEffects effects;
    member.exchange->on_time(time, effects);
    carry_out(member, effects, time);
    (void)member.carrier->poll(now_, [&](MemberIndex, const SharedBytes& parcel) {
      ExchangeEffects more;
      (void)member.exchange->on_parcel(parcel, time, more);
      carry_out(member, more, time);
    });
    const TimeNs due = member.exchange->next_deadline();
    // Back to the fabric's time, rounded up.
    if (due == never)
      member.next = never;
    else if (member.clock_rate == 1)
      member.next = std::max(now_, due - member.clock_shift);
    else
      member.next =
          std::max(now_, static_cast<TimeNs>(static_cast<double>(due - member.clock_shift) / member.clock_rate) + 1);
  }
  void carry_out(Member& member, ExchangeEffects& effects, TimeNs time) {
    while (effects.wants_local) {
      effects.wants_local = false;
      if (!member.publishes) break;
      auto bytes = std::make_shared<const std::vector<std::byte>>(*member.publishes);
      member.exchange->on_local({bytes, *bytes}, 0, time, effects);
    }
    for (ViewPtr& view : effects.views) {
      member.views.push_back(std::move(view));
      if (member.views.size() > 64) member.views.erase(member.views.begin());
    }
    for (ExchangeEffects::Send& send : effects.sends)
      member.carrier->send(send.to, std::move(send.parcel), send.deadline, now_);
  }

  ExchangeOptions options_;
  Shape shape_;
  LoopbackFabric fabric_;
  std::vector<Place> places_;
  std::vector<Member> members_;
  std::uint64_t seed_, nonces_ = 0;
  TimeNs now_ = 1000 * second_ns;
};

}  // namespace offpath::exchange
