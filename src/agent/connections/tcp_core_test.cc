// Cores on threads of their own: a program's connections on two of them, where every thread sleeps between one byte and
// the next. Made for the thread sanitizer.
#include "agent/connections/tcp_core.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <numeric>

#include "base/sleep_flag.h"
#include "connections/socket_area.h"
#include "tcp/port/overheard_port.h"
#include "tcp/segment/segmentation.h"
#include "testing/link/emulated.h"
#include "testing/tcp/family.h"
#include "testing/tcp/steering.h"

namespace offpath::agent {
namespace {

using channel::SocketArea;
using channel::SocketOptions;

constexpr std::uint32_t connections = 48;
constexpr std::uint16_t served_port = 7000;
const SocketOptions options{.flows = 256, .send_bytes = 16'384, .receive_bytes = 16'384};

// Delivers frames to the queues of the addressed core, from any thread.
class Wire {
 public:
  explicit Wire(std::uint32_t cores) : program_(tcp::steering_program(cores)), queues_(cores) {
    for (Queue& queue : queues_) queue.ready = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  void put(std::vector<std::byte>&& frame) {
    Queue& queue = queues_[tcp::run_filter(program_, frame)];
    const std::lock_guard lock(queue.mutex);
    queue.frames.push_back(std::move(frame));
    static_cast<void>(::eventfd_write(queue.ready.get(), 1));
  }
  std::size_t take(std::uint32_t core, std::vector<std::vector<std::byte>>& taken, std::size_t most) {
    Queue& queue = queues_[core];
    const std::lock_guard lock(queue.mutex);
    taken.clear();
    for (; taken.size() < most && !queue.frames.empty(); queue.frames.pop_front())
      taken.push_back(std::move(queue.frames.front()));
    eventfd_t ignored;
    if (queue.frames.empty()) static_cast<void>(::eventfd_read(queue.ready.get(), &ignored));
    return taken.size();
  }
  [[nodiscard]] int ready(std::uint32_t core) const { return queues_[core].ready.get(); }

 private:
  struct Queue {
    std::mutex mutex;
    std::deque<std::vector<std::byte>> frames;
    Fd ready;
  };
  std::vector<sock_filter> program_;
  std::deque<Queue> queues_;
};

class WirePort final : public tcp::Port {
 public:
  WirePort(Wire& in, Wire& out, std::uint32_t core, std::uint8_t number)
      : in_(in), out_(out), core_(core), number_(number) {}
  std::size_t receive(std::span<tcp::ReceivedFrame> frames, TimeNs) override {
    const std::size_t count = in_.take(core_, given_, frames.size());
    for (std::size_t i = 0; i < count; ++i) frames[i] = {given_[i], false};
    return count;
  }
  std::size_t transmit(std::span<const tcp::FrameToSend> frames, TimeNs) override {
    for (const tcp::FrameToSend& frame : frames)
      tcp::for_each_wire_frame(frame, [&](std::vector<std::byte>&& bytes) { out_.put(std::move(bytes)); });
    return frames.size();
  }
  [[nodiscard]] tcp::PortCapabilities capabilities() const override {
    return {{2, 0, 0, 0, 0, number_}, 1500, true, 0};
  }
  [[nodiscard]] int wait_descriptor() const override { return in_.ready(core_); }
  [[nodiscard]] tcp::PortCounters counters() const override { return {}; }
  void close() override {}

