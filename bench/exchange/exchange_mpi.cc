// Exchange time between the ranks of one mpirun: the tree with a deadline (persistent point-to-point,
// exchange/mpi_carrier.h), MPI's collectives along the same tree, and those for records whose sizes are not known, in
// turns. Measured from posting until the top leaders have everything; the slowest of them counts. Rank 0 prints a line
// for each: topology;bytes;ranks;tree p50 us;collectives p50 us;pairs;collectives / tree;its 95 % interval,
// low;high;collectives for unknown sizes p50 us;collectives / those;its 95 % interval, low;high
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/mpi_carrier.h"
#include "measure.h"

namespace {

using namespace offpath;
using namespace offpath::exchange;
using bench::Comparison;

// Runs until this rank's view of the epoch is made; parcels of the next epoch wait in the exchange.
Status one_round(Exchange& exchange, MpiCarrier& carrier, const Record& record, std::uint64_t epoch,
                 std::optional<TimeNs>& given_at) {
  ExchangeEffects effects;
  bool any = false;
  TimeNs now = monotonic_ns();  // read once for everything that is done at a time
  const auto carry_out = [&] {
    while (std::exchange(effects.wants_local, false)) exchange.on_local(record, 0, now, effects);
    for (const ViewPtr& view : effects.views)
      if (view->epoch == epoch) given_at = monotonic_ns();
    for (auto& send : effects.sends) carrier.send(send.to, std::move(send.parcel), send.deadline, now);
    effects.sends.clear();
    effects.views.clear();
  };
  const auto take_in = [&](MemberIndex, const SharedBytes& parcel) {
    any = true;
    (void)exchange.on_parcel(parcel, now, effects);
    carry_out();
  };
  const Carrier::Take take = std::ref(take_in);
  if (exchange.epoch() < epoch) exchange.begin(now, effects);
  carry_out();
  // At least once: a rank that does not receive the leaders' last parcels of the previous round takes them for dead.
  do {
    any = false;
    now = monotonic_ns();
    OFP_TRY(carrier.poll(now, take));
    if (any || given_at) continue;
    exchange.on_time(now, effects);  // an idle poll gives the core to other ranks that share it
    carry_out();
  } while (!given_at);
  return {};
}

Status measure(const MpiWorld& world, const char* shape, std::uint64_t bytes, int rounds) {
  const std::vector<Place> places = world.places();
  OFP_ASSIGN(const Topology topology, Topology::make(*parse_shape(shape), places));
  OFP_ASSIGN(MpiCollectives of_known_sizes, MpiCollectives::make(world, topology, bytes, false));
  OFP_ASSIGN(MpiCollectives of_any_size, MpiCollectives::make(world, topology, bytes, true));
  OFP_ASSIGN(auto carrier, MpiCarrier::make(world, parcel_bytes_max(world.size(), bytes, 0)));
  ExchangeOptions options;
  options.name = "bench";
  options.interval_ns = 0;
  options.deadline_ns = second_ns;
  options.views_to_all = false;
  const MemberIndex self = world.rank();
  bool leads = topology.node(topology.root()).member != nobody;
  for (const NodeIndex child : topology.node(topology.root()).children)
    leads |= topology.leader(child, [](MemberIndex) { return true; }) == self;
  Exchange exchange(options, topology, self, self + 1, monotonic_ns());
  auto owner = std::make_shared<const std::vector<std::byte>>(bytes, static_cast<std::byte>(self));
  const Record record{owner, *owner};
  std::vector<double> tree, known, variable;
  const auto by_collectives = [&](MpiCollectives& collectives, std::vector<double>& times) -> Status {
    world.barrier();
    const TimeNs began = monotonic_ns();
    OFP_ASSIGN([[maybe_unused]] const Bytes all, collectives.exchange(*owner));
    const double took = leads ? static_cast<double>(monotonic_ns() - began) : 0;
    times.push_back(world.largest(took) / 1e3);
    return {};
  };
  const auto by_tree = [&](int round) -> Status {
    world.barrier();
    const TimeNs posted = monotonic_ns();
    std::optional<TimeNs> given_at;
    OFP_TRY(one_round(exchange, *carrier, record, static_cast<std::uint64_t>(round) + 1, given_at));
    tree.push_back(world.largest(leads ? static_cast<double>(*given_at - posted) : 0) / 1e3);
    return {};
  };
  for (int i = 0; i < rounds; ++i) {
    const std::array<std::function<Status()>, 3> turns = {[&] { return by_tree(i); },
                                                          [&] { return by_collectives(of_known_sizes, known); },
                                                          [&] { return by_collectives(of_any_size, variable); }};
    for (std::size_t turn = 0; turn < turns.size(); ++turn)  // which one begins changes every three rounds
      OFP_TRY(turns[(static_cast<std::size_t>(i) / 3 + turn) % turns.size()]());
  }
  world.barrier();
  if (self == 0) {
    const Comparison compared = bench::compare(tree, known), sizes = bench::compare(variable, known);
    std::printf("%s;%llu;%zu;%.2f;%.2f;%zu;%.4f;%.4f;%.4f;%.2f;%.4f;%.4f;%.4f\n", shape,
                static_cast<unsigned long long>(bytes), world.size(), compared.subject, compared.peer, compared.pairs,
                compared.ratio, compared.interval.low, compared.interval.high, sizes.subject, sizes.ratio,
                sizes.interval.low, sizes.interval.high);
  }
  std::fflush(stdout);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  auto world = MpiWorld::begin(&argc, &argv);
  if (!world) return 2;
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 3) : 300;
  std::vector<const char*> shapes = {"allgather", "neighbourhoods(2)", "grouped_allgather(2)", "hybrid(2, 3)"};
  std::vector<std::uint64_t> sizes = {48, 65536};
  if (argc == 4) {
    shapes = {argv[2]};
    sizes = {std::strtoull(argv[3], nullptr, 10)};
    if (!parse_shape(shapes.front()) || sizes.front() == 0) {
      std::fprintf(stderr, "%s [ROUNDS [TOPOLOGY BYTES]]\n", argv[0]);
      return 2;
    }
  }
  for (const char* shape : shapes)
    for (const std::uint64_t bytes : sizes)
      if (const Status measured = measure(*world, shape, bytes, rounds); !measured) {
        std::fprintf(stderr, "rank %u: %s\n", world->rank(), measured.error().message.c_str());
        return 1;
      }
  return 0;
}
