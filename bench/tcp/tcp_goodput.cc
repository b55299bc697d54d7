#include "tcp_goodput.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "measure.h"

namespace offpath::bench {
namespace {

constexpr std::uint64_t stream_bytes = 4 << 20, stream_bytes_quick = 64 << 10;
constexpr std::size_t connections_of_each = 2;

// The agent's algorithm, regardless of this machine's default.
Status use_cubic(int fd) {
  constexpr std::string_view cubic = "cubic";
  if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cubic.data(), cubic.size()) != 0)
    return fail_errno(errno, "TCP_CONGESTION cubic");
  return {};
}

// Jain's index: 1 if all get the same, 1/n if one gets everything.
double fairness(const std::vector<std::uint64_t>& shares) {
  double sum = 0, squares = 0;
  for (const std::uint64_t share : shares) {
    sum += double(share);
    squares += double(share) * double(share);
  }
  return squares == 0 ? 0 : sum * sum / (double(shares.size()) * squares);
}

}  // namespace

Status measure_goodput(const StreamServer& offloaded, const StreamServer& kernel, std::string_view over,
                       const Options& options, Report& report) {
  const std::uint64_t bytes = options.quick ? stream_bytes_quick : stream_bytes;
  for (const bool in : {true, false}) {
    const auto turn = [&](const StreamServer& server) -> Result<double> {
      OFP_ASSIGN(const Fd fd, server.connect(StreamServer::stream));
      OFP_TRY(use_cubic(fd.get()));
      OFP_ASSIGN(const double ns, stream(fd.get(), in ? bytes : 0, in ? 1 : bytes));
      return ns / double(bytes);
    };
    OFP_ASSIGN(const Comparison compared,
               run_pairs(options.pairs(), [&] { return turn(offloaded); }, [&] { return turn(kernel); }));
    report.add({.claim = fmt::format("tcp.goodput_vs_kernel ({}, {} the server)", over, in ? "to" : "from"),
                .value = 8e3 / compared.subject,
                .unit = "Mb/s",
                .peer = "kernel",
                .peer_value = 8e3 / compared.peer,
                .ratio = compared.ratio,
                .interval = compared.interval,
                .pairs = compared.pairs,
                .target = ratio_at_least(0.95)});
  }
  return {};
}

Status measure_sharing(const StreamServer& offloaded, const StreamServer& kernel, std::string_view over,
                       const Options& options, Report& report) {
  const std::size_t rounds = options.quick ? 3 : 7;
  const TimeNs begin = (options.quick ? 50 : 2000) * millisecond_ns,
               duration = (options.quick ? 100 : 6000) * millisecond_ns;
  std::vector<double> indices, ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<Fd> connections;
    for (const StreamServer* server : {&offloaded, &kernel}) {
      for (std::size_t i = 0; i < connections_of_each; ++i) {
        OFP_ASSIGN(Fd fd, server->connect(StreamServer::stream));
        connections.push_back(std::move(fd));
      }
    }
    OFP_ASSIGN(const std::vector<std::uint64_t> shares, streams_at_once(connections, begin, duration));
    indices.push_back(fairness(shares));
    std::array<double, 2> sums{};
    for (std::size_t i = 0; i < shares.size(); ++i) sums[i / connections_of_each] += double(shares[i]);
    ratios.push_back(sums[0] / std::max(sums[1], 1.0));
  }
  report.add({.claim = fmt::format("tcp.fairness ({}, two connections of each stack)", over),
              .value = median(indices),
              .unit = "Jain's index",
              .target = value_at_least(0.9, "Jain's index")});
  report.add({.claim = fmt::format("tcp.fairness ({}, share of the offloaded beside the kernel's)", over),
              .value = median(ratios),
              .unit = "x"});
  report.add({.claim = fmt::format("tcp.fairness ({}, the larger of both stacks' shares beside the smaller)", over),
              .value = either_way(median(ratios)),
              .unit = "x",
              .target = value_at_most(1.2, "x")});
  return {};
}

}  // namespace offpath::bench
