// The same suite with each rank as a member: mpirun -n N exchange_mpi_conformance. With `die` rank 1 kills itself, and
// the others have to get an error that names it, and end.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "exchange/mpi_carrier.h"
#include "exchange_carrier_suite.h"

namespace {

using namespace offpath;
using namespace offpath::exchange;

class OverMpi final : public conformance::CarrierMembers {
 public:
  OverMpi(MpiWorld& world, std::unique_ptr<MpiCarrier> carrier)
      : world_(world), carrier_(std::move(carrier)), here_{world.rank()} {}
  [[nodiscard]] std::size_t size() const override { return world_.size(); }
  [[nodiscard]] const std::vector<MemberIndex>& here() const override { return here_; }
  [[nodiscard]] Carrier& carrier(MemberIndex) override { return *carrier_; }
  [[nodiscard]] TimeNs now() const override { return monotonic_ns(); }
  void pause() override {
    const timespec moment{0, 20'000};  // there are more ranks than cores
    nanosleep(&moment, nullptr);
  }
  void meet_after(const std::function<void()>& meanwhile) override { world_.barrier(meanwhile); }
  // Late parcels of one case must not count for the next one: all ranks have sent before any takes the last ones.
  void meet() override {
    const auto take_turn = [this] {
      (void)carrier_->poll(now(), [](MemberIndex, const SharedBytes&) {});
      pause();
    };
    world_.barrier(take_turn);
    for (int i = 0; i < 100; ++i) take_turn();
    world_.barrier([this] { pause(); });  // a rank that has left it sends for the next case
  }

 private:
  MpiWorld& world_;
  std::unique_ptr<MpiCarrier> carrier_;
  std::vector<MemberIndex> here_;
};

int wait_for_death(MpiWorld& world, OverMpi& members) {
  if (world.rank() == 1) raise(SIGKILL);
  for (const TimeNs until = monotonic_ns() + 30 * second_ns; monotonic_ns() < until;) {
    const Status polled = members.carrier(0).poll(monotonic_ns(), [](MemberIndex, const SharedBytes&) {});
    if (!polled) {
      const bool told = polled.error().code == Error::peer_lost;
      std::printf("rank %u: %s%s\n", world.rank(), told ? "" : "not told: ", polled.error().message.c_str());
      std::fflush(stdout);
      _exit(told ? 0 : 1);  // MPI_Finalize would wait for the dead
    }
    members.pause();
  }
  std::printf("rank %u: not told\n", world.rank());
  std::fflush(stdout);
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  auto world = MpiWorld::begin(&argc, &argv);
  if (!world) return 2;
  auto carrier = MpiCarrier::make(*world, parcel_bytes_max(world->size(), 64 << 10, 0));
  if (!carrier) return 2;
  OverMpi members(*world, std::move(*carrier));
  if (argc > 1 && std::strcmp(argv[1], "die") == 0) return wait_for_death(*world, members);
  int failures = 0;
  const auto report = [&](const char* what, const std::string& wrong) {
    if (!wrong.empty()) ++failures;
    if (!wrong.empty() || world->rank() == 0)
      std::printf("rank %u: %s: %s\n", world->rank(), what, wrong.empty() ? "ok" : wrong.c_str());
    std::fflush(stdout);
  };
  for (const std::uint64_t bytes : {100ull, 4096ull, 65536ull, 65537ull, 200000ull})
    if (bytes <= parcel_bytes_max(world->size(), 64 << 10, 0))
      report("parcels arrive whole", parcels_arrive_whole(members, bytes));
  for (const std::uint64_t bytes : {100ull, 4096ull, 100000ull})
    if (bytes <= parcel_bytes_max(world->size(), 64 << 10, 0))
      report("parcels sent while taking", parcels_sent_while_taking_arrive_whole(members, bytes));
  for (const char* shape : {"allgather", "neighbourhoods(2)", "grouped_allgather(2)", "hybrid(2, 3)"}) {
    report(shape, views_become_complete(members, shape, 48, false));
    report(shape, views_become_complete(members, shape, 64 << 10, true));
    if (world->size() > 1) report("a stopped member", a_stopped_member_is_survived(members, shape));
    // Collectives along the same tree come to the same.
    std::vector<Place> places = world->places();
    const auto topology = Topology::make(*parse_shape(shape), places);
    for (const bool variable : {false, true}) {
      auto collectives = MpiCollectives::make(*world, *topology, 48, variable);
      std::vector<std::byte> record(48, static_cast<std::byte>(world->rank()));
      const auto all = collectives->exchange(record);
      bool right = all.has_value();
      const NodeIndex top = topology->root();
      bool leads = topology->node(top).member != nobody;
      for (const NodeIndex child : topology->node(top).children)
        leads |= topology->leader(child, [](MemberIndex) { return true; }) == world->rank();
      if (right && leads) {
        right = all->size() == 48 * world->size();
        for (std::size_t i = 0; right && i < world->size(); ++i)
          right = (*all)[i * 48] == static_cast<std::byte>(topology->order()[i]);
      }
      report("collectives", right ? "" : "they come to something else");
    }
  }
  return failures == 0 ? 0 : 1;
}
