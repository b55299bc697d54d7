#include "tcp_devices.h"

#include <fmt/format.h>

#include "tcp_claims.h"

namespace offpath::bench {
namespace {

constexpr std::size_t message_bytes = BusyConnections::message_bytes, busy_connections = 32;
constexpr TimeNs settle_ns = 3 * millisecond_ns;  // until the other agent sleeps

// The results of a turn, for each byte or echo.
struct Cost {
  double ns = 0, agent_ns = 0;
};

// Both kinds of cost from the same turns.
struct Compared {
  Comparison time, agent;
};

template <class Turn>
Result<Compared> compared(const Options& options, const DeviceSide& packet, const DeviceSide& xdp, const Turn& turn) {
  std::vector<double> agent[2];
  const auto side = [&](bool subject) -> Result<double> {
    sleep_ns(settle_ns);
    const pid_t process = (subject ? packet : xdp).agent;
    OFP_ASSIGN(const std::int64_t before, process_cpu_ns(process));
    OFP_ASSIGN(const Cost cost, turn(subject));
    OFP_ASSIGN(const std::int64_t after, process_cpu_ns(process));
    agent[subject].push_back(double(after - before) * cost.agent_ns);
    return cost.ns;
  };
  const PairPlan plan = options.pairs();
  OFP_ASSIGN(const Comparison time, run_pairs(plan, [&] { return side(true); }, [&] { return side(false); }));
  return Compared{time, compare(std::span(agent[1]).subspan(plan.warmups), std::span(agent[0]).subspan(plan.warmups))};
}

Claim claim_of(std::string name, const Comparison& compared, double scale, std::string unit,
               std::optional<Target> target = {}) {
  return cost_beside("AF_XDP", std::move(name), compared, scale, std::move(unit), target);
}

Claim rate_of(std::string name, const Comparison& compared, double scale, std::string unit,
              std::optional<Target> target = {}) {
  return rate_beside("AF_XDP", std::move(name), compared, scale, std::move(unit), target);
}

// Connections of one kind to both servers.
struct Connections {
  Fd packet, xdp;
  static Result<Connections> open(const DeviceSide& packet, const DeviceSide& xdp, StreamServer::Role role) {
    Connections made;
    OFP_ASSIGN(made.packet, packet.server.connect(role));
    OFP_ASSIGN(made.xdp, xdp.server.connect(role));
    return made;
  }
  [[nodiscard]] int of(bool subject) const noexcept { return (subject ? packet : xdp).get(); }
};

Status measure_streams(const DeviceSide& packet, const DeviceSide& xdp, bool in, const Options& options,
                       Report& report) {
  OFP_ASSIGN(const Connections both, Connections::open(packet, xdp, StreamServer::stream));
  const std::uint64_t bytes = options.quick ? 1 << 20 : 64 << 20;
  OFP_ASSIGN(const Compared found, compared(options, packet, xdp, [&](bool subject) -> Result<Cost> {
               OFP_ASSIGN(const double ns, stream(both.of(subject), in ? bytes : 0, in ? 1 : bytes));
               return Cost{ns / double(bytes), 1 / double(bytes)};
             }));
  const std::string_view way = in ? "to the server" : "from the server";
  report.add(rate_of(fmt::format("tcp.device_stream_gbps_vs_xdp ({})", way), found.time, 8, "Gb/s", ratio_at_least(1)));
  report.add(claim_of(fmt::format("tcp.device_stream_agent_cpu ({})", way), found.agent, 1e3, "ps/B"));
  return {};
}

Status measure_echoes(const DeviceSide& packet, const DeviceSide& xdp, const Options& options, Report& report) {
  OFP_ASSIGN(const Connections both, Connections::open(packet, xdp, StreamServer::echo));
  const std::size_t times = options.quick ? 50 : 2000;
  OFP_ASSIGN(const Compared alone, compared(options, packet, xdp, [&](bool subject) -> Result<Cost> {
               OFP_ASSIGN(const double ns, round_trips(both.of(subject), message_bytes, times));
               return Cost{ns, 1 / double(times)};
             }));
  report.add(claim_of("tcp.device_echo_us_p50 (64 B, alone)", alone.time, 1e-3, "us"));
  report.add(claim_of("tcp.device_echo_agent_cpu (64 B, alone)", alone.agent, 1e-3, "us"));
  OFP_ASSIGN(BusyConnections packet_busy, BusyConnections::open(packet.server, busy_connections));
  OFP_ASSIGN(BusyConnections xdp_busy, BusyConnections::open(xdp.server, busy_connections));
  const TimeNs duration = (options.quick ? 50 : 150) * millisecond_ns;
  OFP_ASSIGN(const Compared busy, compared(options, packet, xdp, [&](bool subject) -> Result<Cost> {
               const TimeNs began = monotonic_ns();
               OFP_ASSIGN(const std::uint64_t echoes, (subject ? packet_busy : xdp_busy).run(duration));
               return Cost{double(monotonic_ns() - began) / double(echoes), 1 / double(echoes)};
             }));
  report.add(rate_of("tcp.device_requests (64 B, 32 busy)", busy.time, 1e6, "k/s"));
  report.add(claim_of("tcp.device_request_agent_cpu (64 B, 32 busy)", busy.agent, 1e-3, "us"));
  return {};
}

}  // namespace

Status measure_devices(const DeviceSide& packet, const DeviceSide& xdp, const Options& options, Report& report) {
  for (const bool in : {true, false}) OFP_TRY(measure_streams(packet, xdp, in, options, report));
  return measure_echoes(packet, xdp, options, report);
}

}  // namespace offpath::bench
