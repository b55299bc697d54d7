// TCP on the agent compared with the kernel's: one unmodified server (tcp_server.c) with `offpath sockets`, the same in
// the kernel of the same network namespace, and this client in the kernel of another. It runs in the client's
// namespace.
//
//   tcp.echo_us_p50_vs_kernel                    64 bytes and their echo on one connection, one after the other
//   tcp.host_cpu_per_request_vs_kernel           CPU time of the server's process for an echo of 64 bytes, 32
//                                                connections kept busy
//   tcp.stream_gbps_vs_kernel (WAY)              one connection, from the first byte to the last's arrival; CPU time of
//                                                the server's process; and how often it and the agent slept
//   tcp.threads (WAY, COUNT)                     as many streams at once, each with a thread of the server's and of the
//                                                client's
//   tcp.connections                              opened, asked 64 bytes, closed by the server, 16 at a time
//   tcp.echo_sparse                              100 bytes every 100 ms: the echo, the server's read() of it, CPU of
//                                                program and agent
//   tcp.post_ns                                  a send of 64 bytes, in the server
//   tcp.idle_flows                               CPU of program and agent with idle connections
//   tcp.flow_bytes                               the agent's resident memory for each idle connection,
//                                                after 4 KiB went each way on it
//   tcp.goodput_vs_kernel, tcp.fairness          over a bad network (tcp_goodput.h); only with --over, its name
//
//   tcp.linked_…                                beyond a link (tcp_linked.h); only when requested
//   tcp.slow_path_…                             the slow path on agent or host (tcp_slow_path.h); only when requested
//   tcp.device_…                                AF_PACKET beside AF_XDP (tcp_devices.h); only when requested
//   tcp.simulation_…                            each process on a core of its own, simulated (tcp_cores.h); only when
//                                               requested
//
//   Processor time of the host has the total beside it, the agent's included. Echoes, busy ones as well, are
//   compared with a kernel server that sleeps in epoll and with one that spins.
//
//   --offloaded ADDRESS:PORT:PID, --kernel ADDRESS:PORT:PID   the servers
//   --spinning ADDRESS:PORT:PID   the kernel's that spins (echo, busy)
//   --agent-pid PID
//   --part PART            echo, busy, stream, threads, connections, sparse, posts, idle; without: these
//                          goodput, sharing: with --over NAME
//                          breakdown: with --trace-file FILE, the agent's tcp.trace_file
//                          linked: --offloaded and --agent-pid of an agent beyond the link --link, with
//                          --relay-pid PID and --pages FILE, its Unix socket; --local SERVER and --other-agent-pid: the
//                          same on an agent of this machine
//                          slow-path: --offloaded and --agent-pid, whose slow path is the process --slow-path-pid; and
//                          --kernel, which is then the same on the agent --other-agent-pid that does its own
//                          devices: --offloaded and --agent-pid on an agent with AF_PACKET; and --kernel, which is then
//                          the same on the agent --other-agent-pid with AF_XDP
//                          cores: --offloaded, --kernel, --spinning; --measuring SERVER, which is offloaded and takes
//                          the time of its calls; --near FILE, the servers' network namespace; --device NAME there, and
//                          --device-address and --kernel-address in it; --redis FIGURES (tcp_cores.cc)
#include <sched.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "machine.h"
#include "report.h"
#include "tcp_breakdown.h"
#include "tcp_claims.h"
#include "tcp_client.h"
#include "tcp_cores.h"
#include "tcp_devices.h"
#include "tcp_goodput.h"
#include "tcp_linked.h"
#include "tcp_slow_path.h"

namespace offpath::bench {
namespace {

constexpr std::size_t message_bytes = BusyConnections::message_bytes;
constexpr std::size_t busy_connections = 32;
constexpr std::size_t carried_bytes = 4096;       // both ways, by each idle connection before it rests
constexpr TimeNs settle_ns = 3 * millisecond_ns;  // until the agent sleeps after its turn

// Processor time so far, in nanoseconds.
struct Spent {
  double server = 0;
  double all = 0;  // the agent's, too, on the offloaded side
};

// Times that threads went to sleep so far, each of which takes a wake.
struct Slept {
  double server = 0, agent = 0;
};

struct Sides {
  StreamServer offloaded, kernel;
  pid_t agent;

