// Programs on two agents with a bad network between them, in virtual time: areas, services, stacks and ports, without
// channels. For tests.
#pragma once

#include <sys/mman.h>

#include <functional>
#include <list>
#include <memory>
#include <random>

#include "connections/socket_area.h"
#include "tcp/program/tcp_service.h"
#include "testing/tcp/network.h"
#include "testing/tcp/virtual_time.h"

namespace offpath::tcp {

using channel::SocketArea;
using channel::SocketOptions;

// A network of which the seed says how bad it is, each way.
[[nodiscard]] inline TestNetworkOptions bad_network(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](double most) { return most * static_cast<double>(random() % 1000) / 1000; };
  TestNetworkOptions options;
  options.seed = seed;
  for (Impairments* way : {&options.there, &options.back}) {
    way->loss = up_to(0.05);
    way->duplicate = up_to(0.02);
    way->corrupt = up_to(0.01);
    way->reorder = up_to(0.05);
    way->delay_ns = static_cast<TimeNs>(random() % (5 * millisecond_ns));
  }
  options.stack.time_wait_ns = options.stack.fin_wait_ns = second_ns;
  return options;
}

// A program's memory, shared as a segment is, and its end of it.
struct TestProgram {
  explicit TestProgram(const SocketOptions& options) : layout(SocketArea::layout_of(options)) {
    void* at = mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    OFP_ASSERT(at != MAP_FAILED);
    memory = {static_cast<std::byte*>(at), layout.bytes};
    area = std::make_unique<SocketArea>(memory, options, [this](std::uint32_t) { ++wakes_of_agent; });
  }
  ~TestProgram() { munmap(memory.data(), memory.size()); }
  TestProgram(const TestProgram&) = delete;
  TestProgram& operator=(const TestProgram&) = delete;

  // Writes an entry behind the program's own back.
  void write_command(const wire::TcpCommand& command, std::uint32_t core = 0) {
    auto& tail = reinterpret_cast<wire::TcpProgramLine*>(memory.data() + wire::tcp_word::of_core(core))->commands;
    std::memcpy(memory.data() + wire::TcpAreaLayout::commands + layout.of_core(core) + tail % layout.command_slots * 64,
                &command, sizeof command);
    ++tail;
  }

  wire::TcpAreaLayout layout;
  MutableBytes memory;
  std::unique_ptr<SocketArea> area;
  std::uint64_t number = 0;
  std::size_t wakes_of_agent = 0;
  bool mapped = true;  // as the agent sees it
};

// One end of one stream each way: sends bytes derived from their position, checks those of the other, and closes when
// all is done.
struct Talker {
  Talker(SocketArea& area_, SocketArea::Handle handle_, std::uint64_t sends_, bool connects_, std::uint64_t seed)
      : area(&area_), handle(handle_), sends(sends_), connects(connects_), random(seed) {}

  bool act() {
    if (closed) return false;
    const auto look = area->look(handle);
    OFP_ASSERT(look);
    if (look->error != wire::TcpError::none) error = look->error;
    if (!look->connected && !look->closed) return false;
    const std::uint64_t name = connects ? look->local.port : look->remote.port;
    bool worked = speak(2 * name + (connects ? 0 : 1));
    worked |= hear(2 * name + (connects ? 1 : 0));
    worked |= leave();
    return worked;
  }

  SocketArea* area;
  SocketArea::Handle handle;
  std::uint64_t sends, sent = 0, received = 0;
  bool connects, finished = false, heard_all = false, closed = false;
  std::size_t wrong = 0;
  wire::TcpError error = wire::TcpError::none;
  std::mt19937_64 random;

