#include "testing/tcp/simulated_requests.h"

#include <algorithm>
#include <optional>

#include "sockets/short_waits.h"
#include "tcp/port/port_decorator.h"
#include "testing/tcp/programs.h"

namespace offpath::tcp {
namespace detail {

constexpr std::size_t events_max = 64;  // of a wait

// Connections with something to receive, in the order in which they got it.
class Readable {
 public:
  explicit Readable(std::size_t connections) : listed_(connections) {}
  void add(std::size_t connection) {
    if (std::exchange(listed_[connection], char{1}) == 0) queue_.push_back(connection);
  }
  [[nodiscard]] bool empty() const noexcept { return queue_.empty(); }
  [[nodiscard]] std::vector<std::size_t> take() {
    std::vector<std::size_t> taken;
    for (; !queue_.empty() && taken.size() < events_max; queue_.pop_front()) {
      taken.push_back(queue_.front());
      listed_[queue_.front()] = 0;
    }
    return taken;
  }

 private:
  std::deque<std::size_t> queue_;
  std::vector<char> listed_;
};

// A thread with an event loop: receives what has come, does something about it, and sends.
class EventLoop : public SimulatedProcess {
 public:
  EventLoop(SimulatedCores& cores, std::size_t core, const CallCosts& calls, TimeNs own_ns, const RequestSetUp& set_up)
      : SimulatedProcess(cores, core),
        readable(set_up.connections),
        calls_(calls),
        own_ns_(own_ns),
        receives_first_(set_up.receives_first) {}

  Readable readable;

 protected:
  virtual void on_received(std::size_t connection, TimeNs now) = 0;
  virtual void on_send(std::size_t /*connection*/, TimeNs /*now*/) {}  // it begins
  virtual void on_sent(std::size_t connection, TimeNs now) = 0;
  virtual void look() {}  // lists what can be received by now
  // There is nothing to receive. The next wait asks for whatever this does not ask for.
  virtual void rest(TimeNs now) = 0;

  void go_on(TimeNs) override {
    look();
    const std::vector<std::size_t> events = readable.take();
    const TimeNs wait_ns = std::exchange(has_waited_, false) ? 0 : calls_.wait_ns;
    if (events.empty())
      return work(wait_ns, [this](TimeNs now) {
        look();
        if (readable.empty()) rest(now);
      });
    work(wait_ns + static_cast<TimeNs>(events.size()) * calls_.event_ns);
    for (const std::size_t each : events) {
      work(calls_.receive_ns, [this, each](TimeNs now) { on_received(each, now); });
      work(own_ns_);
      if (!receives_first_) send(each);
    }
    for (const std::size_t each : events)
      if (receives_first_) send(each);
  }
  void send(std::size_t connection) {
    work(0, [this, connection](TimeNs now) { on_send(connection, now); });
    work(calls_.send_ns, [this, connection](TimeNs now) { on_sent(connection, now); });
  }
  // In the kernel: the time until a woken thread goes on is that in which the wait returns.
  void sleep_in_wait() {
    sleep([this](TimeNs) { has_waited_ = true; });
  }

 private:
  CallCosts calls_;
  TimeNs own_ns_;
  bool receives_first_;
  bool has_waited_ = false;
};

// The path of the client's messages, and of the answers.
class Way {
 public:
  virtual ~Way() = default;
  virtual void carry(std::size_t connection, EventLoop& client, TimeNs now) = 0;  // a request
  virtual void take(std::size_t connection) = 0;                                  // an answer
};

class Client final : public EventLoop {
 public:
  Client(SimulatedCores& cores, const RequestSetUp& set_up, const RequestCosts& costs, Way& way)
      : EventLoop(cores, set_up.client_core, costs.client, costs.client_ns, set_up),
        way_(way),
        sent_at_(set_up.connections) {}

  std::vector<double> latencies_ns;
  std::uint64_t sent = 0, answered = 0;

 private:
  void go_on(TimeNs now) override {
    if (std::exchange(has_begun_, true)) return EventLoop::go_on(now);
    for (std::size_t each = 0; each < sent_at_.size(); ++each) send(each);
  }
  void on_received(std::size_t connection, TimeNs now) override {
    way_.take(connection);
    ++answered;
    latencies_ns.push_back(double(now - sent_at_[connection]));
  }
  void on_send(std::size_t connection, TimeNs now) override { sent_at_[connection] = now; }
  void on_sent(std::size_t connection, TimeNs now) override {
    ++sent;
    way_.carry(connection, *this, now);
  }
  void rest(TimeNs) override { sleep_in_wait(); }

