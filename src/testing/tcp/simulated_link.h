// A program behind a link of a card, or on its agent's machine, where the actions of both sides take time: measures
// echoes and streams in virtual time, and counts operations of the link. The peer, its agent and the network take none.
// For tests, and for offpath bench tcp --link.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>

#include "testing/tcp/linked_program.h"

namespace offpath::tcp {

struct SimulatedCosts {
  TimeNs turn_ns = 0;    // of the agent: from finding work in a round to its effect
  double byte_ns = 0;    // and of each byte of payload
  TimeNs answer_ns = 0;  // of the program: to take a message, and to send the next one
  double program_byte_ns = 0;
};

// The time of the code that runs here, by a clock of the caller; the ports' part, which is a device's, is left out.
struct SimulatedMeter {
  std::function<double()> clock_ns;
  double agent_ns = 0, ports_ns = 0, program_ns = 0;
  std::uint64_t turns = 0;
};

class SimulatedLink final : private LinkedPrograms {
 public:
  // Without a link the program is on its agent's machine. The meter outlives it.
  SimulatedLink(const SimulatedCosts& costs, const std::optional<TestLink>& link, std::uint32_t ring_bytes,
                SimulatedMeter* meter = nullptr)
      : LinkedPrograms(network()),
        costs_(costs),
        meter_(meter),
        ports_(MemoryPort::pair(network().ports)),
        timed_(*ports_.first, meter) {
    const SocketOptions rings{16, ring_bytes, ring_bytes};
    if (link) {
      TestLink posted = *link;
      posted.is_exact = true;
      posted.post_ns = costs.turn_ns;
      linked_ = &add_linked(0, posted, 1, rings);
    }
    program_ = link ? &linked_->program() : &add(0, rings);
    peer_ = &add(1, rings);
    for (End& end : ends)
      end.station = std::make_unique<Station>(&end == ends ? static_cast<Port&>(timed_) : *ports_.second, *end.stack,
                                              [&end](TimeNs at) { end.service.react(at); });
    const auto listener = area().listen(port, 4).value();
    until([&] { return area().look(listener)->connected; });
    near_ = peer().connect(endpoint(0, port)).value();
    until([&] {
      if (const auto accepted = area().accept(listener)) far_ = *accepted;
      return far_ != 0 && peer().look(near_)->connected;
    });
  }

  // One after the other; how long the peer waits for one, on average.
  double echo_ns(std::size_t count, std::size_t bytes) {
    std::vector<std::byte> message(bytes);
    const TimeNs began = now;
    for (std::size_t i = 0; i < count; ++i) {
      OFP_ASSERT(peer().send(near_, message));
      TimeNs answers_at = never;
      until([&] {
        // An effect of an agent of the same machine is seen at once.
        if (answers_at == never && metered([&] { return area().receive(far_, message).has_value(); }))
          answers_at = now + costs_.answer_ns + (linked_ == nullptr ? costs_.turn_ns : 0);
        if (answers_at <= now) {
          OFP_ASSERT(metered([&] { return area().send(far_, message).has_value(); }));
          answers_at = never - 1;
        }
        return peer().receive(near_, message).has_value();
      });
    }
    return double(now - began) / double(count) + double(costs_.turn_ns);  // until the last one leaves the agent
  }

  // Carries `bytes`; how many in a second.
  double stream(std::uint64_t bytes, bool to_program) {
    SocketArea &from = to_program ? peer() : area(), &to = to_program ? area() : peer();
    const SocketArea::Handle out = to_program ? near_ : far_, in = to_program ? far_ : near_;
    std::vector<std::byte> given(1 << 18), taken(1 << 18);
    const TimeNs began = now;
    std::uint64_t sent = 0, received = 0;
    TimeNs busy_until = now;
    const auto act = [&](bool is_program, std::uint64_t& position, const auto& call) {
      if (is_program && now < busy_until) return;
      const std::optional<std::size_t> count = is_program ? metered(call) : call();
      position += count.value_or(0);
      if (is_program) busy_until = now + static_cast<TimeNs>(double(count.value_or(0)) * costs_.program_byte_ns);
    };
    until([&] {
      const Bytes rest = Bytes(given).first(std::min<std::uint64_t>(given.size(), bytes - sent));
      if (!rest.empty()) act(!to_program, sent, [&] { return count_of(from.send(out, rest)); });
      act(to_program, received, [&] { return count_of(to.receive(in, taken)); });
      return received == bytes;
    });
    return double(bytes) / double(now - began) * second_ns;
  }