  [[nodiscard]] const StreamServer& server(bool subject) const noexcept { return subject ? offloaded : kernel; }
  [[nodiscard]] Result<Spent> spent(bool subject) const {
    OFP_ASSIGN(const std::int64_t of_agent, subject ? process_cpu_ns(agent) : Result<std::int64_t>(0));
    OFP_ASSIGN(const std::int64_t of_server, server(subject).cpu_ns());
    return Spent{double(of_server), double(of_server + of_agent)};
  }
  [[nodiscard]] Result<Slept> slept(bool subject) const {
    OFP_ASSIGN(const std::uint64_t of_agent, subject ? process_sleeps(agent) : Result<std::uint64_t>(0));
    OFP_ASSIGN(const std::uint64_t of_server, process_sleeps(server(subject).pid));
    return Slept{double(of_server), double(of_agent)};
  }
};

// Of busy connections, and of short ones. The kernel counts the time of a process that spins in steps of its clock's
// interrupts, of 10 ms at most.
TimeNs turn_ns(const Options& options) { return (options.quick ? 50 : 150) * millisecond_ns; }

Result<Sides> sides_of(const Options& options) {
  Sides sides;
  OFP_ASSIGN(sides.offloaded, StreamServer::parse(options.other("--offloaded")));
  OFP_ASSIGN(sides.kernel, StreamServer::parse(options.other("--kernel")));
  sides.agent = std::atoi(std::string(options.other("--agent-pid")).c_str());
  return sides;
}

// Costs of several kinds from the same turns.
class Costs {
 public:
  void add(bool subject, double cost) { (subject ? subject_ : peer_).push_back(cost); }
  [[nodiscard]] Comparison compared(const PairPlan& plan) const {
    return compare(std::span(subject_).subspan(plan.warmups), std::span(peer_).subspan(plan.warmups));
  }

