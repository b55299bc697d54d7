// Programs on two agents of several cores each, with a bad network between them, in virtual time and on one thread:
// messages between cores are delayed by the seed, and keep their order. For tests.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "tcp/port/overheard_port.h"
#include "testing/tcp/programs.h"
#include "testing/tcp/steering.h"

namespace offpath::tcp {

// One agent's.
class TestCores {
 public:
  TestCores(std::uint32_t side, std::uint32_t cores, const TestNetworkOptions& options, Port& port,
            const CongestionControl& congestion, const TcpServiceLimits& limits, TimeNs now)
      : ports(port, cores), random_(options.seed * 977 + side) {
    for (std::uint32_t number = 0; number < cores; ++number) {
      Core& core = *all.emplace_back(std::make_unique<Core>(limits, number, cores));
      core.port = &ports.core(number);
      if (number == 0) {
        core.overheard = std::make_unique<OverheardPort>(*core.port, [this](const NeighbourMessage& message) {
          for (std::uint32_t other = 1; other < all.size(); ++other)
            tell(other, [this, other, message](TimeNs at) { all[other]->stack->overhear(message, at); });
        });
        core.port = core.overheard.get();
      }
      StackOptions stack = options.stack;
      set_test_address(stack, 0x0a000001 + side);
      stack.secret = {options.seed, 100 * side + number + 1};
      stack.core = number;
      stack.cores = cores;
      core.stack = std::make_unique<Stack>(stack, core.port->capabilities(), congestion, core.service, now);
      core.service.serve(*core.stack);
      core.station = std::make_unique<Station>(*core.port, *core.stack, [&core](TimeNs at) { core.service.react(at); });
    }
  }

  struct Core {
    Core(const TcpServiceLimits& limits, std::uint32_t number, std::uint32_t cores) : service(limits, number, cores) {}
    TcpService service;
    Port* port = nullptr;
    std::unique_ptr<OverheardPort> overheard;
    std::unique_ptr<Stack> stack;
    std::unique_ptr<Station> station;
    std::deque<std::function<void(TimeNs)>> told;  // by core 0
    std::deque<std::function<void(TimeNs)>> tells_core_0;
  };

  [[nodiscard]] Status open(TestProgram& program, std::uint64_t number, std::uint32_t user) {
    const TcpService::Who who{user, true};
    program.number = number;
    const auto memory = [&program] { return program.mapped ? program.memory : MutableBytes(); };
    OFP_TRY(all[0]->service.open(number, program.layout, who, memory));
    for (std::uint32_t other = 1; other < all.size(); ++other)
      tell(other, [this, other, &program, memory, number, who, blocks = all[0]->service.blocks(number)](TimeNs) {
        OFP_ASSERT(all[other]->service.open(number, program.layout, who, memory, blocks));
      });
    program.area->spread();
    return {};
  }
  void close(std::uint64_t number, TimeNs now) {
    all[0]->service.close(number, now);
    for (std::uint32_t other = 1; other < all.size(); ++other)
      tell(other, [this, other, number](TimeNs at) { all[other]->service.close(number, at); });
  }

  bool poll(TimeNs now) {
    bool worked = false;
    for (std::uint32_t number = 0; number < all.size(); ++number) {
      if (number == late) continue;
      Core& core = *all[number];
      worked = deliver(core.told, now) || worked;
      if (number > 0) worked = deliver(core.tells_core_0, now) || worked;
      core.service.attach(now);
      const auto said = [&] { return core.service.counters().commands + core.service.counters().events; };
      const std::uint64_t before = said();
      worked = core.station->poll(now) || said() != before || worked;
      for (auto& each : core.service.take_ended()) {
        worked = true;
        ended.push_back(each);
        if (number == 0)
          close(each.program, now);
        else
          core.tells_core_0.emplace_back([this, program = each.program](TimeNs at) { close(program, at); });
      }
      for (const CoreMessage& message : core.service.take_messages()) {
        worked = true;
        if (number > 0)
          core.tells_core_0.emplace_back([this, message](TimeNs at) { all[0]->service.on_message(message, at); });
        for (std::uint32_t other = 1; number == 0 && other < all.size(); ++other)
          tell(other, [this, other, message](TimeNs at) { all[other]->service.on_message(message, at); });
      }
    }
    return worked || (late == nobody && ports.has_frames());
  }
  [[nodiscard]] TimeNs next_deadline() const {
    TimeNs due = never;
    for (std::uint32_t number = 0; number < all.size(); ++number)
      if (number != late) due = std::min(due, all[number]->station->next_deadline());
    return due;
  }
  [[nodiscard]] std::size_t flows() const {
    std::size_t sum = 0;
    for (const auto& core : all) sum += core->stack->flows();
    return sum;
  }

  SteeredPorts ports;
  std::vector<std::unique_ptr<Core>> all;
  std::list<TestProgram> programs;
  std::vector<TcpService::Ended> ended;
  static constexpr std::uint32_t nobody = ~0u;
  std::uint32_t late = nobody;  // a core that does not run, as if others had its processor

 private:
  void tell(std::uint32_t core, std::function<void(TimeNs)> what) { all[core]->told.push_back(std::move(what)); }
  // Delivers some, all or none of the waiting messages.
  bool deliver(std::deque<std::function<void(TimeNs)>>& waiting, TimeNs now) {
    const bool there = !waiting.empty();
    while (!waiting.empty() && random_() % 4 != 0) {
      const auto task = std::move(waiting.front());
      waiting.pop_front();
      task(now);
    }
    return there;
  }
  std::mt19937_64 random_;
};

class CoreWorld final : public VirtualTime {
 public:
  CoreWorld(const TestNetworkOptions& options, std::array<std::uint32_t, 2> cores, const TcpServiceLimits& limits = {})
      : congestion_(congestion_control(options.congestion).value()) {
    std::tie(one_, two_) = MemoryPort::pair(options.ports);
    for (std::uint32_t side = 0; side < 2; ++side) {
      MemoryPort& port = side == 0 ? *one_ : *two_;
      impaired_[side] = std::make_unique<ImpairedPort>(port, side == 0 ? options.there : options.back, Impairments{},
                                                       2 * options.seed + side * 1'000'003);
      sides[side] =
          std::make_unique<TestCores>(side, cores[side], options, *impaired_[side], *congestion_, limits, now);
    }
  }

  TestProgram& add(std::uint32_t side, const SocketOptions& options = {64, 16'384, 16'384}, std::uint32_t user = 0) {
    TestProgram& program = sides[side]->programs.emplace_back(options);
    OFP_ASSERT(sides[side]->open(program, ++last_number_, user));
    return program;
  }
  std::unique_ptr<TestCores> sides[2];

 private:
  bool poll() override {
    bool worked = false;
    for (const auto& side : sides) worked = side->poll(now) || worked;
    return worked;
  }
  [[nodiscard]] bool has_frames() const override { return one_->has_frames() || two_->has_frames(); }
  [[nodiscard]] TimeNs next_deadline() const override {
    return std::min(sides[0]->next_deadline(), sides[1]->next_deadline());
  }

  std::unique_ptr<const CongestionControl> congestion_;
  std::unique_ptr<MemoryPort> one_, two_;
  std::unique_ptr<ImpairedPort> impaired_[2];
  std::uint64_t last_number_ = 0;
};

}  // namespace offpath::tcp