  [[nodiscard]] AreaMirrorCounters counters() const {
    return linked_ != nullptr ? linked_->mirror().counters() : AreaMirrorCounters{};
  }

 private:
  static constexpr std::uint16_t port = 8000;
  static constexpr TimeNs step_ns = 50;

  // Frames of a device that cuts and merges segments itself.
  static TestNetworkOptions network() {
    TestNetworkOptions options;
    options.ports.segmentation_bytes = 65'536;
    options.ports.whole_segments = true;
    return options;
  }

  class TimedPort final : public PortDecorator {
   public:
    TimedPort(Port& inner, SimulatedMeter* meter) : PortDecorator(inner), meter_(meter) {}
    std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override {
      return timed([&] { return inner_.receive(frames, now); });
    }
    std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override {
      return timed([&] { return inner_.transmit(frames, now); });
    }

   private:
    template <class Call>
    std::size_t timed(const Call& call) {
      if (meter_ == nullptr) return call();
      const double before = meter_->clock_ns();
      const std::size_t count = call();
      meter_->ports_ns += meter_->clock_ns() - before;
      return count;
    }
    SimulatedMeter* meter_;
  };

  [[nodiscard]] SocketArea& area() noexcept { return *program_->area; }
  [[nodiscard]] SocketArea& peer() noexcept { return *peer_->area; }
  [[nodiscard]] static std::optional<std::size_t> count_of(const Result<std::size_t>& result) {
    return result ? std::optional(*result) : std::nullopt;
  }
  template <class Call>
  std::invoke_result_t<Call> metered(const Call& call) {
    if (meter_ == nullptr) return call();
    const double before = meter_->clock_ns();
    auto result = call();
    if (result) meter_->program_ns += meter_->clock_ns() - before;
    return result;
  }

  template <class Done>
  void until(const Done& done) {
    for (const TimeNs limit = now + 4 * second_ns; !done(); tick()) OFP_ASSERT(now < limit);
  }
  void tick() {
    now += step_ns;
    if (linked_ != nullptr) linked_->touch(now);
    if (now >= busy_until_) turn_of_agent();
    End& other = ends[1];
    other.service.attach(now);
    static_cast<void>(other.station->poll(now));
  }
  void turn_of_agent() {
    End& agent = ends[0];
    const StackCounters& counters = agent.stack->counters();
    const std::uint64_t payload = counters.payload_in + counters.payload_out;
    const double before = meter_ != nullptr ? meter_->clock_ns() : 0, ports = meter_ != nullptr ? meter_->ports_ns : 0;
    agent.service.attach(now);
    bool worked = agent.station->poll(now);
    for (const auto& [number, process] : agent.service.take_wakes())
      if (linked_ != nullptr) linked_->mirror().wake(process);
    if (linked_ != nullptr) worked |= linked_->poll(now);
    if (!worked) return;
    const std::uint64_t carried = counters.payload_in + counters.payload_out - payload;
    busy_until_ = now + costs_.turn_ns + static_cast<TimeNs>(double(carried) * costs_.byte_ns);
    if (meter_ == nullptr) return;
    meter_->agent_ns += meter_->clock_ns() - before - (meter_->ports_ns - ports);
    ++meter_->turns;
  }

  SimulatedCosts costs_;
  SimulatedMeter* meter_;
  std::pair<std::unique_ptr<MemoryPort>, std::unique_ptr<MemoryPort>> ports_;
  TimedPort timed_;
  LinkedProgram* linked_ = nullptr;
  TestProgram *program_ = nullptr, *peer_ = nullptr;
  SocketArea::Handle near_ = 0, far_ = 0;
  TimeNs busy_until_ = 0;
};

}  // namespace offpath::tcp