 private:
  std::vector<double> subject_, peer_;
};

Claim claim_of(std::string name, const Comparison& compared, double scale, std::string unit,
               std::optional<Target> target) {
  return cost_beside("kernel", std::move(name), compared, scale, std::move(unit), target);
}

Claim rate_of(std::string name, const Comparison& compared, double scale, std::string unit,
              std::optional<Target> target) {
  return rate_beside("kernel", std::move(name), compared, scale, std::move(unit), target);
}

// The client's core: the agent's, so that on both sides the server has a core to itself, or chosen by the scheduler.
enum class Client { beside_the_agent, anywhere };

Status place(Client client, const Options& options) {
  if (client == Client::beside_the_agent) return pin_to_core(options.agent_core);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(options.host_core, &cores);
  CPU_SET(options.agent_core, &cores);
  if (::sched_setaffinity(0, sizeof cores, &cores) != 0) return fail_errno(errno, "sched_setaffinity");
  return {};
}

std::string_view text_of(Client client) {
  return client == Client::anywhere ? "client on any core" : "client on the agent's core";
}

// `sides.kernel` is the server that sleeps in epoll, or the one that spins.
Status measure_echo_beside(const Sides& sides, const Options& options, Client client, bool spins, Report& report) {
  OFP_ASSIGN(const Fd offloaded, sides.offloaded.connect(StreamServer::echo));
  OFP_ASSIGN(const Fd kernel, sides.kernel.connect(StreamServer::echo));
  const std::size_t times = options.quick ? 50 : 2000;
  Costs cpu, total;
  const auto turn = [&](bool subject) -> Result<double> {
    sleep_ns(settle_ns);  // the agent, and a server that spins, sleep again
    OFP_ASSIGN(const Spent before, sides.spent(subject));
    OFP_ASSIGN(const double ns, round_trips(subject ? offloaded.get() : kernel.get(), message_bytes, times));
    OFP_ASSIGN(const Spent after, sides.spent(subject));
    cpu.add(subject, (after.server - before.server) / double(times));
    total.add(subject, (after.all - before.all) / double(times));
    return ns;
  };
  OFP_ASSIGN(const Comparison compared,
             run_pairs(options.pairs(), [&] { return turn(true); }, [&] { return turn(false); }));
  const std::string_view peer = spins ? ", its server spins" : "";
  const auto add = [&](Claim claim) {
    claim.peer_waits = spins ? "spinning" : "asleep";
    report.add(std::move(claim));
  };
  add(claim_of(fmt::format("tcp.echo_us_p50_vs_kernel (64 B, {}{})", text_of(client), peer), compared, 1e-3, "us",
               ratio_at_least(0.5)));
  add(claim_of(fmt::format("tcp.echo_host_cpu_vs_kernel (64 B, {}{})", text_of(client), peer),
               cpu.compared(options.pairs()), 1e-3, "us", {}));
  add(claim_of(fmt::format("tcp.echo_total_cpu (64 B, {}, agent included{})", text_of(client), peer),
               total.compared(options.pairs()), 1e-3, "us", {}));
  return {};
}

Status measure_echo(const Sides& sides, const Options& options, Client client, Report& report) {
  OFP_TRY(place(client, options));
  OFP_ASSIGN(const StreamServer spinning, StreamServer::parse(options.other("--spinning")));
  OFP_TRY(measure_echo_beside(sides, options, client, false, report));
  return measure_echo_beside({sides.offloaded, spinning, sides.agent}, options, client, true, report);
}

// `sides.kernel` is the server that sleeps in epoll, or the one that spins.
Status measure_busy_beside(const Sides& sides, const Options& options, Client client, bool spins, Report& report) {
  OFP_ASSIGN(BusyConnections offloaded, BusyConnections::open(sides.offloaded, busy_connections));
  OFP_ASSIGN(BusyConnections kernel, BusyConnections::open(sides.kernel, busy_connections));
  const TimeNs duration = turn_ns(options);
  Costs time, total;
  const auto turn = [&](bool subject) -> Result<double> {
    sleep_ns(settle_ns);  // the agent, and a server that spins, sleep again
    OFP_ASSIGN(const Spent before, sides.spent(subject));
    const TimeNs began = monotonic_ns();
    OFP_ASSIGN(const std::uint64_t echoes, (subject ? offloaded : kernel).run(duration));
    time.add(subject, double(monotonic_ns() - began) / double(echoes));
    OFP_ASSIGN(const Spent after, sides.spent(subject));
    total.add(subject, (after.all - before.all) / double(echoes));
    return (after.server - before.server) / double(echoes);
  };
  OFP_ASSIGN(const Comparison compared,
             run_pairs(options.pairs(), [&] { return turn(true); }, [&] { return turn(false); }));
  const std::string_view peer = spins ? ", its server spins" : "";
  const auto add = [&](Claim claim) {
    claim.peer_waits = spins ? "spinning" : "asleep";
    report.add(std::move(claim));
  };
  add(claim_of(fmt::format("tcp.host_cpu_per_request_vs_kernel (64 B, 32 busy, {}{})", text_of(client), peer), compared,
               1e-3, "us", ratio_at_least(2.86)));
  add(claim_of(fmt::format("tcp.total_cpu_per_request (64 B, 32 busy, {}, agent included{})", text_of(client), peer),
               total.compared(options.pairs()), 1e-3, "us", {}));
  add(rate_of(fmt::format("tcp.requests (64 B, 32 busy, {}{})", text_of(client), peer), time.compared(options.pairs()),
              1e6, "k/s", ratio_at_least(0.9)));
  return {};
}

Status measure_busy(const Sides& sides, const Options& options, Client client, Report& report) {
  OFP_TRY(place(client, options));
  OFP_ASSIGN(const StreamServer spinning, StreamServer::parse(options.other("--spinning")));
  OFP_TRY(measure_busy_beside(sides, options, client, false, report));
  return measure_busy_beside({sides.offloaded, spinning, sides.agent}, options, client, true, report);
}

// Turns of streams on connections of one server: their time for a byte, and what they cost.
class StreamTurns {
 public:
  StreamTurns(const Sides& sides, std::uint64_t bytes) noexcept : sides_(sides), bytes_(double(bytes)) {}

