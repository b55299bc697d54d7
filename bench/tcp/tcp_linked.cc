#include "tcp_linked.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace offpath::bench {
namespace {

constexpr std::size_t message_bytes = BusyConnections::message_bytes;
constexpr TimeNs settle_ns = 3 * millisecond_ns;  // until the agents of the other sides sleep
// The paper's figures for its queues over RDMA: read() of 100 bytes that came every 100 ms, and a flush.
constexpr double paper_read_us = 520, paper_flush_us = 7;
constexpr double echo_reads = 3, echo_chains = 2;  // that an echo may take
constexpr std::size_t sides_count = 3;

Result<std::string> page_of(const std::string& socket_path, std::string_view page) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof at.sun_path) return fail(Error::invalid, "'{}' is too long a path", socket_path);
  std::memcpy(at.sun_path, socket_path.data(), socket_path.size());
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return fail_errno(errno, fmt::format("the agent's pages at {}", socket_path));
  const std::string asked = fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", page);
  OFP_TRY(send_all(fd.get(), asked.data(), asked.size()));
  std::string answer;
  std::array<char, 16 << 10> chunk;
  for (;;) {
    const ssize_t got = ::recv(fd.get(), chunk.data(), chunk.size(), 0);
    if (got < 0) return fail_errno(errno, "the agent's pages");
    if (got == 0) return answer;
    answer.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

Result<LinkOperations> operations_of(const LinkedSides& sides) {
  sleep_ns(200 * millisecond_ns);  // the agent shows one page for 100 ms
  OFP_ASSIGN(const std::string metrics, page_of(sides.pages, "/metrics"));
  return parse_link_operations(metrics);
}

// CPU time so far of everything on the program's machine, and of the agent.
struct Spent {
  std::int64_t program_ns = 0, agent_ns = 0;
};

Result<Spent> spent_by(const LinkedSide& side) {
  Spent spent;
  OFP_ASSIGN(spent.program_ns, side.server.cpu_ns());
  if (side.relay > 0) {
    OFP_ASSIGN(const std::int64_t relay_ns, process_cpu_ns(side.relay));
    spent.program_ns += relay_ns;
  }
  if (side.agent > 0) {
    OFP_ASSIGN(spent.agent_ns, process_cpu_ns(side.agent));
  }
  return spent;
}

// Costs of each side's turns, of several kinds.
struct Costs {
  std::vector<double> time, program, agent;
};

class Turns {
 public:
  explicit Turns(const Options& options) : plan_(options.pairs()) {}

  // One turn of each side in each round. The order turns round every three rounds, as in run_pairs, so that each side
  // follows every other side equally often. `turn` carries `messages` messages and returns its nanoseconds.
  template <class Turn>
  [[nodiscard]] Status run(const LinkedSides& sides, double messages, const Turn& turn) {
    for (std::size_t round = 0; round < plan_.pairs + plan_.warmups; ++round) {
      for (std::size_t place = 0; place < sides_count; ++place) {
        const std::size_t at = round / 3 % 2 == 0 ? place : sides_count - 1 - place;
        const LinkedSide& side = sides.all[at];
        sleep_ns(settle_ns);
        OFP_ASSIGN(const Spent before, spent_by(side));
        OFP_ASSIGN(const double ns, turn(at));
        OFP_ASSIGN(const Spent after, spent_by(side));
        if (round < plan_.warmups) continue;
        costs_[at].time.push_back(ns);
        costs_[at].program.push_back(double(after.program_ns - before.program_ns) / messages);
        costs_[at].agent.push_back(double(after.agent_ns - before.agent_ns) / messages);
      }
    }
    return {};
  }
  [[nodiscard]] const Costs& of(std::size_t side) const noexcept { return costs_[side]; }

 private:
  PairPlan plan_;
  std::array<Costs, sides_count> costs_;
};

struct Shown {
  double scale;
  std::string unit;
  bool inverse = false;  // more is better
};

Claim claim_of(std::string name, const std::vector<double>& subject, const std::vector<double>& peer,
               std::string peer_name, const Shown& shown) {
  const Comparison compared = compare(subject, peer);
  const auto figure = [&shown](double cost) { return shown.inverse ? shown.scale / cost : shown.scale * cost; };
  return {.claim = std::move(name),
          .value = figure(compared.subject),
          .unit = shown.unit,
          .peer = std::move(peer_name),
          .peer_value = figure(compared.peer),
          .ratio = compared.ratio,
          .interval = compared.interval,
          .pairs = compared.pairs};
}

// Time beside both peers; CPU of the program's machine beside both; the agent's beside the agent on this machine.
void add_turns(Report& report, const LinkedSides& sides, const Turns& turns, std::string_view name,
               std::string_view what, const Shown& time, const Shown& cpu, std::optional<Target> target = {}) {
  const Costs& own = turns.of(0);
  for (std::size_t peer = 1; peer < sides_count; ++peer) {
    const Costs& other = turns.of(peer);
    const std::string& beside = sides.all[peer].name;
    Claim claim = claim_of(fmt::format("tcp.linked_{} ({}, {}, beside the {})", name, sides.link, what, beside),
                           own.time, other.time, beside, time);
    if (peer == 1) claim.target = target;
    report.add(std::move(claim));
    report.add(
        claim_of(fmt::format("tcp.linked_{}_program_cpu ({}, {}, beside the {})", name, sides.link, what, beside),
                 own.program, other.program, beside, cpu));
    if (sides.all[peer].agent > 0)
      report.add(
          claim_of(fmt::format("tcp.linked_{}_agent_cpu ({}, {}, beside the {})", name, sides.link, what, beside),
                   own.agent, other.agent, beside, cpu));
  }
}

void add_operations(Report& report, const LinkedSides& sides, std::string_view what, const LinkOperations& before,
                    const LinkOperations& after, double count, bool echo = false) {
  const auto add = [&](std::string_view kind, double sum, std::string unit, std::optional<Target> target = {}) {
    report.add(Claim{.claim = fmt::format("tcp.linked_{} ({}, {})", kind, sides.link, what),
                     .value = sum / count,
                     .unit = std::move(unit),
                     .target = std::move(target)});
  };
  const auto at_most = [echo](double most, std::string_view unit) {
    return echo ? std::optional(value_at_most(most, unit)) : std::nullopt;
  };
  add("reads", after.reads - before.reads, "reads", at_most(echo_reads, "reads"));
  add("chains_of_writes", after.writes - before.writes, "chains", at_most(echo_chains, "chains"));
  add("bytes", after.bytes - before.bytes, "B");
}

Result<std::array<Fd, sides_count>> connect_all(const LinkedSides& sides, StreamServer::Role role) {
  std::array<Fd, sides_count> all;
  for (std::size_t i = 0; i < sides_count; ++i) {
    OFP_ASSIGN(all[i], sides.all[i].server.connect(role));
  }
  return all;
}

Status measure_echo(const LinkedSides& sides, const Options& options, Report& report) {
  OFP_ASSIGN(const auto fds, connect_all(sides, StreamServer::echo));
  const std::size_t times = options.quick ? 50 : 1000;
  OFP_TRY(round_trips(fds[0].get(), message_bytes, times));
  OFP_ASSIGN(const LinkOperations before, operations_of(sides));
  OFP_TRY(round_trips(fds[0].get(), message_bytes, times));
  OFP_ASSIGN(const LinkOperations after, operations_of(sides));
  Turns turns(options);
  const auto turn = [&](std::size_t side) { return round_trips(fds[side].get(), message_bytes, times); };
  OFP_TRY(turns.run(sides, double(times), turn));
  add_turns(report, sides, turns, "echo", "64 B", {1e-3, "us"}, {1e-3, "us"});
  add_operations(report, sides, "an echo of 64 B, one after the other", before, after, double(times), true);
  return {};
}

// 100 bytes every 100 ms on each connection.
Status measure_sparse(const LinkedSides& sides, const Options& options, Report& report) {
  constexpr std::size_t bytes = 100;
  OFP_ASSIGN(const auto fds, connect_all(sides, StreamServer::timed));
  const TimeNs between = (options.quick ? 6 * millisecond_ns : 100 * millisecond_ns) / sides_count - settle_ns;
  const std::size_t rounds = options.quick ? 5 : 105;
  std::array<std::vector<double>, sides_count> echo, read, program, agent;
  OFP_ASSIGN(const LinkOperations before, operations_of(sides));
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t place = 0; place < sides_count; ++place) {
      const std::size_t at = round / 3 % 2 == 0 ? place : sides_count - 1 - place;
      sleep_ns(std::max<TimeNs>(between, 0));
      OFP_ASSIGN(const Spent spent_before, spent_by(sides.all[at]));
      std::array<char, bytes> message{};
      const std::uint64_t sent = ticks();
      OFP_TRY(send_all(fds[at].get(), message.data(), bytes));
      OFP_TRY(receive_all(fds[at].get(), message.data(), bytes));
      echo[at].push_back(double(ticks() - sent) * ns_per_tick());
      std::uint64_t read_ns = 0;
      std::memcpy(&read_ns, message.data(), sizeof read_ns);
      read[at].push_back(double(read_ns));
      sleep_ns(settle_ns);  // both sides fall asleep again, which belongs to the message
      OFP_ASSIGN(const Spent spent_after, spent_by(sides.all[at]));
      program[at].push_back(double(spent_after.program_ns - spent_before.program_ns));
      agent[at].push_back(double(spent_after.agent_ns - spent_before.agent_ns));
    }
  }
  OFP_ASSIGN(const LinkOperations after, operations_of(sides));
  constexpr std::string_view what = "100 B, every 100 ms";
  for (const auto& [name, costs] : {std::pair{"read()", &read[0]}, std::pair{"echo", &echo[0]}})
    report.add(Claim{.claim = fmt::format("tcp.linked_sparse ({}, {}, average {})", sides.link, what, name),
                     .value = mean(*costs) * 1e-3,
                     .unit = "us",
                     .target = value_at_most(paper_read_us, "us")});
  for (std::size_t peer = 1; peer < sides_count; ++peer) {
    const std::string& beside = sides.all[peer].name;
    const auto add = [&](std::string_view kind, const auto& costs) {
      report.add(claim_of(fmt::format("tcp.linked_sparse_{} ({}, {}, beside the {})", kind, sides.link, what, beside),
                          costs[0], costs[peer], beside, {1e-3, "us"}));
    };
    add("echo", echo);
    add("read", read);
    add("program_cpu", program);
    if (sides.all[peer].agent > 0) add("agent_cpu", agent);
  }
  add_operations(report, sides, "a message of 100 B and its echo, every 100 ms", before, after, double(rounds));
  return {};
}