  Way& way_;
  std::vector<TimeNs> sent_at_;
  bool has_begun_ = false;
};

// By a step of `by`, if the other sleeps.
void wake(SimulatedCores& cores, SimulatedProcess& sleeper, SimulatedProcess& by, const WakeCosts& costs) {
  if (!sleeper.is_asleep()) return;
  cores.wake(sleeper, by.core());
  by.interrupt(sleeper.core() == by.core() ? costs.wake_here_ns : costs.wake_ns);
}

// Something arrives for a thread.
void deliver(SimulatedCores& cores, EventLoop& to, std::size_t connection, SimulatedProcess& by,
             const WakeCosts& costs) {
  to.readable.add(connection);
  wake(cores, to, by, costs);
}

// ---- a server in the kernel

class KernelServer final : public EventLoop {
 public:
  KernelServer(SimulatedCores& cores, const RequestSetUp& set_up, const RequestCosts& costs)
      : EventLoop(cores, set_up.server_core, costs.server, costs.server_ns, set_up),
        cores_(cores),
        wakes_(costs.wakes),
        spins_(set_up.server_spins) {}

  EventLoop* client = nullptr;

 private:
  static constexpr TimeNs spin_ns = millisecond_ns;  // as bench_tcp_server does

  void on_received(std::size_t, TimeNs now) override { spins_until_ = now + spin_ns; }
  void on_sent(std::size_t connection, TimeNs) override { deliver(cores_, *client, connection, *this, wakes_); }
  void rest(TimeNs now) override {
    if (!spins_ || now >= spins_until_) sleep_in_wait();
  }

  SimulatedCores& cores_;
  WakeCosts wakes_;
  bool spins_;
  TimeNs spins_until_ = 0;
};

class KernelWay final : public Way {
 public:
  KernelWay(SimulatedCores& cores, const RequestSetUp& set_up, const RequestCosts& costs)
      : cores_(cores), wakes_(costs.wakes), server_(cores, set_up, costs) {}
  void carry(std::size_t connection, EventLoop& client, TimeNs) override {
    deliver(cores_, server_, connection, client, wakes_);
  }
  void take(std::size_t) override {}
  [[nodiscard]] KernelServer& server() noexcept { return server_; }

 private:
  SimulatedCores& cores_;
  WakeCosts wakes_;
  KernelServer server_;
};

// ---- a server over an agent

// Agent, program and the client's kernel, which is a stack as well, and takes no time of its own.
class AgentWorld final : private TestPrograms {
 public:
  // Lets a number of frames through; those behind them come later.
  class GatedPort final : public PortDecorator {
   public:
    explicit GatedPort(Port& inner) : PortDecorator(inner) {}
    std::size_t receive(std::span<ReceivedFrame> frames, TimeNs at) override {
      const std::size_t count = PortDecorator::receive(frames.first(std::min(frames.size(), let_through)), at);
      let_through -= count;
      return count;
    }
    std::size_t transmit(std::span<const FrameToSend> frames, TimeNs at) override {
      const std::size_t count = PortDecorator::transmit(frames, at);
      sent += count;
      return count;
    }

    std::size_t let_through = 0, sent = 0;
  };

  explicit AgentWorld(const RequestSetUp& set_up)
      : TestPrograms(network()),
        ports_(MemoryPort::pair(network().ports)),
        agent_port(*ports_.first),
        client_port(*ports_.second) {
    const SocketOptions rings{static_cast<std::uint32_t>(4 * set_up.connections + 16), 65'536, 65'536};
    program = &add(0, rings);
    client = &add(1, rings);
    ends[0].station = station_on(agent_port, ends[0]);
    ends[1].station = station_on(client_port, ends[1]);
    connect(set_up.connections);
  }

  using TestPrograms::now;
  [[nodiscard]] End& agent() noexcept { return ends[0]; }
  [[nodiscard]] End& kernel() noexcept { return ends[1]; }
  // Frames on their way to the agent, and from it.
  [[nodiscard]] std::size_t to_agent() const noexcept { return client_port.sent - let_in_; }
  void let_in(std::size_t frames) noexcept {
    agent_port.let_through += frames;
    let_in_ += frames;
  }
  void run_kernel(TimeNs at) {
    kernel().service.attach(at);
    static_cast<void>(kernel().station->poll(at));
    static_cast<void>(kernel().service.take_wakes());
  }

 private:
  static constexpr std::uint16_t port = 8000;

