#include "tcp_costs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/relax.h"
#include "machine.h"
#include "tcp/port/packet_port.h"
#include "tcp/port/port_decorator.h"
#include "testing/tcp/programs.h"

namespace offpath::bench {
namespace {

using tcp::CallCosts;
using tcp::Port;

constexpr std::size_t message_bytes = BusyConnections::message_bytes;
constexpr std::size_t connections_max = 32;
constexpr std::array<std::size_t, 4> bursts{1, 4, 16, connections_max};
constexpr std::uint16_t port = 7900;  // beyond those of the servers

// Durations of one kind of call.
class Durations {
 public:
  template <class Call>
  auto of(const Call& call) {
    const std::uint64_t began = ticks();
    auto result = call();
    add(double(ticks() - began) * ns_per_tick());
    return result;
  }
  void add(double ns) { ns_.push_back(ns); }
  [[nodiscard]] double median_ns() const { return ns_.empty() ? 0 : median(ns_); }

 private:
  std::vector<double> ns_;
};

TimeNs whole(double ns) { return static_cast<TimeNs>(std::max(ns, 0.0) + 0.5); }

// A straight line through medians: what a call takes whatever it does, and for each item besides.
struct Line {
  TimeNs whole_ns, each_ns;
  [[nodiscard]] static Line through(const std::map<std::size_t, Durations>& by_count) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& [count, durations] : by_count) {
      const double at = double(count), ns = durations.median_ns();
      ++n, x += at, y += ns, xx += at * at, xy += at * ns;
    }
    const double each = (n * xy - x * y) / (n * xx - x * x);
    return {whole((y - each * x) / n), whole(each)};
  }
};

// A thread on a core that does what it is told, and spins until then.
class Partner {
 public:
  explicit Partner(int core) : thread_([this, core] { serve(core); }) {}
  ~Partner() {
    run([this] { ends_ = true; });
    thread_.join();
  }
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;

  void begin(std::function<void()> task) {
    task_ = std::move(task);
    is_busy_.store(true, std::memory_order_release);
  }
  void finish() const {
    while (is_busy_.load(std::memory_order_acquire)) relax();
  }
  void run(std::function<void()> task) {
    begin(std::move(task));
    finish();
  }

 private:
  void serve(int core) {
    static_cast<void>(pin_to_core(core));
    while (!ends_) {
      while (!is_busy_.load(std::memory_order_acquire)) relax();
      task_();
      is_busy_.store(false, std::memory_order_release);
    }
  }
  std::atomic<bool> is_busy_ = false;
  bool ends_ = false;
  std::function<void()> task_;
  std::thread thread_;  // last: it uses the others
};

// Runs a task in another network namespace; what it opens stays there.
template <class Made>
Result<Made> in_namespace(const std::string& path, const std::function<Result<Made>()>& task) {
  const Fd there(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!there) return fail_errno(errno, path);
  Result<Made> made = fail(Error::invalid, "nothing was opened");
  std::thread([&] {
    made = ::setns(there.get(), CLONE_NEWNET) == 0 ? task() : Result<Made>(fail_errno(errno, "setns to " + path));
  }).join();
  return made;
}

Result<sockaddr_in> address_of(const std::string& text) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &at.sin_addr) != 1)
    return fail(Error::invalid, "'{}' is not an IPv4 address", text);
  return at;
}

Result<Fd> listen_at(const sockaddr_in& at) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 || ::listen(fd.get(), 64) != 0)
    return fail_errno(errno, "a listener for the costs of calls");
  return fd;
}

// One end of the connections, with an epoll set of them.
class KernelEnd {
 public:
  Status add(Fd fd) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!epoll_) epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = all_.size();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return fail_errno(errno, "epoll_ctl");
    all_.push_back(std::move(fd));
    return {};
  }
  [[nodiscard]] std::size_t count() const noexcept { return all_.size(); }
  // The last that were returned by a wait().
  [[nodiscard]] int ready(std::size_t i) const noexcept { return all_[events_[i].data.u64].get(); }
  [[nodiscard]] int at(std::size_t i) const noexcept { return all_[i].get(); }
  int wait(int timeout_ms) { return ::epoll_wait(epoll_.get(), events_.data(), events_.size(), timeout_ms); }

 private:
  Fd epoll_;
  std::vector<Fd> all_;
  std::array<epoll_event, 64> events_{};
};

// Times of a thread's calls in bursts.
struct Calls {
  std::map<std::size_t, Durations> waits;
  Durations receives, sends, empty_waits;