Status measure_posts(const LinkedSides& sides, const Options& options, Report& report) {
  constexpr std::uint64_t posts = 200;
  OFP_ASSIGN(const auto fds, connect_all(sides, StreamServer::posts));
  Turns turns(options);
  const auto turn = [&](std::size_t side) { return median_of_posts(fds[side].get(), posts); };
  OFP_TRY(turns.run(sides, double(posts), turn));
  add_turns(report, sides, turns, "post", "a send of 64 B", {1, "ns"}, {1, "ns"},
            value_at_most(paper_flush_us * 1e3, "ns"));
  return {};
}

Status measure_stream(const LinkedSides& sides, const Options& options, bool in, Report& report) {
  OFP_ASSIGN(const auto fds, connect_all(sides, StreamServer::stream));
  const std::uint64_t bytes = options.quick ? 1 << 20 : 16 << 20;
  const auto carry = [&](std::size_t side) { return stream(fds[side].get(), in ? bytes : 0, in ? 1 : bytes); };
  OFP_TRY(carry(0));
  OFP_ASSIGN(const LinkOperations before, operations_of(sides));
  OFP_TRY(carry(0));
  OFP_ASSIGN(const LinkOperations after, operations_of(sides));
  Turns turns(options);
  OFP_TRY(turns.run(sides, double(bytes), carry));
  const std::string way = in ? "to the server" : "from the server";
  add_turns(report, sides, turns, "stream", way, {8 * double(bytes), "Gb/s", true}, {1e3, "ps/B"});
  add_operations(report, sides, "1 MiB " + way, before, after, double(bytes >> 20));
  return {};
}

}  // namespace