 private:
  Wire &in_, &out_;
  std::uint32_t core_;
  std::uint8_t number_;
  std::vector<std::vector<std::byte>> given_;
};

// A program's memory, which the agent may keep longer than the program.
struct Mapping {
  explicit Mapping(std::size_t bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    OFP_ASSERT(at != MAP_FAILED);
    memory = {static_cast<std::byte*>(at), bytes};
  }
  ~Mapping() { ::munmap(memory.data(), memory.size()); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  MutableBytes memory;
};

// An agent: core 0 on a thread of this class, as TcpPrograms has it, and further cores.
class Agent final : public loop::Poller {
 public:
  Agent(Wire& in, Wire& out, std::uint8_t number, std::uint32_t cores)
      : loop_(loop::Loop::make({}).value()),
        congestion_(tcp::congestion_control("cubic").value()),
        service_({}, 0, cores) {
    settings_.cores = cores;
    tcp::set_test_address(settings_.stack, 0x0a090000u + number);
    settings_.loop.spin_ns = 20 * microsecond_ns;
    for (std::uint32_t core = 1; core < cores; ++core)
      cores_.push_back(
          TcpCore::make(core, *loop_, settings_, *congestion_, std::make_unique<WirePort>(in, out, core, number),
                        {[this](const tcp::CoreMessage& message, TimeNs now) { service_.on_message(message, now); },
                         [this](tcp::TcpService::Ended ended, TimeNs now) { close(ended.program, now); }},
                        monotonic_ns())
              .value());
    port_ = std::make_unique<WirePort>(in, out, 0, number);
    overheard_ = std::make_unique<tcp::OverheardPort>(*port_, [this](const tcp::NeighbourMessage& message) {
      for (const auto& core : cores_) core->overhear(message);
    });
    stack_ = std::make_unique<tcp::Stack>(stack_of_core(settings_, 0), port_->capabilities(), *congestion_, service_,
                                          monotonic_ns());
    service_.serve(*stack_);
    station_ = std::make_unique<tcp::Station>(*overheard_, *stack_, [this](TimeNs at) { service_.react(at); });
    OFP_ASSERT(loop_->watch(port_->wait_descriptor(), EPOLLIN));
    asked_ = std::make_unique<loop::Mailbox<std::function<void(TimeNs)>>>(
        *loop_, 64, [](const std::function<void(TimeNs)>& task, TimeNs now) { task(now); });
    loop_->add(*asked_);
    loop_->add(*this);
    for (const auto& core : cores_) OFP_ASSERT(core->start(std::nullopt));
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~Agent() override {
    ask([this](TimeNs) { loop_->stop(); });
    thread_.join();
    cores_.clear();
  }
  // Runs a task on core 0's thread.
  void ask(std::function<void(TimeNs)> task) {
    while (!asked_->post(std::move(task))) std::this_thread::yield();
  }
  void wake_core_0() { loop_->waker().wake(); }
  // `doorbells`: of the other cores.
  void open(std::uint64_t number, const wire::TcpAreaLayout& layout, const std::shared_ptr<Mapping>& mapping,
            std::shared_ptr<const Fd> wake, const std::vector<std::shared_ptr<const Fd>>& doorbells) {
    const auto view = [mapping] { return mapping->memory; };
    OFP_ASSERT(service_.open(number, layout, {0, true}, view));
    for (std::size_t i = 0; i < cores_.size(); ++i) {
      cores_[i]->open(number, layout, {0, true}, view, service_.blocks(number), doorbells[i]);
      cores_[i]->add_process(number, 0, wake);
    }
    wakes_[number] = std::move(wake);
  }
  // Process 0 has ended, and a new process has its number, the lowest that is free.
  void replace_process(std::uint64_t number, std::shared_ptr<const Fd> wake) {
    for (const auto& core : cores_) core->remove_process(number, 0), core->add_process(number, 0, wake);
    wakes_[number] = std::move(wake);
  }
  void close(std::uint64_t number, TimeNs now) {
    service_.close(number, now);
    for (const auto& core : cores_) core->close(number);
    ++closed;
  }
  // How often each core has slept. A core answers after earlier orders.
  [[nodiscard]] std::vector<std::uint64_t> sleeps() {
    std::vector<std::uint64_t> slept(cores_.size() + 1);
    std::atomic<std::size_t> answers = 0;
    ask([&](TimeNs) {
      slept[0] = loop_->counters().sleeps;
      for (const auto& core : cores_)
        core->ask_status([&](const TcpStatus& status, TimeNs) {
          slept[status.cores.front().core] = status.cores.front().loop.sleeps;
          ++answers;
        });
    });
    while (answers < cores_.size()) std::this_thread::yield();
    return slept;
  }
  // Counts the flows of all cores; the answer arrives on core 0's thread.
  void ask_flows(const std::shared_ptr<std::vector<std::size_t>>& flows, std::atomic<std::size_t>& answers) {
    flows->push_back(stack_->flows());
    ++answers;
    for (const auto& core : cores_)
      core->ask_status([flows, &answers](const TcpStatus& status, TimeNs) {
        flows->push_back(status.flows);
        ++answers;
      });
  }

  bool poll(TimeNs now) override {
    bool worked = false;
    for (const auto& core : cores_) worked = core->told().poll(now) || worked;
    service_.attach(now);
    worked = station_->poll(now) || worked;
    for (const auto& each : service_.take_wakes())
      static_cast<void>(::send(wakes_.at(each.program)->get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    for (const tcp::CoreMessage& message : service_.take_messages())
      for (const auto& core : cores_) core->say(message);
    for (const auto& core : cores_) core->flush();
    return worked;
  }
  bool fall_asleep(TimeNs now) override {
    service_.attach(now);
    for (const auto& core : cores_)
      if (!core->flush() || !core->told().fall_asleep(now)) return false;
    return station_->fall_asleep(now) && service_.fall_asleep();
  }
  [[nodiscard]] TimeNs next_deadline() const override { return station_->next_deadline(); }

  std::atomic<std::size_t> closed = 0;

 private:
  TcpSettings settings_;
  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<const tcp::CongestionControl> congestion_;
  tcp::TcpService service_;
  std::unique_ptr<WirePort> port_;
  std::unique_ptr<tcp::OverheardPort> overheard_;
  std::unique_ptr<tcp::Stack> stack_;
  std::unique_ptr<tcp::Station> station_;
  std::unique_ptr<loop::Mailbox<std::function<void(TimeNs)>>> asked_;
  std::vector<std::unique_ptr<TcpCore>> cores_;
  std::map<std::uint64_t, std::shared_ptr<const Fd>> wakes_;
  std::thread thread_;
};

// A program of one agent, with the descriptor that wakes it.
class Program {
 public:
  Program(Agent& agent, std::uint64_t number)
      : agent_(agent),
        number_(number),
        layout_(SocketArea::layout_of(options)),
        mapping_(std::make_shared<Mapping>(layout_.bytes)) {
    int ends[2];
    OFP_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    own_ = Fd(ends[0]);
    for (std::uint32_t core = 1; core < wire::tcp_cores_max; ++core)
      doorbells_.push_back(std::make_shared<const Fd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    area = std::make_unique<SocketArea>(mapping_->memory, options, [this](std::uint32_t core) {
      if (core == 0)
        agent_.wake_core_0();
      else
        static_cast<void>(ring(core));
    });
    std::atomic<bool> opened = false;
    agent_.ask([&, wake = std::make_shared<const Fd>(ends[1])](TimeNs) {
      agent_.open(number, layout_, mapping_, wake, doorbells_);
      opened = true;
    });
    while (!opened) std::this_thread::yield();
    area->spread();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Joins again as another process with the same number.
  void join_again() {
    int ends[2];
    OFP_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    own_ = Fd(ends[0]);
    agent_.ask([this, wake = std::make_shared<const Fd>(ends[1])](TimeNs) { agent_.replace_process(number_, wake); });
  }
  // False: the core's doorbell is full.
  bool ring(std::uint32_t core, std::uint64_t count = 1) const {
    return ::eventfd_write(doorbells_[core - 1]->get(), count) == 0;
  }
  // Waits until the core sleeps. False: it did not for a long time.
  [[nodiscard]] bool await_sleep(std::uint32_t core) const {
    const std::uint64_t asleep = wire::tcp_word::of_core(core) + wire::tcp_word::agent_asleep;
    const TimeNs deadline = link::soon();
    while (SleepFlag(mapping_->memory.data() + asleep).value() == 0) {
      if (monotonic_ns() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  [[nodiscard]] bool is_woken() const {
    pollfd woken{own_.get(), POLLIN, 0};
    return ::poll(&woken, 1, link::patience_ms()) == 1;
  }

  // Waits until an event has arrived. False: nothing woke this program for a long time.
  bool wait() {
    for (;;) {
      area->take_in();
      bool changed = false;
      while (area->take_changed()) changed = true;  // another call may have consumed the event
      if (changed) return true;
      if (!area->fall_asleep()) continue;
      if (!is_woken()) return false;
      char byte;
      while (::recv(own_.get(), &byte, 1, MSG_DONTWAIT) > 0) {
      }
    }
  }
  // Repeats `call` until its result is not would_block.
  template <class Call>
  auto patiently(const Call& call) {
    for (auto answer = call();; answer = call())
      if (answer || answer.error().code != Error::would_block || !wait()) return answer;
  }
  std::unique_ptr<SocketArea> area;

 private:
  Agent& agent_;
  std::uint64_t number_;
  wire::TcpAreaLayout layout_;
  std::shared_ptr<Mapping> mapping_;
  std::vector<std::shared_ptr<const Fd>> doorbells_;  // of cores from 1 on
  Fd own_;
};

// Accepts so many connections and echoes their data until each has ended.
void serve(Program& server, SocketArea::Handle listener, std::size_t count, std::atomic<std::size_t>& echoed) {
  std::vector<SocketArea::Handle> flows;
  std::size_t ended = 0;
  while (ended < count && server.wait()) {
    for (auto flow = server.area->accept(listener); flow; flow = server.area->accept(listener)) flows.push_back(*flow);
    for (auto flow = flows.begin(); flow != flows.end();) {
      std::array<std::byte, 64> bytes;
      const auto got = server.area->receive(*flow, bytes);
      if (got && *got > 0) {
        ++echoed;  // counted before the peer can observe it
        ASSERT_TRUE(server.area->send(*flow, Bytes(bytes).first(*got)));
      }
      const bool over = got ? *got == 0 : got.error().code != Error::would_block;
      if (over) server.area->close(*flow), ++ended;
      flow = over ? flows.erase(flow) : std::next(flow);
    }
  }
  EXPECT_EQ(ended, count);
}

void expect_echo(Program& client, SocketArea::Handle flow, std::array<std::byte, 2> said) {
  const auto sent = client.patiently([&] { return client.area->send(flow, said); });
  ASSERT_TRUE(sent) << sent.error().message;
  std::array<std::byte, 2> heard{};
  const auto got = client.patiently([&] { return client.area->receive(flow, heard); });
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(heard, said);
}

// Connections on both cores of a client's agent that the peer's agent refuses, which a core tells.
void expect_refusals(Program& client) {
  std::array<std::uint32_t, 2> of_cores{};
  for (int i = 0; i < 8; ++i) {
    const auto flow =
        client.patiently([&] { return client.area->connect({tcp::test_address(0x0a090002), served_port}); }).value();
    ++of_cores[client.area->core_of(flow)];
    std::array<std::byte, 1> byte;
    const auto got = client.patiently([&] { return client.area->receive(flow, byte); });
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Error::peer_lost) << got.error().message;
    client.area->close(flow);
  }
  for (const std::uint32_t flows : of_cores) EXPECT_GT(flows, 0u);
}

TEST(TcpCores, ServeAProgramOnThreadsOfTheirOwn) {
  Wire to_client(2), to_server(2);
  Agent client_agent(to_client, to_server, 1, 2), server_agent(to_server, to_client, 2, 2);
  Program client(client_agent, 1), server(server_agent, 1);
  const auto listener = server.area->listen(served_port, connections).value();
  while (!server.area->look(listener)->connected) ASSERT_TRUE(server.wait());

  std::atomic<std::size_t> echoed = 0;
  std::jthread serves([&] { serve(server, listener, connections, echoed); });
  std::vector<SocketArea::Handle> flows;
  for (std::uint32_t i = 0; i < connections; ++i)
    flows.push_back(
        client.patiently([&] { return client.area->connect({tcp::test_address(0x0a090002), served_port}); }).value());
  for (std::uint32_t round = 0; round < 20; ++round)
    for (const SocketArea::Handle flow : flows)
      ASSERT_NO_FATAL_FAILURE(expect_echo(client, flow, {static_cast<std::byte>(flow), static_cast<std::byte>(round)}));
  EXPECT_GE(echoed, 20u * connections);
  // Both cores of both agents have some of the connections.
  for (Agent* agent : {&client_agent, &server_agent}) {
    const auto counts = std::make_shared<std::vector<std::size_t>>();
    std::atomic<std::size_t> answers = 0;
    agent->ask([&](TimeNs) { agent->ask_flows(counts, answers); });
    while (answers < 2) std::this_thread::yield();
    EXPECT_EQ(std::accumulate(counts->begin(), counts->end(), std::size_t{0}), connections);
    for (const std::size_t count : *counts) EXPECT_GT(count, connections / 8);
  }
  for (const SocketArea::Handle flow : flows) client.area->close(flow);
}

// An event for the process may have occurred while this core had another descriptor of it, or none.
TEST(TcpCores, WakeAProcessOnceTheyKnowHow) {
  Wire to_client(2), to_server(2);
  Agent client_agent(to_client, to_server, 1, 2);
  Program client(client_agent, 1);
  EXPECT_TRUE(client.is_woken()) << "the first, before anything has happened";
  client.join_again();
  EXPECT_TRUE(client.is_woken());
}

// Process 0 of a program is not special: after its end a forked child gets the number 0.
TEST(TcpCores, WakeWhoeverHasTheNumberOfAProcessThatEnded) {
  Wire to_client(2), to_server(2);
  Agent client_agent(to_client, to_server, 1, 2), server_agent(to_server, to_client, 2, 2);
  Program client(client_agent, 1);
  client.join_again();
  expect_refusals(client);
}

TEST(TcpCores, AreWokenWhileCore0DoesSomethingElse) {
  std::latch held(1), go(1);
  Wire to_client(2), to_server(2);
  Agent client_agent(to_client, to_server, 1, 2), server_agent(to_server, to_client, 2, 2);
  Program client(client_agent, 1), server(server_agent, 1);
  const auto listener = server.area->listen(served_port, 2).value();
  while (!server.area->look(listener)->connected) ASSERT_TRUE(server.wait());
  std::atomic<std::size_t> echoed = 0;
  std::jthread serves([&] { serve(server, listener, 2, echoed); });
  std::array<SocketArea::Handle, 2> flows{};
  for (SocketArea::Handle& flow : flows) {
    flow = client.patiently([&] { return client.area->connect({tcp::test_address(0x0a090002), served_port}); }).value();
    ASSERT_NO_FATAL_FAILURE(expect_echo(client, flow, {}));
  }
  const SocketArea::Handle flow = flows[client.area->core_of(flows[0]) == 1 ? 0 : 1];
  ASSERT_EQ(client.area->core_of(flow), 1u) << "connections take the cores in turn";
  client_agent.ask([&](TimeNs) {
    held.count_down();
    go.wait();
  });
  held.wait();
  bool sleeps = true;
  for (std::uint8_t round = 0; round < 20 && sleeps && !HasFatalFailure(); ++round) {
    sleeps = client.await_sleep(1);
    expect_echo(client, flow, {std::byte{1}, std::byte{round}});
  }
  go.count_down();
  EXPECT_TRUE(sleeps);
  for (const SocketArea::Handle each : flows) client.area->close(each);
}

// The program has no command for the core. Each wake is one look, also with earlier ones unread, and none of core 0.
TEST(TcpCores, LookOnceForAWakeOfAHostileProgram) {
  Wire to_client(2), to_server(2);
  Agent client_agent(to_client, to_server, 1, 2), server_agent(to_server, to_client, 2, 2);
  Program hostile(client_agent, 1), client(client_agent, 2);
  constexpr std::uint64_t wakes = 20'000, asked = 10;  // sleeps around a question
  const auto slept_since = [&](std::vector<std::uint64_t> before) {
    const std::vector<std::uint64_t> now = client_agent.sleeps();
    for (std::size_t i = 0; i < now.size(); ++i) before[i] = now[i] - before[i];
    return before;
  };
  ASSERT_TRUE(hostile.await_sleep(1));
  std::vector<std::uint64_t> before = client_agent.sleeps();
  for (std::uint64_t i = 0; i < wakes; ++i) ASSERT_TRUE(hostile.ring(1));
  std::vector<std::uint64_t> slept = slept_since(before);
  EXPECT_LE(slept[0], asked);
  EXPECT_GE(slept[1], 1u);
  EXPECT_LE(slept[1], wakes + asked);

  ASSERT_TRUE(hostile.ring(1, ~0ull - 1 - wakes));
  EXPECT_FALSE(hostile.ring(1)) << "it is full";
  before = client_agent.sleeps();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  slept = slept_since(before);
  for (const std::uint64_t of_core : slept) EXPECT_LE(of_core, asked) << "a full one is no wake";
  expect_refusals(client);
}

TEST(TcpCores, AreNotWokenByAProgramThatTheyHaveClosed) {
  Wire to_client(2), to_server(2);
  Agent client_agent(to_client, to_server, 1, 2);
  Program client(client_agent, 1);
  client_agent.ask([&](TimeNs now) { client_agent.close(1, now); });
  const std::vector<std::uint64_t> before = client_agent.sleeps();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.ring(1));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_LE(client_agent.sleeps()[1] - before[1], 10u);
}

// Programs end at any point of their work; the cores learn of it one after another.
TEST(TcpCores, ForgetAProgramThatEndsWhileTheyWork) {
  Wire to_client(2), to_server(2);
  Agent client_agent(to_client, to_server, 1, 2), server_agent(to_server, to_client, 2, 2);
  Program client(client_agent, 1);
  for (std::uint64_t number = 1; number <= 10; ++number) {
    const auto server = std::make_unique<Program>(server_agent, number);
    const auto listener = server->area->listen(served_port, 16).value();
    while (!server->area->look(listener)->connected) ASSERT_TRUE(server->wait()) << "its port is free on every core";
    std::vector<SocketArea::Handle> flows;
    for (int i = 0; i < 8; ++i)
      flows.push_back(
          client.patiently([&] { return client.area->connect({tcp::test_address(0x0a090002), served_port}); }).value());
    for (const SocketArea::Handle flow : flows)
      ASSERT_TRUE(client.patiently([&] { return client.area->send(flow, std::array<std::byte, 1>{}); }));
    server_agent.ask([&server_agent, number](TimeNs now) { server_agent.close(number, now); });
    for (const SocketArea::Handle flow : flows) {
      std::array<std::byte, 1> byte;
      const auto got = client.patiently([&] { return client.area->receive(flow, byte); });
      if (got) {
        EXPECT_EQ(*got, 0u);
      } else {
        EXPECT_EQ(got.error().code, Error::peer_lost);
      }
      client.area->close(flow);
    }
  }
  EXPECT_EQ(server_agent.closed, 10u);
}

}  // namespace
}  // namespace offpath::agent