  static TestNetworkOptions network() {
    TestNetworkOptions options;
    options.ports.segmentation_bytes = 65'536;
    options.ports.whole_segments = true;
    return options;
  }
  static std::unique_ptr<Station> station_on(Port& own, End& end) {
    return std::make_unique<Station>(own, *end.stack, [&end](TimeNs at) { end.service.react(at); });
  }
  void connect(std::size_t connections) {
    const auto until = [&](const auto& done) {
      for (const TimeNs limit = now + second_ns; !done(); now += microsecond_ns) {
        OFP_ASSERT(now < limit);
        agent_port.let_through = client_port.let_through = ~std::size_t{0};
        agent().service.attach(now);
        static_cast<void>(agent().station->poll(now));
        run_kernel(now);
      }
    };
    const auto listener = program->area->listen(port, static_cast<std::uint32_t>(connections)).value();
    until([&] { return program->area->look(listener)->connected; });
    for (std::size_t i = 0; i < connections; ++i) {
      near.push_back(client->area->connect(endpoint(0, port)).value());
      until([&] { return client->area->look(near.back())->connected; });
      until([&] {
        const auto accepted = program->area->accept(listener);
        if (accepted) far.push_back(*accepted);
        return accepted.has_value();
      });
    }
    const TimeNs settled = now + 4 * microsecond_ns;
    until([&] { return now >= settled; });
    while (program->area->take_changed()) {
    }
    while (client->area->take_changed()) {
    }
    agent_port.let_through = client_port.let_through = 0;
    let_in_ = client_port.sent;
    agent_port.sent = 0;
  }

  std::pair<std::unique_ptr<MemoryPort>, std::unique_ptr<MemoryPort>> ports_;
  std::size_t let_in_ = 0;

 public:
  GatedPort agent_port, client_port;
  TestProgram *program = nullptr, *client = nullptr;
  std::vector<SocketArea::Handle> near, far;  // by connection: of the client, and of the program
};

// Lists connections of an area that have changed and can be read.
void list_changed(SocketArea& area, const std::vector<SocketArea::Handle>& handles, Readable& readable) {
  area.take_in();
  while (const auto changed = area.take_changed()) {
    const auto found = std::ranges::find(handles, *changed);
    if (found == handles.end() || !area.look(*changed)->readable) continue;
    readable.add(static_cast<std::size_t>(found - handles.begin()));
  }
}

// A loop (loop/loop.h) whose poller is the station.
class Agent final : public SimulatedProcess {
 public:
  Agent(SimulatedCores& cores, const RequestSetUp& set_up, const RequestCosts& costs, AgentWorld& world)
      : SimulatedProcess(cores, set_up.agent_core), cores_(cores), costs_(costs), world_(world) {}

  EventLoop *client = nullptr, *server = nullptr;

  // Carries out what the agent or a timer has made the client's kernel do: frames to the agent, answers for the client.
  void on_kernel(SimulatedProcess* by, TimeNs now) {
    world_.run_kernel(now);
    SocketArea& area = *world_.client->area;
    list_changed(area, world_.near, client->readable);
    if (!client->readable.empty()) wake_by(*client, by);
    if (world_.to_agent() > 0) wake_by(*this, by);
    const TimeNs due = world_.kernel().station->next_deadline();
    if (due == never || (kernel_due_ > now && kernel_due_ <= due)) return;
    kernel_due_ = due;
    cores_.at(due, [this](TimeNs at) { on_kernel(nullptr, at); });
  }

 private:
  static constexpr TimeNs spin_ns = millisecond_ns, spin_after_few_ns = 100 * microsecond_ns;
  static constexpr TimeNs spin_alone_ns = 2 * microsecond_ns;
  static constexpr unsigned few_rounds = 16;