Result<LinkOperations> parse_link_operations(std::string_view metrics) {
  const auto value_of = [metrics](std::string_view line) -> Result<double> {
    const std::size_t at = metrics.find(line);
    if (at == std::string_view::npos) return fail(Error::not_found, "the agent's metrics have no {}", line);
    return std::atof(std::string(metrics.substr(at + line.size(), 32)).c_str());
  };
  LinkOperations found;
  OFP_ASSIGN(const double looks, value_of("offpath_tcp_linked_operations_total{carries=\"commands\"} "));
  OFP_ASSIGN(const double fetches, value_of("offpath_tcp_linked_operations_total{carries=\"payload\"} "));
  OFP_ASSIGN(found.writes, value_of("offpath_tcp_linked_operations_total{carries=\"events\"} "));
  OFP_ASSIGN(const double read, value_of("offpath_tcp_linked_carried_bytes_total{by=\"reads\"} "));
  OFP_ASSIGN(const double written, value_of("offpath_tcp_linked_carried_bytes_total{by=\"writes\"} "));
  found.reads = looks + fetches;
  found.bytes = read + written;
  return found;
}

Status measure_linked(const LinkedSides& sides, const Options& options, Report& report) {
  OFP_TRY(measure_echo(sides, options, report));
  OFP_TRY(measure_sparse(sides, options, report));
  OFP_TRY(measure_posts(sides, options, report));
  for (const bool in : {true, false}) OFP_TRY(measure_stream(sides, options, in, report));
  return {};
}

}  // namespace offpath::bench
