// The exchange time on larger systems: 16 to 1600 members by the LogGP model (loggp.h), along the trees that agents
// use, and the influence of each of its constants. Members have a network card each, as agents have; and share cards,
// as the paper's processes do, as many on each as there are cards (card_model.h). For 1600 such members also by the
// size of a record.
//
// --loggp "L,o,g,G" in ns and ns per byte. Default: 200 Gb/s InfiniBand HDR according to vendors and the literature,
// 1.0 us from program to program for small messages (of which 0.6 us in the network), 215 million messages per second
// and port, but 5 per microsecond from one core, 25 GB/s.
//
// As in the paper, a time is measured from the members' posting until all top leaders have everything, and hybrid has
// groups of 2 and depth 3.
#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "exchange/card_model.h"
#include "exchange/topology.h"
#include "report.h"

namespace offpath::bench {
namespace {

using namespace exchange;

class Model {
 public:
  Model(const Topology& topology, const LogGP& constants, std::uint64_t record_bytes)
      : topology_(topology), constants_(constants), record_bytes_(record_bytes) {}

  double exchange_ns() {
    const Node& root = topology_.node(topology_.root());
    if (root.member != nobody) return 0;
    std::vector<double> ready;
    std::vector<double> bytes;
    for (const NodeIndex child : root.children) {
      ready.push_back(gathered(child));
      bytes.push_back(bytes_of(child));
    }
    return across(ready, bytes);
  }

 private:
  [[nodiscard]] double bytes_of(NodeIndex index) const { return parcel_bytes(topology_.node(index), record_bytes_); }
  // Afterwards the sender's processor is free again; its network is free for the next message after the second time.
  [[nodiscard]] double sending(double bytes) const {
    return std::max(constants_.gap, constants_.overhead) + constants_.byte_gap * bytes;
  }
  [[nodiscard]] double arrival(double sent_at, double bytes) const {
    return sent_at + constants_.overhead + constants_.byte_gap * bytes + constants_.latency;
  }
  // A member takes arriving messages one after another.
  [[nodiscard]] double taken(std::vector<double>& arrivals, const std::vector<double>& bytes, double from) const {
    std::vector<std::size_t> order(arrivals.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return arrivals[i]; });
    double now = from;
    for (const std::size_t i : order)
      now = std::max(now, arrivals[i]) + std::max(constants_.overhead, constants_.byte_gap * bytes[i]);
    return now;
  }
  // The time at which a node's leader has everything. The leader's own part needs no message.
  double gathered(NodeIndex index) {
    const Node& node = topology_.node(index);
    if (node.member != nobody) return 0;
    std::vector<double> arrivals, bytes;
    const double own = gathered(node.children.front());
    for (std::size_t i = 1; i < node.children.size(); ++i) {
      bytes.push_back(bytes_of(node.children[i]));
      arrivals.push_back(arrival(gathered(node.children[i]), bytes.back()));
    }
    return taken(arrivals, bytes, own);
  }
  double across(const std::vector<double>& ready, const std::vector<double>& bytes) const {
    const std::size_t n = ready.size();
    std::vector<std::vector<double>> arrivals(n), sizes(n);
    std::vector<double> free_at(n);
    for (std::size_t from = 0; from < n; ++from) {
      double now = ready[from];
      for (std::size_t step = 1; step < n;
           ++step) {  // each begins with its successor, so that members do not all send to the same one
        const std::size_t to = (from + step) % n;
        arrivals[to].push_back(arrival(now, bytes[from]));
        sizes[to].push_back(bytes[from]);
        now += sending(bytes[from]);
      }
      free_at[from] = now;
    }
    double last = 0;
    for (std::size_t to = 0; to < n; ++to) last = std::max(last, taken(arrivals[to], sizes[to], free_at[to]));
    return last;
  }

  const Topology& topology_;
  LogGP constants_;
  std::uint64_t record_bytes_;
};

Result<LogGP> parse(std::string_view text) {
  LogGP constants;
  std::array<double*, 4> all{&constants.latency, &constants.overhead, &constants.gap, &constants.byte_gap};
  if (text.empty()) return constants;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *all[i]);
    if (error != std::errc() || *all[i] < 0) return fail(Error::invalid, "--loggp is four numbers: L,o,g,G");
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (i + 1 < all.size() && !text.starts_with(',')) return fail(Error::invalid, "--loggp is four numbers: L,o,g,G");
    if (i + 1 < all.size()) text.remove_prefix(1);
  }
  return constants;
}

