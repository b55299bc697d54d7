// A stack on its port, as a loop polls it.
//
// A poll has three stages. It receives all frames of a burst first, so that one acknowledgement serves them; then it
// runs timers, so that data just acknowledged is not sent again; then it sends. The owner acts on changes between
// polls, or in `react`, which is called between receiving and sending: an answer then carries the acknowledgement of
// the question.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "loop/loop.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

class Station final : public loop::Poller {
 public:
  using React = std::function<void(TimeNs now)>;

  // `port` and `stack` outlive it.
  Station(Port& port, Stack& stack, React react = {}) : port_(port), stack_(stack), react_(std::move(react)) {}

  bool poll(TimeNs now) override;
  // The loop watches the port's descriptor; one without is asked again when it is due.
  bool fall_asleep(TimeNs now) override;
  [[nodiscard]] TimeNs next_deadline() const override { return std::min(stack_.next_due(), port_.next_due()); }

 private:
  static constexpr std::size_t burst = 64;

  // A frame without room at the port. The owner may reclaim its memory meanwhile, so the payload is a copy.
  struct Kept {
    FrameToSend frame;
    std::vector<std::byte> payload;
  };
  bool receive(TimeNs now);
  bool send(TimeNs now);
  [[nodiscard]] bool send_kept(TimeNs now);
  void keep(const FrameToSend& frame);

  Port& port_;
  Stack& stack_;
  React react_;
  std::array<ReceivedFrame, burst> received_;
  std::array<FrameToSend, burst> frames_;
  std::deque<Kept> kept_;  // at most a burst
};

}  // namespace offpath::tcp