  void go_on(TimeNs now) override {
    if (worked_at_ == 0) worked_at_ = now;
    const std::size_t in = world_.to_agent();
    const AgentCosts& costs = costs_.agent;
    work(costs.round_ns + (in > 0 ? costs.in_round_ns + static_cast<TimeNs>(in) * costs.in_ns : 0),
         [this, in](TimeNs at) { round(in, at); });
  }
  // The round's frames and commands, and what it has to send: frame by frame, because each takes its time.
  void round(std::size_t in, TimeNs now) {
    TestPrograms::End& agent = world_.agent();
    const auto said = [&] { return agent.service.counters().commands + agent.service.counters().events; };
    const std::uint64_t before = said();
    const std::size_t sent = world_.agent_port.sent;
    world_.let_in(in);
    agent.service.attach(now);
    static_cast<void>(agent.station->poll(now));
    const std::size_t out = world_.agent_port.sent - sent;
    for (std::size_t i = 0; i < out; ++i) {
      const TimeNs ns = costs_.agent.out_ns + (i == 0 ? costs_.agent.out_round_ns : 0);
      const auto arrives = [this](TimeNs at) {
        ++world_.client_port.let_through;
        on_kernel(this, at);
      };
      if (i + 1 < out)
        work_in_call(ns, arrives);
      else
        work(ns, arrives);
    }
    for ([[maybe_unused]] const auto& each : agent.service.take_wakes())
      work(costs_.wakes.datagram_ns, [this](TimeNs) {
        if (server->is_asleep()) return wake(cores_, *server, *this, costs_.wakes);
        cores_.wake(*server, core());  // the datagram is there when it falls asleep
      });
    const bool worked = in > 0 || out > 0 || said() != before;
    work(0, [this, worked](TimeNs at) { end_round(worked, at); });
  }
  void wake_by(SimulatedProcess& sleeper, SimulatedProcess* by) {
    if (by != nullptr)
      wake(cores_, sleeper, *by, costs_.wakes);
    else if (sleeper.is_asleep())
      cores_.wake(sleeper);
  }
  // As Loop::run().
  void end_round(bool worked, TimeNs now) {
    const TimeNs spin = few_ < few_rounds ? std::min(spin_ns, spin_after_few_ns) : spin_ns;
    if (worked) {
      worked_at_ = now;
      few_ = std::min(few_ + 1, few_rounds);
    } else if (now >= worked_at_ + spin) {
      fall_asleep(now);
    } else if (now >= worked_at_ + spin_alone_ns) {
      yield(costs_.agent.yield_ns);
    }
  }
  void fall_asleep(TimeNs now) {
    TestPrograms::End& agent = world_.agent();
    agent.service.attach(now);
    if (world_.to_agent() > 0 || !agent.station->fall_asleep(now) || !agent.service.fall_asleep()) return;
    work(costs_.wakes.sleep_ns, [this](TimeNs) {
      if (world_.to_agent() > 0) return;
      if (const TimeNs due = world_.agent().station->next_deadline(); due != never)
        cores_.at(due, [this](TimeNs) {
          if (is_asleep()) cores_.wake(*this);
        });
      sleep([this](TimeNs) { few_ = 0; });
    });
  }

  SimulatedCores& cores_;
  RequestCosts costs_;
  AgentWorld& world_;
  TimeNs worked_at_ = 0, kernel_due_ = 0;
  unsigned few_ = 0;
};

// An unmodified program over the sockets library: its waits look at memory, spin, and sleep until the agent's datagram.
class AgentServer final : public EventLoop {
 public:
  AgentServer(SimulatedCores& cores, const RequestSetUp& set_up, const RequestCosts& costs, AgentWorld& world,
              Agent& agent)
      : EventLoop(cores, set_up.server_core, costs.server, costs.server_ns, set_up),
        cores_(cores),
        wakes_(costs.wakes),
        world_(world),
        agent_(agent),
        message_(set_up.message_bytes) {}

 private:
  static constexpr TimeNs look_ns = 100;  // of a spinning thread, from one look to the next

  void look() override {
    list_changed(*world_.program->area, world_.far, readable);
    pass_wakes();
  }
  void on_received(std::size_t connection, TimeNs) override {
    const auto got = world_.program->area->receive(world_.far[connection], message_);
    OFP_ASSERT(got && *got == message_.size());
    pass_wakes();
  }
  void on_sent(std::size_t connection, TimeNs) override {
    const auto sent = world_.program->area->send(world_.far[connection], message_);
    OFP_ASSERT(sent && *sent == message_.size());
    pass_wakes();
  }
  // Any call may have given the agent a command, and with it a wake.
  void pass_wakes() {
    const std::size_t wakes = world_.program->wakes_of_agent;
    if (std::exchange(wakes_passed_, wakes) == wakes) return;
    if (!agent_.is_asleep()) cores_.wake(agent_, core());
    wake(cores_, agent_, *this, wakes_);
    interrupt(wakes_.datagram_ns);
  }
  void rest(TimeNs now) override {
    waits_since_ = now;
    if (short_waits_.spins())
      spin(now + sockets::ShortWaits::spin_ns);
    else
      fall_asleep();
  }
  void spin(TimeNs until) {
    yield(look_ns);
    work(0, [this, until](TimeNs now) {
      const bool in_time = world_.program->area->has_events();
      if (!in_time && now < until) return spin(until);
      short_waits_.spun(in_time);
      if (!in_time) fall_asleep();
    });
  }
  void fall_asleep() {
    if (!world_.program->area->fall_asleep()) return;
    work(wakes_.sleep_ns);
    sleep([this](TimeNs now) {
      world_.program->area->stay_awake();
      short_waits_.slept(now - waits_since_);
    });
  }