Result<Topology> topology_of(const char* shape, std::size_t count) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < count; ++i) places.push_back({fmt::format("m{}", i)});
  return Topology::make(*parse_shape(shape), places);
}

Result<double> time_us(const char* shape, std::size_t count, std::uint64_t record_bytes, const LogGP& constants) {
  OFP_ASSIGN(const Topology topology, topology_of(shape, count));
  return Model(topology, constants, record_bytes).exchange_ns() / 1e3;
}

// As many cards as members of each.
Result<double> shared_us(const char* shape, std::size_t cards, std::uint64_t record_bytes, const LogGP& constants) {
  OFP_ASSIGN(const Topology topology, topology_of(shape, cards * cards));
  return bench::exchange_ns(topology, CardConstants{.network = constants}, record_bytes, cards) / 1e3;
}

constexpr const char* shapes[] = {"allgather", "neighbourhoods(2)", "grouped_allgather(2)", "grouped_allgather(40)",
                                  "hybrid(2, 3)"};

Status add_shared_cards(const Options& options, const LogGP& constants, Report& report) {
  const std::size_t cards_max = options.quick ? 10 : 40;
  for (const std::uint64_t bytes : {48, 65536}) {
    for (const char* shape : shapes) {
      Series line{fmt::format("exchange_cards_{}", bytes), shape, "members", "us", {}, {}};
      for (const std::size_t cards : {4, 6, 10, 14, 20, 28, 40}) {
        if (cards > cards_max) break;
        OFP_ASSIGN(const double us, shared_us(shape, cards, bytes, constants));
        line.x.push_back(static_cast<double>(cards * cards));
        line.y.push_back(us);
      }
      report.add(Claim{.claim = fmt::format("exchange.time_us ({}, {} B, {} members on {} cards, LogGP)", shape, bytes,
                                            cards_max * cards_max, cards_max),
                       .value = line.y.back(),
                       .unit = "us"});
      report.add(std::move(line));
    }
  }
  for (const char* shape : shapes) {
    Series line{"exchange_sizes_cards", shape, "bytes of a record", "us", {}, {}};
    for (std::uint64_t bytes = 64; bytes <= 1 << 20; bytes *= 4) {
      OFP_ASSIGN(const double us, shared_us(shape, cards_max, bytes == 64 ? 48 : bytes, constants));
      line.x.push_back(bytes == 64 ? 48.0 : static_cast<double>(bytes));
      line.y.push_back(us);
    }
    report.add(std::move(line));
  }
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_ASSIGN(const LogGP constants, parse(options.other("--loggp")));
  for (const std::uint64_t bytes : {48, 65536}) {
    for (const char* shape : shapes) {
      Series line{fmt::format("exchange_time_{}", bytes), shape, "members", "us", {}, {}};
      for (const std::size_t count : {16, 40, 100, 200, 400, 800, 1600}) {
        if (options.quick && count > 200) break;
        OFP_ASSIGN(const double us, time_us(shape, count, bytes, constants));
        line.x.push_back(static_cast<double>(count));
        line.y.push_back(us);
      }
      report.add(
          Claim{.claim = fmt::format("exchange.time_us ({}, {} B, {:.0f} members, LogGP)", shape, bytes, line.x.back()),
                .value = line.y.back(),
                .unit = "us"});
      report.add(std::move(line));
      // Each constant's share of the time: measured by doubling it.
      const double base = *time_us(shape, options.quick ? 200 : 1600, bytes, constants);
      Series sensitivity{fmt::format("exchange_sensitivity_{}", bytes), shape, "constant (L, o, g, G)",
                         "times as long, with twice the constant",      {},    {}};
      for (int i = 0; i < 4; ++i) {
        LogGP changed = constants;
        *std::array<double*, 4>{&changed.latency, &changed.overhead, &changed.gap,
                                &changed.byte_gap}[static_cast<std::size_t>(i)] *= 2;
        sensitivity.x.push_back(i);
        sensitivity.y.push_back(*time_us(shape, options.quick ? 200 : 1600, bytes, changed) / base);
      }
      report.add(std::move(sensitivity));
    }
  }
  return add_shared_cards(options, constants, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "exchange", {"--loggp"}, offpath::bench::run);
}