  // `work` carries the bytes and returns its nanoseconds.
  template <class Work>
  [[nodiscard]] Result<double> turn(bool subject, const Work& work) {
    if (!subject) sleep_ns(settle_ns);
    OFP_ASSIGN(const Slept slept_before, sides_.slept(subject));
    OFP_ASSIGN(const Spent before, sides_.spent(subject));
    OFP_ASSIGN(const double ns, work());
    OFP_ASSIGN(const Spent after, sides_.spent(subject));
    OFP_ASSIGN(const Slept slept_after, sides_.slept(subject));
    cpu_.add(subject, (after.server - before.server) / bytes_);
    total_.add(subject, (after.all - before.all) / bytes_);
    const double mebibytes = bytes_ / double(1 << 20);
    server_sleeps_[subject].push_back((slept_after.server - slept_before.server) / mebibytes);
    if (subject) agent_sleeps_.push_back((slept_after.agent - slept_before.agent) / mebibytes);
    return ns / bytes_;
  }
  [[nodiscard]] Comparison cpu(const Options& options) const { return cpu_.compared(options.pairs()); }
  [[nodiscard]] Comparison total(const Options& options) const { return total_.compared(options.pairs()); }
  // Without ratios: a server may not have slept at all.
  void add_sleeps(std::string_view name, std::string_view which, const Options& options, Report& report) const {
    const auto of_pairs = [&](const std::vector<double>& all) {
      return median(std::span(all).subspan(options.pairs().warmups));
    };
    report.add(Claim{.claim = fmt::format("{} ({}, of the server, per MiB)", name, which),
                     .value = of_pairs(server_sleeps_[1]),
                     .unit = "sleeps",
                     .peer = "kernel",
                     .peer_value = of_pairs(server_sleeps_[0])});
    report.add(Claim{.claim = fmt::format("{} ({}, of the agent, per MiB)", name, which),
                     .value = of_pairs(agent_sleeps_),
                     .unit = "sleeps"});
  }

 private:
  const Sides& sides_;
  double bytes_;
  Costs cpu_, total_;
  std::array<std::vector<double>, 2> server_sleeps_;
  std::vector<double> agent_sleeps_;
};

Status measure_stream(const Sides& sides, const Options& options, bool in, Report& report) {
  OFP_ASSIGN(const Fd offloaded, sides.offloaded.connect(StreamServer::stream));
  OFP_ASSIGN(const Fd kernel, sides.kernel.connect(StreamServer::stream));
  const std::uint64_t bytes = options.quick ? 1 << 20 : 64 << 20;
  StreamTurns turns(sides, bytes);
  const auto turn = [&](bool subject) {
    return turns.turn(subject,
                      [&] { return stream(subject ? offloaded.get() : kernel.get(), in ? bytes : 0, in ? 1 : bytes); });
  };
  OFP_ASSIGN(const Comparison compared,
             run_pairs(options.pairs(), [&] { return turn(true); }, [&] { return turn(false); }));
  const std::string way = in ? "to the server" : "from the server";
  report.add(rate_of("tcp.stream_gbps_vs_kernel (" + way + ")", compared, 8, "Gb/s", ratio_at_least(0.5)));
  report.add(
      claim_of("tcp.stream_host_cpu_vs_kernel (" + way + ")", turns.cpu(options), 1e3, "ps/B", ratio_at_least(3.33)));
  report.add(claim_of("tcp.stream_total_cpu (" + way + ", agent included)", turns.total(options), 1e3, "ps/B", {}));
  turns.add_sleeps("tcp.stream_sleeps", way, options, report);
  return {};
}

// New threads of the process may use any core, or the host's alone again.
Status place_new_threads(pid_t process, bool anywhere, const Options& options) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core = 0; anywhere && core < CPU_SETSIZE; ++core) CPU_SET(core, &cores);
  if (!anywhere) CPU_SET(options.host_core, &cores);
  if (::sched_setaffinity(process, sizeof cores, &cores) != 0) return fail_errno(errno, "sched_setaffinity");
  return {};
}

