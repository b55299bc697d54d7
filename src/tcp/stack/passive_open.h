// Passive open: SYNs for listeners, half-open connections, cookies, and segments that belong to no flow.
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/half_open.h"
#include "tcp/stack/handed_flows.h"
#include "tcp/stack/listeners.h"

namespace offpath::tcp {

class PassiveOpen {
 public:
  PassiveOpen(StackContext& context, const OtherStack& other, FrameQueue& frames, Routes& routes, Flows& flows,
              const Listeners& listeners, HandedFlows& handed, Owner& owner, TimeNs now)
      : context_(context),
        other_(other),
        frames_(frames),
        routes_(routes),
        flows_(flows),
        listeners_(listeners),
        handed_(handed),
        owner_(owner),
        half_open_(context.options.half_open_max, derived_key(context.options.secret, 5), now),
        cookies_(derived_key(context.options.secret, 6)) {}

  // A segment of no flow. Returns the flow that it has established, which then receives it.
  [[nodiscard]] Flow* receive(const Segment& segment, const MacAddress& from, TimeNs now);
  // Null if there is no room for the flow now: the peer's next segment asks again.
  [[nodiscard]] Flow* admit(const FlowKey& key, const Listener& listener, TimeNs now);
  // The other stack has taken a connection that was handed to it, or declined it.
  void handed_over(const FlowKey& key, bool declined) noexcept;
  void on_time(TimeNs now);

  [[nodiscard]] bool is_half_open(const FlowKey& key) noexcept { return half_open_.find(key) != nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return half_open_.size(); }
  [[nodiscard]] TimeNs next_due() const noexcept { return half_open_.next_due(); }
  [[nodiscard]] TimeNs cookies_until() const noexcept { return cookies_until_; }  // no cookie is valid after that
  void accept_cookies(TimeNs until) noexcept { cookies_until_ = until; }

 private:
  [[nodiscard]] Flow* receive_for_half_open(const Segment& segment, HalfOpen& half, const MacAddress& from, TimeNs now);
  void receive_syn(const Segment& segment, const Listener& listener, const MacAddress& from, TimeNs now);
  // True: the segment has a valid cookie. `flow` is then the established flow, if there was room for it.
  [[nodiscard]] bool receive_cookie(const Segment& segment, const Listener& listener, Flow*& flow, TimeNs now);
  [[nodiscard]] bool accepts_again(const Segment& syn, HalfOpen& half) const noexcept;
  void send_syn_ack(HalfOpen& half, const Listener& listener, bool cookie, const MacAddress& to, TimeNs now);
  [[nodiscard]] Flow* establish(const HalfOpen& half, const Listener& listener, TimeNs now);

  StackContext& context_;
  const OtherStack& other_;
  FrameQueue& frames_;
  Routes& routes_;
  Flows& flows_;
  const Listeners& listeners_;
  HandedFlows& handed_;
  Owner& owner_;
  HalfOpenTable half_open_;
  SynCookies cookies_;
  TimeNs cookies_until_ = 0;
};

}  // namespace offpath::tcp
