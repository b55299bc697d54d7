#include "tcp_slow_path.h"

#include <thread>

#include <fmt/format.h>

#include "tcp_claims.h"

namespace offpath::bench {
namespace {

constexpr std::size_t message_bytes = BusyConnections::message_bytes;
constexpr TimeNs settle_ns = 3 * millisecond_ns;  // until the other agent sleeps

// Costs of one turn, for each connection.
struct Turned {
  double ns, agent_ns, process_ns;
};

Result<Turned> turn_of_connections(const SlowPathSide& side, std::size_t at_a_time, TimeNs duration) {
  sleep_ns(settle_ns);
  OFP_ASSIGN(const std::int64_t agent_before, process_cpu_ns(side.agent));
  std::int64_t process_before = 0, process_after = 0;
  if (side.process > 0) {
    OFP_ASSIGN(process_before, process_cpu_ns(side.process));
  }
  const TimeNs began = monotonic_ns();
  OFP_ASSIGN(const std::uint64_t ended, short_connections(side.server, at_a_time, duration));
  const TimeNs took = monotonic_ns() - began;
  sleep_ns(settle_ns);  // the last of them are still closing
  OFP_ASSIGN(const std::int64_t agent_after, process_cpu_ns(side.agent));
  if (side.process > 0) {
    OFP_ASSIGN(process_after, process_cpu_ns(side.process));
  }
  const auto count = double(ended);
  return Turned{double(took) / count, double(agent_after - agent_before) / count,
                double(process_after - process_before) / count};
}

Claim claim_of(std::string name, const Comparison& compared, double scale, std::string unit) {
  return cost_beside("slow path on the agent", std::move(name), compared, scale, std::move(unit));
}

Comparison without_warmups(const PairPlan& plan, const std::vector<double>& subject, const std::vector<double>& peer) {
  return compare(std::span(subject).subspan(plan.warmups), std::span(peer).subspan(plan.warmups));
}

Status measure_connections(const SlowPathSide& on_host, const SlowPathSide& on_agent, std::size_t at_a_time,
                           const Options& options, Report& report) {
  const TimeNs duration = options.quick ? 10 * millisecond_ns : 150 * millisecond_ns;
  std::vector<double> agent[2], all[2], process;
  const auto turn = [&](const SlowPathSide& side) -> Result<double> {
    const bool subject = &side == &on_host;
    OFP_ASSIGN(const Turned turned, turn_of_connections(side, at_a_time, duration));
    agent[subject].push_back(turned.agent_ns);
    all[subject].push_back(turned.agent_ns + turned.process_ns);
    if (subject) process.push_back(turned.process_ns);
    return turned.ns;
  };
  const PairPlan plan = options.pairs();
  OFP_ASSIGN(const Comparison compared, run_pairs(plan, [&] { return turn(on_host); }, [&] { return turn(on_agent); }));
  const std::string which = at_a_time == 1 ? "one at a time" : fmt::format("{} at a time", at_a_time);
  if (at_a_time == 1) {
    report.add(claim_of("tcp.slow_path_connection (" + which + ")", compared, 1e-3, "us"));
  } else {
    Claim rate = claim_of("tcp.slow_path_connections (" + which + ")", compared, 1, "/s");
    rate.value = 1e9 / compared.subject;
    rate.peer_value = 1e9 / compared.peer;
    report.add(std::move(rate));
  }
  report.add(claim_of("tcp.slow_path_agent_cpu (a connection, " + which + ")",
                      without_warmups(plan, agent[1], agent[0]), 1e-3, "us"));
  report.add(claim_of("tcp.slow_path_cpu (agent and process, a connection, " + which + ")",
                      without_warmups(plan, all[1], all[0]), 1e-3, "us"));
  report.add(Claim{.claim = "tcp.slow_path_process_cpu (a connection, " + which + ")",
                   .value = median(process) * 1e-3,
                   .unit = "us"});
  return {};
}

// The median echo of a lasting connection, while others come and go on the same agent.
Result<double> echo_among_others(const SlowPathSide& side, int fd, TimeNs duration, std::size_t times) {
  Status others;
  std::thread coming_and_going([&] {
    if (const auto ended = short_connections(side.server, 4, duration); !ended) others = tl::unexpected(ended.error());
  });
  const auto echo = round_trips(fd, message_bytes, times);
  coming_and_going.join();
  if (!others) return tl::unexpected(others.error());
  return echo;
}

Status measure_echo(const SlowPathSide& on_host, const SlowPathSide& on_agent, const Options& options, Report& report) {
  OFP_ASSIGN(const Fd host_fd, on_host.server.connect(StreamServer::echo));
  OFP_ASSIGN(const Fd agent_fd, on_agent.server.connect(StreamServer::echo));
  const std::size_t times = options.quick ? 50 : 1000;
  const auto alone = [&](const Fd& fd) -> Result<double> {
    sleep_ns(settle_ns);
    return round_trips(fd.get(), message_bytes, times);
  };
  OFP_ASSIGN(const Comparison quiet,
             run_pairs(options.pairs(), [&] { return alone(host_fd); }, [&] { return alone(agent_fd); }));
  report.add(claim_of("tcp.slow_path_echo (64 B, alone)", quiet, 1e-3, "us"));
  const TimeNs duration = options.quick ? 10 * millisecond_ns : 150 * millisecond_ns;
  const auto among = [&](const SlowPathSide& side, const Fd& fd) -> Result<double> {
    sleep_ns(settle_ns);
    return echo_among_others(side, fd.get(), duration, times / 2);
  };
  OFP_ASSIGN(
      const Comparison busy,
      run_pairs(options.pairs(), [&] { return among(on_host, host_fd); }, [&] { return among(on_agent, agent_fd); }));
  report.add(claim_of("tcp.slow_path_echo (64 B, while connections come and go)", busy, 1e-3, "us"));
  return {};
}

}  // namespace

Status measure_slow_path(const SlowPathSide& on_host, const SlowPathSide& on_agent, const Options& options,
                         Report& report) {
  for (const std::size_t at_a_time : {std::size_t{16}, std::size_t{1}})
    OFP_TRY(measure_connections(on_host, on_agent, at_a_time, options, report));
  return measure_echo(on_host, on_agent, options, report);
}

}  // namespace offpath::bench