Status measure_threads(const Sides& sides, const Options& options, bool in, std::size_t threads, Report& report) {
  OFP_TRY(place(Client::anywhere, options));
  const auto open = [&](const StreamServer& server) -> Result<std::vector<Fd>> {
    std::vector<Fd> connections(threads);
    OFP_TRY(place_new_threads(server.pid, true, options));
    for (Fd& each : connections) {
      OFP_ASSIGN(each, server.connect(StreamServer::threaded));
      OFP_TRY(stream(each.get(), 1, 1));  // the thread is there
    }
    OFP_TRY(place_new_threads(server.pid, false, options));
    return connections;
  };
  OFP_ASSIGN(const std::vector<Fd> offloaded, open(sides.offloaded));
  OFP_ASSIGN(const std::vector<Fd> kernel, open(sides.kernel));
  const std::uint64_t bytes = (options.quick ? 1 << 20 : 64 << 20) / threads;
  StreamTurns turns(sides, bytes * threads);
  const auto turn = [&](bool subject) {
    return turns.turn(subject,
                      [&] { return streams_of_threads(subject ? offloaded : kernel, in ? bytes : 0, in ? 1 : bytes); });
  };
  OFP_ASSIGN(const Comparison compared,
             run_pairs(options.pairs(), [&] { return turn(true); }, [&] { return turn(false); }));
  const std::string which = fmt::format("{} the server, {} threads", in ? "to" : "from", threads);
  report.add(rate_of(fmt::format("tcp.threads ({})", which), compared, 8, "Gb/s", ratio_at_least(0.5)));
  report.add(claim_of(fmt::format("tcp.threads_host_cpu_vs_kernel ({})", which), turns.cpu(options), 1e3, "ps/B", {}));
  report.add(claim_of(fmt::format("tcp.threads_total_cpu ({}, agent included)", which), turns.total(options), 1e3,
                      "ps/B", {}));
  turns.add_sleeps("tcp.threads_sleeps", which, options, report);
  return {};
}

Status measure_connections(const Sides& sides, const Options& options, Report& report) {
  const TimeNs duration = turn_ns(options);
  Costs cpu, total;
  const auto turn = [&](bool subject) -> Result<double> {
    if (!subject) sleep_ns(settle_ns);
    OFP_ASSIGN(const Spent before, sides.spent(subject));
    const TimeNs began = monotonic_ns();
    OFP_ASSIGN(const std::uint64_t ended, short_connections(sides.server(subject), 16, duration));
    const double elapsed = double(monotonic_ns() - began);
    OFP_ASSIGN(const Spent after, sides.spent(subject));
    cpu.add(subject, (after.server - before.server) / double(ended));
    total.add(subject, (after.all - before.all) / double(ended));
    return elapsed / double(ended);
  };
  OFP_ASSIGN(const Comparison compared,
             run_pairs(options.pairs(), [&] { return turn(true); }, [&] { return turn(false); }));
  report.add(rate_of("tcp.connections", compared, 1e9, "/s", ratio_at_least(0.5)));
  report.add(claim_of("tcp.connections_host_cpu_vs_kernel", cpu.compared(options.pairs()), 1e-3, "us", {}));
  report.add(claim_of("tcp.connections_total_cpu (agent included)", total.compared(options.pairs()), 1e-3, "us", {}));
  return {};
}

// Both servers are asked in turn, so each is asked once in two intervals.
Status measure_sparse(const Sides& sides, const Options& options, Report& report) {
  constexpr std::size_t bytes = 100;
  OFP_ASSIGN(const Fd offloaded, sides.offloaded.connect(StreamServer::timed));
  OFP_ASSIGN(const Fd kernel, sides.kernel.connect(StreamServer::timed));
  const TimeNs between = options.quick ? 5 * millisecond_ns : 50 * millisecond_ns;
  const std::size_t times = options.quick ? 5 : 100;
  std::vector<double> echo[2], read[2];
  OFP_ASSIGN(const std::int64_t program_before, sides.offloaded.cpu_ns());
  OFP_ASSIGN(const std::int64_t agent_before, process_cpu_ns(sides.agent));
  const TimeNs began = monotonic_ns();
  for (std::size_t i = 0; i < times; ++i) {
    for (const bool subject : {true, false}) {
      sleep_ns(between);
      std::array<char, bytes> message{};
      const int fd = subject ? offloaded.get() : kernel.get();
      const std::uint64_t sent = ticks();
      OFP_TRY(send_all(fd, message.data(), bytes));
      OFP_TRY(receive_all(fd, message.data(), bytes));
      echo[subject].push_back(double(ticks() - sent) * ns_per_tick());
      std::uint64_t read_ns = 0;
      std::memcpy(&read_ns, message.data(), sizeof read_ns);
      read[subject].push_back(double(read_ns));
    }
  }
  const double elapsed = double(monotonic_ns() - began);
  OFP_ASSIGN(const std::int64_t program_after, sides.offloaded.cpu_ns());
  OFP_ASSIGN(const std::int64_t agent_after, process_cpu_ns(sides.agent));
  report.add(
      claim_of("tcp.echo_sparse (100 B, every 100 ms)", compare(echo[1], echo[0]), 1e-3, "us", ratio_at_least(0.33)));
  report.add(
      claim_of("tcp.echo_sparse (read() after arrival)", compare(read[1], read[0]), 1, "ns", ratio_at_least(0.33)));
  report.add(Claim{.claim = "tcp.echo_sparse (CPU of program and agent)",
                   .value = double(program_after - program_before + agent_after - agent_before) / elapsed * 100,
                   .unit = "%",
                   .target = value_at_most(1, "%")});
  return {};
}