  SimulatedCores& cores_;
  WakeCosts wakes_;
  AgentWorld& world_;
  Agent& agent_;
  std::vector<std::byte> message_;
  sockets::ShortWaits short_waits_;
  TimeNs waits_since_ = 0;
  std::size_t wakes_passed_ = world_.program->wakes_of_agent;
};

class AgentWay final : public Way {
 public:
  AgentWay(SimulatedCores& cores, AgentWorld& world, const RequestSetUp& set_up, const RequestCosts& costs)
      : world_(world),
        agent_(cores, set_up, costs, world),
        server_(cores, set_up, costs, world, agent_),
        message_(set_up.message_bytes) {
    agent_.server = &server_;
  }
  void carry(std::size_t connection, EventLoop& client, TimeNs now) override {
    const auto sent = world_.client->area->send(world_.near[connection], message_);
    OFP_ASSERT(sent && *sent == message_.size());
    agent_.on_kernel(&client, now);
  }
  void take(std::size_t connection) override {
    const auto got = world_.client->area->receive(world_.near[connection], message_);
    OFP_ASSERT(got && *got == message_.size());
  }
  [[nodiscard]] Agent& agent() noexcept { return agent_; }
  [[nodiscard]] AgentServer& server() noexcept { return server_; }

 private:
  AgentWorld& world_;
  Agent agent_;
  AgentServer server_;
  std::vector<std::byte> message_;
};

}  // namespace detail

struct SimulatedRequests::World {
  World(const RequestSetUp& set_up, const RequestCosts& costs, const SchedulerCosts& scheduler)
      : agent_world(set_up.over_agent ? std::make_unique<detail::AgentWorld>(set_up) : nullptr),
        cores(std::max({set_up.client_core, set_up.server_core, set_up.agent_core}) + 1, scheduler,
              agent_world ? agent_world->now : second_ns) {
    if (agent_world) {
      auto made = std::make_unique<detail::AgentWay>(cores, *agent_world, set_up, costs);
      agent = &made->agent();
      server = &made->server();
      way = std::move(made);
    } else {
      auto made = std::make_unique<detail::KernelWay>(cores, set_up, costs);
      server = &made->server();
      way = std::move(made);
    }
    client = std::make_unique<detail::Client>(cores, set_up, costs, *way);
    if (agent != nullptr) agent->client = client.get();
    if (agent == nullptr) static_cast<detail::KernelServer*>(server)->client = client.get();
    cores.start(*server);
    if (agent != nullptr) cores.start(*agent);
    cores.start(*client);
  }

  std::unique_ptr<detail::AgentWorld> agent_world;
  SimulatedCores cores;
  std::unique_ptr<detail::Way> way;
  std::unique_ptr<detail::Client> client;
  detail::EventLoop* server = nullptr;
  detail::Agent* agent = nullptr;
};

SimulatedRequests::SimulatedRequests(const RequestSetUp& set_up, const RequestCosts& costs,
                                     const SchedulerCosts& scheduler)
    : world_(std::make_unique<World>(set_up, costs, scheduler)) {}
SimulatedRequests::~SimulatedRequests() = default;

SimulatedCores& SimulatedRequests::cores() noexcept { return world_->cores; }
std::uint64_t SimulatedRequests::sent() const noexcept { return world_->client->sent; }
std::uint64_t SimulatedRequests::answered() const noexcept { return world_->client->answered; }

RequestFigures SimulatedRequests::run(TimeNs duration) {
  World& world = *world_;
  OFP_ASSERT(world.cores.run_until(world.cores.now() + duration / 2));
  const auto busy = [&] {
    return std::array{world.client->busy_ns(), world.server->busy_ns(),
                      world.agent != nullptr ? world.agent->busy_ns() : 0};
  };
  const auto before = busy();
  const std::uint64_t answered = world.client->answered;
  world.client->latencies_ns.clear();
  OFP_ASSERT(world.cores.run_until(world.cores.now() + duration));
  const auto after = busy();
  const auto count = double(world.client->answered - answered);
  std::vector<double>& all = world.client->latencies_ns;
  if (all.empty()) return {};
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  const auto each = [&](std::size_t i) { return double(after[i] - before[i]) / count; };
  return {count / double(duration) * double(second_ns), *middle, each(0), each(1), each(2)};
}

}  // namespace offpath::tcp