 private:
  bool speak(std::uint64_t stream) {
    if (finished || error != wire::TcpError::none) return false;
    std::vector<std::byte> bytes(std::min<std::uint64_t>(sends - sent, 1 + random() % 20'000));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = stream_byte(stream, sent + i);
    const auto taken = area->send(handle, bytes);
    if (taken) sent += *taken;
    if (sent == sends) finished = area->finish(handle).has_value();
    return (taken && *taken > 0) || finished;
  }
  bool hear(std::uint64_t stream) {
    if (heard_all) return false;
    std::vector<std::byte> bytes(1 + random() % 20'000);
    const auto taken = area->receive(handle, bytes);
    if (!taken) return false;
    for (std::size_t i = 0; i < *taken; ++i) wrong += bytes[i] != stream_byte(stream, received + i);
    received += *taken;
    heard_all = *taken == 0;
    return true;
  }
  bool leave() {
    closed = error != wire::TcpError::none || (finished && heard_all);
    if (closed) area->close(handle);
    return closed;
  }
};

class TestPrograms : public VirtualTime {
 public:
  struct End {
    explicit End(const TcpServiceLimits& limits) : service(limits) {}
    TcpService service;
    std::unique_ptr<ImpairedPort> port;
    std::unique_ptr<Stack> stack;
    std::unique_ptr<Station> station;
    std::list<TestProgram> programs;
    std::vector<TcpService::Ended> ended;
  };

  explicit TestPrograms(const TestNetworkOptions& options, const TcpServiceLimits& limits = {})
      : ends{End(limits), End(limits)}, congestion_(congestion_control(options.congestion).value()) {
    std::tie(one_, two_) = MemoryPort::pair(options.ports);
    ends[0].port = std::make_unique<ImpairedPort>(*one_, options.there, Impairments{}, 2 * options.seed);
    ends[1].port = std::make_unique<ImpairedPort>(*two_, options.back, Impairments{}, 2 * options.seed + 1'000'003);
    for (std::uint32_t i = 0; i < 2; ++i) {
      End& end = ends[i];
      StackOptions stack = options.stack;
      set_test_address(stack, 0x0a000001 + i);
      stack.secret = {options.seed, i + 1};
      end.stack = std::make_unique<Stack>(stack, end.port->capabilities(), *congestion_, end.service, now);
      end.service.serve(*end.stack);
      end.station = std::make_unique<Station>(*end.port, *end.stack, [&end](TimeNs at) { end.service.react(at); });
    }
  }

  [[nodiscard]] Status open(TestProgram& program, std::uint32_t at, const TcpService::Who& who = {}) {
    program.number = ++last_number_;
    return ends[at].service.open(program.number, program.layout, who,
                                 [&program] { return program.mapped ? program.memory : MutableBytes(); });
  }
  TestProgram& add(std::uint32_t at, const SocketOptions& options = {64, 65'536, 65'536},
                   const TcpService::Who& who = {}) {
    TestProgram& program = ends[at].programs.emplace_back(options);
    OFP_ASSERT(open(program, at, who));
    return program;
  }
  [[nodiscard]] static SocketArea::Endpoint endpoint(std::uint32_t end, std::uint16_t port) {
    return {TestNetwork::address(end), port};
  }

  End ends[2];

 protected:
  bool poll() override {
    bool worked = false;
    for (End& end : ends) {
      end.service.attach(now);
      const auto said = [&] { return end.service.counters().commands + end.service.counters().events; };
      const std::uint64_t before = said();
      worked |= end.station->poll(now) || said() != before;
      for (auto& each : end.service.take_ended()) end.ended.push_back(std::move(each));
    }
    return worked;
  }
  [[nodiscard]] bool has_frames() const override { return one_->has_frames() || two_->has_frames(); }
  [[nodiscard]] TimeNs next_deadline() const override {
    return std::min(ends[0].station->next_deadline(), ends[1].station->next_deadline());
  }

 private:
  std::unique_ptr<const CongestionControl> congestion_;
  std::unique_ptr<MemoryPort> one_, two_;
  std::uint64_t last_number_ = 0;
};

}  // namespace offpath::tcp