Status measure_posts(const Sides& sides, const Options& options, Report& report) {
  constexpr std::uint64_t posts = 200;
  OFP_ASSIGN(const Fd offloaded, sides.offloaded.connect(StreamServer::posts));
  OFP_ASSIGN(const Fd kernel, sides.kernel.connect(StreamServer::posts));
  Costs cpu, total;
  const auto turn = [&](bool subject) -> Result<double> {
    sleep_ns(settle_ns);
    OFP_ASSIGN(const Spent before, sides.spent(subject));
    OFP_ASSIGN(const double ns, median_of_posts(subject ? offloaded.get() : kernel.get(), posts));
    OFP_ASSIGN(const Spent after, sides.spent(subject));
    cpu.add(subject, (after.server - before.server) / double(posts));
    total.add(subject, (after.all - before.all) / double(posts));
    return ns;
  };
  OFP_ASSIGN(const Comparison compared,
             run_pairs(options.pairs(), [&] { return turn(true); }, [&] { return turn(false); }));
  report.add(claim_of("tcp.post_ns (a send of 64 B)", compared, 1, "ns", value_at_most(300, "ns")));
  report.add(claim_of("tcp.post_host_cpu_vs_kernel (a send of 64 B)", cpu.compared(options.pairs()), 1, "ns", {}));
  report.add(
      claim_of("tcp.post_total_cpu (a send of 64 B, agent included)", total.compared(options.pairs()), 1, "ns", {}));
  return {};
}