  [[nodiscard]] CallCosts costs() const {
    const Line wait = Line::through(waits);
    return {std::max<TimeNs>(wait.whole_ns, 1), wait.each_ns, whole(receives.median_ns()), whole(sends.median_ns())};
  }
};

// The stack and service of an agent on the device, with a program; nothing of a daemon besides.
class Agent {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Agent>> open(const CostPlaces& places) {
    OFP_ASSIGN(const tcp::IpAddress address, tcp::ip_address(places.agent));
    auto opened = in_namespace<std::unique_ptr<tcp::PacketPort>>(
        places.near, [&] { return tcp::PacketPort::open_interface(places.device, tcp::FrameTargets{address, {}}); });
    OFP_ASSIGN(auto device, std::move(opened));
    OFP_ASSIGN(auto congestion, tcp::congestion_control("cubic"));
    std::unique_ptr<Agent> made(new Agent(std::move(device), std::move(congestion), address));
    OFP_TRY(made->service_.open(1, made->program_.layout, {}, [raw = made.get()] { return raw->program_.memory; }));
    OFP_ASSIGN(made->listener_, made->area().listen(port, connections_max));
    return made;
  }
  bool round() {
    const TimeNs now = monotonic_ns();
    service_.attach(now);
    return station_.poll(now);
  }
  // Of the program, untimed: answers whatever has come.
  std::size_t answer() {
    std::array<std::byte, message_bytes> message;
    std::size_t count = 0;
    area().take_in();
    while (const auto changed = area().take_changed()) {
      const auto got = area().receive(*changed, message);
      if (!got || *got == 0) continue;
      static_cast<void>(area().send(*changed, Bytes(message).first(*got)));
      ++count;
    }
    return count;
  }
  std::size_t accept() {
    std::size_t count = 0;
    while (area().accept(listener_)) ++count;
    return count;
  }

 private:
  Agent(std::unique_ptr<tcp::PacketPort> device, std::unique_ptr<const tcp::CongestionControl> congestion,
        const tcp::IpAddress& address)
      : device_(std::move(device)),
        congestion_(std::move(congestion)),
        stack_(options(address), device_->capabilities(), *congestion_, service_, monotonic_ns()),
        station_(*device_, stack_, [this](TimeNs at) { service_.react(at); }) {
    service_.serve(stack_);
  }
  static tcp::StackOptions options(const tcp::IpAddress& address) {
    tcp::StackOptions stack;
    stack.v4 = {address, 24, {}};
    stack.secret = {ticks(), 22};
    return stack;
  }
  [[nodiscard]] tcp::SocketArea& area() noexcept { return *program_.area; }

  std::unique_ptr<tcp::PacketPort> device_;
  std::unique_ptr<const tcp::CongestionControl> congestion_;
  tcp::TcpService service_{{}};
  tcp::Stack stack_;
  tcp::Station station_;
  tcp::TestProgram program_{{4 * connections_max, 65'536, 65'536}};
  tcp::SocketArea::Handle listener_ = 0;
};

std::int64_t write_to(const Fd& event) {
  constexpr std::uint64_t one = 1;
  return ::write(event.get(), &one, sizeof one);
}
std::int64_t read_from(const Fd& event) {
  std::uint64_t taken = 0;
  return ::read(event.get(), &taken, sizeof taken);
}

// In memory that two processes share.
struct OtherProcess {
  std::atomic<std::size_t> woken = 0;
  std::atomic<bool> ends = false;

  // Answers, then counts wakes, then yields.
  [[noreturn]] void serve(const Fd& there, const Fd& back, std::size_t answers, std::size_t wakes) {
    for (std::size_t i = 0; i < answers; ++i) {
      read_from(there);
      write_to(back);
    }
    for (std::size_t i = 0; i < wakes; ++i) {
      read_from(there);
      ++woken;
    }
    while (!ends) ::sched_yield();
    ::_exit(0);
  }
};

class Meter final : public CostMeter {
 public:
  explicit Meter(const CostPlaces& places) : places_(places) {}

