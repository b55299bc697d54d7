// A slow path for one end of a test network: both its ends and the memory between them, in one process. For tests.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "tcp/slow_path/slow_path_agent.h"
#include "tcp/slow_path/slow_path_host.h"
#include "testing/tcp/network.h"

namespace offpath::tcp {

class TestSlowPath {
 public:
  explicit TestSlowPath(Stack& stack, std::uint32_t ring_bytes = wire::TcpSlowLayout::ring_bytes_min)
      : stack_(stack), layout_{ring_bytes} {}

  // A process begins, or another one.
  void begin(TimeNs now) {
    end();
    memory_.assign(layout_.bytes() / sizeof(Line), Line{});
    process.emplace(memory(), layout_);
    agent.emplace(stack_, memory(), layout_, counters, now);
  }
  void end() {
    agent.reset();
    process.reset();
  }
  bool poll(TimeNs now) {
    bool worked = false;
    if (agent) {
      const auto polled = agent->poll(now);
      if (!polled) {
        why = polled.error();
        end();
        return true;
      }
      worked |= *polled;
    }
    if (process && !stopped) {
      const auto polled = process->poll(now);
      OFP_ASSERT(polled);
      worked |= *polled;
    }
    return worked;
  }
  [[nodiscard]] TimeNs next_due() const {
    return std::min(process && !stopped ? process->next_due() : never, agent ? agent->next_due() : never);
  }
  [[nodiscard]] MutableBytes memory() {
    return {reinterpret_cast<std::byte*>(memory_.data()), memory_.size() * sizeof(Line)};
  }

  SlowPathCounters counters;
  std::optional<HostSlowPath> process;
  std::optional<AgentSlowPath> agent;
  bool stopped = false;        // the process takes nothing
  std::optional<Failure> why;  // it ended

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };
  Stack& stack_;
  wire::TcpSlowLayout layout_;
  std::vector<Line> memory_;
};

// A test network whose ends may have one each.
struct SlowPathNetwork : TestNetwork {
  explicit SlowPathNetwork(const TestNetworkOptions& options = {}, bool first = true, bool second = true)
      : TestNetwork(options) {
    const bool has[] = {first, second};
    for (std::size_t i = 0; i < 2; ++i) {
      if (!has[i]) continue;
      slow[i].emplace(*ends[i].stack);
      slow[i]->begin(now);
    }
    poll_others = [this](TimeNs at) {
      bool worked = false;
      for (auto& each : slow) worked |= each && each->poll(at);
      return std::exchange(worked_, worked) || worked;  // once more, so that owners can react
    };
    others_due = [this] {
      TimeNs due = never;
      for (const auto& each : slow)
        if (each) due = std::min(due, each->next_due());
      return due;
    };
  }
  std::array<std::optional<TestSlowPath>, 2> slow;

 private:
  bool worked_ = false;
};

}  // namespace offpath::tcp