Status measure_idle(const Sides& sides, const Options& options, Report& report) {
  const std::size_t count = options.quick ? 256 : 4096;
  std::vector<Fd> connections;
  OFP_ASSIGN(const std::uint64_t resident_before, process_resident_bytes(sides.agent));
  for (std::size_t i = 0; i < count; ++i) {
    OFP_ASSIGN(Fd fd, sides.offloaded.connect(StreamServer::echo));
    connections.push_back(std::move(fd));
  }
  for (const Fd& each : connections) OFP_TRY(round_trips(each.get(), carried_bytes, 1));
  OFP_ASSIGN(const std::uint64_t resident_after, process_resident_bytes(sides.agent));
  sleep_ns(100 * millisecond_ns);
  OFP_ASSIGN(const std::int64_t program_before, sides.offloaded.cpu_ns());
  OFP_ASSIGN(const std::int64_t agent_before, process_cpu_ns(sides.agent));
  const TimeNs began = monotonic_ns();
  sleep_ns(options.quick ? 100 * millisecond_ns : 3 * second_ns);
  OFP_ASSIGN(const std::int64_t program_after, sides.offloaded.cpu_ns());
  OFP_ASSIGN(const std::int64_t agent_after, process_cpu_ns(sides.agent));
  const double elapsed = double(monotonic_ns() - began);
  report.add(Claim{.claim = fmt::format("tcp.idle_flows (CPU of program and agent, {} connections)", count),
                   .value = double(program_after - program_before + agent_after - agent_before) / elapsed * 100,
                   .unit = "%",
                   .target = value_at_most(0.1, "%")});
  report.add(Claim{.claim = "tcp.flow_bytes (the agent's resident memory, each of them, after an echo of 4 KiB)",
                   .value = (double(resident_after) - double(resident_before)) / double(count),
                   .unit = "B",
                   .target = value_at_most(20 << 10, "B")});
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_ASSIGN(const Sides sides, sides_of(options));
  const std::string_view part = options.other("--part");
  const auto wanted = [part](std::string_view name) { return part.empty() || part == name; };
  for (const Client client : {Client::beside_the_agent, Client::anywhere}) {
    if (wanted("echo")) OFP_TRY(measure_echo(sides, options, client, report));
    if (wanted("busy")) OFP_TRY(measure_busy(sides, options, client, report));
  }
  if (wanted("stream")) {
    for (const bool in : {true, false}) OFP_TRY(measure_stream(sides, options, in, report));
  }
  if (wanted("threads")) {
    for (const bool in : {true, false})
      for (const std::size_t threads : {1, 2, 4}) OFP_TRY(measure_threads(sides, options, in, threads, report));
  }
  if (wanted("connections")) OFP_TRY(measure_connections(sides, options, report));
  if (wanted("sparse")) OFP_TRY(measure_sparse(sides, options, report));
  if (wanted("posts")) OFP_TRY(measure_posts(sides, options, report));
  if (wanted("idle")) OFP_TRY(measure_idle(sides, options, report));
  if (part == "breakdown") {
    OFP_TRY(place(Client::anywhere, options));
    OFP_TRY(measure_breakdown(sides.offloaded, std::string(options.other("--trace-file")), options, report));
  }
  if (part == "devices") {
    const auto other = static_cast<pid_t>(std::atoi(std::string(options.other("--other-agent-pid")).c_str()));
    OFP_TRY(place(Client::anywhere, options));
    OFP_TRY(measure_devices({sides.offloaded, sides.agent}, {sides.kernel, other}, options, report));
  }
  if (part == "cores") {
    OFP_ASSIGN(const StreamServer spinning, StreamServer::parse(options.other("--spinning")));
    OFP_ASSIGN(const StreamServer measuring, StreamServer::parse(options.other("--measuring")));
    const auto text = [&](std::string_view option) { return std::string(options.other(option)); };
    OFP_TRY(measure_cores({sides.offloaded,
                           sides.kernel,
                           spinning,
                           {text("--near"), text("--device"), text("--device-address"), text("--kernel-address"),
                            measuring, options.host_core, options.agent_core},
                           text("--redis")},
                          options, report));
  }
  if (part == "slow-path") {
    const auto pid = [&](std::string_view option) {
      return static_cast<pid_t>(std::atoi(std::string(options.other(option)).c_str()));
    };
    OFP_TRY(place(Client::anywhere, options));
    OFP_TRY(measure_slow_path({sides.offloaded, sides.agent, pid("--slow-path-pid")},
                              {sides.kernel, pid("--other-agent-pid"), -1}, options, report));
  }
  if (part == "linked") {
    const auto pid = [&](std::string_view option) {
      return static_cast<pid_t>(std::atoi(std::string(options.other(option)).c_str()));
    };
    OFP_TRY(place(Client::beside_the_agent, options));
    OFP_ASSIGN(const StreamServer local, StreamServer::parse(options.other("--local")));
    const std::string link(options.other("--link"));
    OFP_TRY(measure_linked({{{{"link", sides.offloaded, pid("--relay-pid"), sides.agent},
                              {"local area", local, -1, pid("--other-agent-pid")},
                              {"kernel", sides.kernel, -1, -1}}},
                            link,
                            std::string(options.other("--pages"))},
                           options, report));
  }
  const std::string_view over = options.other("--over");
  if (part == "goodput") OFP_TRY(measure_goodput(sides.offloaded, sides.kernel, over, options, report));
  if (part == "sharing") OFP_TRY(measure_sharing(sides.offloaded, sides.kernel, over, options, report));
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(
      argc, argv, "tcp",
      {"--offloaded", "--kernel", "--spinning", "--agent-pid", "--part", "--over", "--trace-file", "--slow-path-pid",
       "--other-agent-pid", "--local", "--relay-pid", "--pages", "--link", "--measuring", "--near", "--device",
       "--device-address", "--kernel-address", "--redis"},
      offpath::bench::run);
}