  [[nodiscard]] Status prepare() {
    OFP_ASSIGN(const sockaddr_in kernel, address_of(places_.kernel));
    OFP_ASSIGN(const sockaddr_in agent, address_of(places_.agent));
    auto listening = in_namespace<Fd>(places_.near, [&] { return listen_at(kernel); });
    OFP_ASSIGN(const Fd listener, std::move(listening));
    for (std::size_t i = 0; i < connections_max; ++i) {
      OFP_TRY(connect(kernel_client_, kernel));
      Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!accepted) return fail_errno(errno, "accept4");
      OFP_TRY(kernel_server_.add(std::move(accepted)));
    }
    OFP_ASSIGN(agent_, Agent::open(places_));
    Partner runs(places_.agent_core);
    std::atomic<bool> failed = false;
    runs.begin([&] {
      // A client is connected before its last acknowledgement is here.
      for (std::size_t accepted = 0; !failed && accepted < connections_max;) {
        agent_->round();
        accepted += agent_->accept();
      }
    });
    Status all;
    for (std::size_t i = 0; i < connections_max && all; ++i) all = connect(agent_client_, agent);
    failed = !all;
    runs.finish();
    return all;
  }

  Result<MeasuredCosts> measure(bool quick) override {
    times_ = quick ? 40 : 400;
    MeasuredCosts costs;
    OFP_TRY(pin_to_core(places_.agent_core));
    {
      Partner server(places_.host_core);
      OFP_TRY(measure_kernel(server, costs));
      OFP_TRY(measure_wakes(server, costs));
      OFP_TRY(measure_agent(nullptr, server, costs.agent_beside));
    }
    OFP_TRY(measure_own_core(costs));
    OFP_TRY(pin_to_core(places_.host_core));
    {
      Partner agent(places_.agent_core);
      OFP_TRY(measure_agent(&agent, agent, costs.agent_apart));
    }
    OFP_TRY(measure_library(quick, costs));
    for (tcp::RequestCosts* each : {&costs.agent_apart, &costs.agent_beside}) each->wakes = costs.kernel.wakes;
    costs.agent_apart.agent.yield_ns = costs.agent_beside.agent.yield_ns = yield_ns_;
    return costs;
  }

 private:
  static Status connect(KernelEnd& end, const sockaddr_in& to) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      return fail_errno(errno, "connect for the costs of calls");
    return end.add(std::move(fd));
  }

  // As many bursts of each size as give the same number of messages.
  template <class Burst>
  Status in_bursts(const Burst& burst) {
    Status done;
    for (const std::size_t size : bursts)
      for (std::size_t i = 0; i < times_ * connections_max / size / 4 + 2 && done; ++i) done = burst(size, i < 2);
    return done;
  }
  // The kernel delivers a frame now and then after the round that should have found it. `serve` adds to `came`.
  template <class Serve>
  [[nodiscard]] static Status late_ones_come(std::string_view where, std::size_t size, const std::size_t& came,
                                             const Serve& serve) {
    for (const TimeNs limit = monotonic_ns() + second_ns; came < size; serve())
      if (monotonic_ns() > limit)
        return fail(Error::timeout, "{}: {} of {} messages of a burst have arrived", where, came, size);
    return {};
  }
  static void send_burst(const KernelEnd& end, std::size_t size, Durations& sends) {
    const std::array<char, message_bytes> message{};
    for (std::size_t i = 0; i < size; ++i)
      sends.of([&] { return ::send(end.at(i), message.data(), message.size(), MSG_NOSIGNAL); });
  }
  // All that have come; how many. `then` is done with each.
  template <class Then>
  static std::size_t take_burst(KernelEnd& end, std::size_t size, Calls& calls, const Then& then) {
    std::array<char, message_bytes> message;
    const int ready = calls.waits[size].of([&] { return end.wait(0); });
    for (int i = 0; i < ready; ++i) {
      const int fd = end.ready(static_cast<std::size_t>(i));
      calls.receives.of([&] { return ::recv(fd, message.data(), message.size(), MSG_DONTWAIT); });
      then(fd, message);
    }
    return static_cast<std::size_t>(std::max(ready, 0));
  }

  Status measure_kernel(Partner& server, MeasuredCosts& costs) {
    Calls of_client, of_server, unrecorded;
    OFP_TRY(in_bursts([&](std::size_t size, bool warms_up) -> Status {
      Calls& client = warms_up ? unrecorded : of_client;
      Calls& serving = warms_up ? unrecorded : of_server;
      send_burst(kernel_client_, size, client.sends);
      std::size_t served = 0;
      server.run([&] {
        served = take_burst(kernel_server_, size, serving, [&](int fd, const auto& message) {
          serving.sends.of([&] { return ::send(fd, message.data(), message.size(), MSG_NOSIGNAL); });
        });
        serving.empty_waits.of([&] { return kernel_server_.wait(0); });
      });
      std::size_t came = take_burst(kernel_client_, size, client, [](int, const auto&) {});
      return late_ones_come("the kernel's sockets", size, came, [&] {
        server.run([&] {
          take_burst(kernel_server_, size, unrecorded,
                     [](int fd, const auto& message) { ::send(fd, message.data(), message.size(), MSG_NOSIGNAL); });
        });
        came += take_burst(kernel_client_, size, unrecorded, [](int, const auto&) {});
      });
    }));
    costs.kernel.client = of_client.costs();
    costs.kernel.server = of_server.costs();
    costs.kernel.wakes.sleep_ns = whole(of_server.empty_waits.median_ns());
    return {};
  }

  // `other`: its core is the agent's, and this one the program's; without, the agent is here, and the program there.
  Status measure_agent(Partner* other, Partner& partner, tcp::RequestCosts& costs) {
    const auto on_agent = [&](const std::function<void()>& task) { other != nullptr ? other->run(task) : task(); };
    const auto on_program = [&](const std::function<void()>& task) { other != nullptr ? task() : partner.run(task); };
    Calls of_client, unrecorded;
    Durations empty;
    std::map<std::size_t, Durations> in, out;
    OFP_TRY(in_bursts([&](std::size_t size, bool warms_up) -> Status {
      Calls& client = warms_up ? unrecorded : of_client;
      send_burst(agent_client_, size, client.sends);
      Durations unused;
      std::size_t came = 0;
      on_agent([&] { (warms_up ? unused : in[size]).of([&] { return agent_->round(); }); });
      on_program([&] { agent_->answer(); });
      on_agent([&] {
        (warms_up ? unused : out[size]).of([&] { return agent_->round(); });
        empty.of([&] { return agent_->round(); });
      });
      came = take_burst(agent_client_, size, client, [](int, const auto&) {});
      return late_ones_come("the agent", size, came, [&] {
        on_agent([&] { agent_->round(); });
        on_program([&] { agent_->answer(); });
        on_agent([&] { agent_->round(); });
        came += take_burst(agent_client_, size, unrecorded, [](int, const auto&) {});
      });
    }));
    costs.client = of_client.costs();
    const Line in_line = Line::through(in), out_line = Line::through(out);
    const TimeNs round_ns = whole(empty.median_ns());
    costs.agent.round_ns = round_ns;
    costs.agent.in_round_ns = std::max<TimeNs>(in_line.whole_ns - round_ns, 0);
    costs.agent.in_ns = in_line.each_ns;
    costs.agent.out_round_ns = std::max<TimeNs>(out_line.whole_ns - round_ns, 0);
    costs.agent.out_ns = out_line.each_ns;
    return {};
  }

  // A server sleeps for a while before each message.
  Status measure_wakes(Partner& server, MeasuredCosts& costs) {
    constexpr TimeNs asleep_ns = 30 * microsecond_ns;
    Durations sends, latencies, datagrams;
    const std::array<char, message_bytes> message{};
    std::array<char, message_bytes> ignored;
    for (std::size_t i = 0; i < times_; ++i) {
      std::atomic<bool> sleeps = false;
      TimeNs returned = 0;
      server.begin([&] {
        sleeps = true;
        static_cast<void>(kernel_server_.wait(1'000));
        returned = monotonic_ns();
        OFP_ASSERT(::recv(kernel_server_.at(0), ignored.data(), ignored.size(), 0) > 0);
        OFP_ASSERT(::send(kernel_server_.at(0), ignored.data(), ignored.size(), MSG_NOSIGNAL) > 0);
      });
      while (!sleeps) relax();
      for (const TimeNs until = monotonic_ns() + asleep_ns; monotonic_ns() < until;) relax();
      const TimeNs began = monotonic_ns();
      sends.of([&] { return ::send(kernel_client_.at(0), message.data(), message.size(), MSG_NOSIGNAL); });
      server.finish();
      OFP_TRY(receive_all(kernel_client_.at(0), ignored.data(), ignored.size()));
      latencies.add(double(returned - began));
    }
    const double send_ns = double(costs.kernel.client.send_ns);
    costs.kernel.wakes.wake_ns = whole(sends.median_ns() - send_ns);
    costs.scheduler.wake_latency_ns = whole(latencies.median_ns() - send_ns);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
    const Fd one(ends[0]), other(ends[1]);
    for (std::size_t i = 0; i < times_; ++i) {
      datagrams.of([&] { return ::send(one.get(), message.data(), 1, MSG_DONTWAIT); });
      static_cast<void>(::recv(other.get(), ignored.data(), ignored.size(), MSG_DONTWAIT));
    }
    costs.kernel.wakes.datagram_ns = whole(datagrams.median_ns());
    return {};
  }

  // Two processes on this core.
  Status measure_own_core(MeasuredCosts& costs) {
    const Fd there(::eventfd(0, EFD_CLOEXEC)), back(::eventfd(0, EFD_CLOEXEC));
    OFP_ASSIGN(const Pages shared, Pages::map(sizeof(OtherProcess), Pages::Kind::shared_file));
    if (!there || !back) return fail_errno(errno, "eventfd");
    OtherProcess& other = *new (shared.data()) OtherProcess;
    const std::size_t tries = std::max<std::size_t>(times_ / 20, 5);
    Durations writes, reads, yields, yields_to_other, rounds;
    for (std::size_t i = 0; i < times_; ++i) {
      writes.of([&] { return write_to(there); });
      reads.of([&] { return read_from(there); });
      yields.of([] { return ::sched_yield(); });
    }
    const pid_t child = ::fork();
    if (child < 0) return fail_errno(errno, "fork");
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      other.serve(there, back, times_, tries);
    }
    for (std::size_t i = 0; i < times_; ++i) rounds.of([&] { return write_to(there) + read_from(back); });
    std::size_t preempted = 0;  // by the woken one, before this one's slice had ended
    for (std::size_t i = 1; i <= tries; ++i) {
      sleep_ns(200 * microsecond_ns);  // the other sleeps
      const TimeNs until = monotonic_ns() + 300 * microsecond_ns;
      write_to(there);
      while (other.woken < i && monotonic_ns() < until) relax();
      preempted += other.woken == i ? 1 : 0;
      while (other.woken < i) ::sched_yield();
    }
    for (std::size_t i = 0; i < times_; ++i) yields_to_other.of([] { return ::sched_yield(); });
    other.ends = true;
    ::waitpid(child, nullptr, 0);
    yield_ns_ = whole(yields.median_ns());
    const double switch_ns = std::max(yields_to_other.median_ns() / 2 - yields.median_ns(), 0.0);
    costs.scheduler.switch_ns = whole(switch_ns);
    costs.scheduler.preempts = preempted * 2 > tries;
    costs.kernel.wakes.wake_here_ns =
        whole(rounds.median_ns() / 2 - writes.median_ns() - reads.median_ns() - switch_ns);
    return {};
  }

  // The offloaded server has its core; the client and the agent share the other one.
  Status measure_library(bool quick, MeasuredCosts& costs) {
    OFP_TRY(pin_to_core(places_.agent_core));
    OFP_ASSIGN(const Fd asks, places_.measuring.connect(StreamServer::costs));
    if (!busy_) {
      OFP_ASSIGN(BusyConnections busy, BusyConnections::open(places_.measuring, connections_max));
      OFP_ASSIGN(one_, places_.measuring.connect(StreamServer::echo));
      busy_.emplace(std::move(busy));
    }
    std::array<std::uint64_t, 4> medians{};
    const auto ask = [&]() -> Status {
      std::array<char, message_bytes> question{};
      OFP_TRY(send_all(asks.get(), question.data(), question.size()));
      return receive_all(asks.get(), medians.data(), sizeof medians);
    };
    OFP_TRY(ask());  // forgets what was before
    OFP_TRY(round_trips(one_.get(), message_bytes, quick ? 50 : 500));
    OFP_TRY(ask());
    const std::uint64_t one_ns = medians[0];
    OFP_TRY(busy_->run((quick ? 10 : 40) * millisecond_ns));
    OFP_TRY(ask());
    const auto each_ns = static_cast<TimeNs>(medians[1]);
    const CallCosts calls{std::max<TimeNs>(static_cast<TimeNs>(one_ns) - each_ns, 0), each_ns,
                          static_cast<TimeNs>(medians[2]), static_cast<TimeNs>(medians[3])};
    costs.agent_apart.server = costs.agent_beside.server = calls;
    return {};
  }

  CostPlaces places_;
  std::size_t times_ = 0;
  TimeNs yield_ns_ = 0;
  KernelEnd kernel_client_, kernel_server_, agent_client_;
  std::unique_ptr<Agent> agent_;
  std::optional<BusyConnections> busy_;
  Fd one_;
};

}  // namespace

Result<std::unique_ptr<CostMeter>> CostMeter::open(const CostPlaces& places) {
  auto made = std::make_unique<Meter>(places);
  OFP_TRY(made->prepare());
  return std::unique_ptr<CostMeter>(std::move(made));
}

}  // namespace offpath::bench
