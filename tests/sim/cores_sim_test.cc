// Rates of an agent of several cores in virtual time, where work takes its core so long as a real one: programs are
// spread over the cores as the agent does it, and all work with one local pool. Either each sends all it has, and the
// time counts until everything is stored. Or each gets the rows of another program, which are pushed into its memory
// as with programs on a host beyond a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/cores/core_loads.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_host.h"

namespace offpath::sim {
namespace {

// How long a core works: copies at 5 GB/s, and the handling of a frame and of a request between cores.
constexpr double ns_of_byte = 0.2;
constexpr TimeNs ns_of_frame = 2 * microsecond_ns, ns_of_request = microsecond_ns;
constexpr std::uint64_t rows = 8192;   // of 8 bytes
constexpr std::uint64_t frames = 96;   // of each program
constexpr std::uint64_t at_once = 32;  // gets of a program that are under way
constexpr TimeNs patience_ns = 60 * second_ns;

enum class Work : std::uint8_t { sends, gets };

class Machine {
 public:
  Machine(std::size_t cores, Work work)
      : work_(work), fabric_(std::make_shared<link::LoopbackFabric>(cores)), spent_(cores) {
    SimCluster::Options options;
    options.members = cores;
    options.one_agent = true;
    options.maps_programs = work == Work::sends;
    options.dispatcher.mover.memory_bytes_max = 256ull << 20;
    options.dispatcher.mover.window_bytes = frames * rows * 16;
    options.links.welcome.memory_bytes_max = options.dispatcher.mover.memory_bytes_max;
    options.cost = [this](std::size_t core) { return cost(core); };
    cluster_ = std::make_unique<SimCluster>(fabric_, options);
    choices_.assign(cores, {true, 0, 0});
  }

  // Frames in a second of virtual time, of all programs together.
  double rate(std::size_t programs) {
    if (!cluster_->wait_for_agreement(patience_ns)) return 0;
    std::vector<std::unique_ptr<SimHost>> hosts;
    std::vector<std::vector<Column>> columns(programs);
    for (std::size_t program = 0; program < programs; ++program)
      hosts.push_back(connect(columns[program], fmt::format("program{}", program)));
    TimeNs took = send_all(hosts, columns);
    check_found(*hosts.front(), programs);
    if (work_ == Work::gets) took = get_all(hosts);
    const double seconds = static_cast<double>(took) / second_ns;
    for (auto& host : hosts) host->end().close(second_ns);
    return static_cast<double>(programs * frames) / seconds;
  }

  // Programs on each core.
  [[nodiscard]] std::vector<std::uint64_t> spread() const {
    std::vector<std::uint64_t> counts;
    for (const agent::CoreChoice& each : choices_) counts.push_back(each.connections);
    return counts;
  }

 private:
  using Hosts = std::vector<std::unique_ptr<SimHost>>;

  TimeNs send_all(const Hosts& hosts, const std::vector<std::vector<Column>>& columns) {
    const TimeNs began = fabric_->now();
    std::vector<std::uint64_t> last(hosts.size());
    for (std::size_t program = 0; program < hosts.size(); ++program)
      for (std::uint64_t frame = 0; frame < frames; ++frame)
        last[program] =
            value_of(hosts[program]->send(columns[program], rows, row_of(program, frame), "x", began + patience_ns));
    for (std::size_t program = 0; program < hosts.size(); ++program) {
      const Status stored = hosts[program]->end().wait(hosts[program]->stream(), last[program],
                                                       channel::Progress::stored, began + patience_ns);
      EXPECT_TRUE(stored) << (stored ? "" : stored.error().message);
    }
    return fabric_->now() - began;
  }

  // All programs at the same time.
  TimeNs get_all(const Hosts& hosts) {
    const std::size_t programs = hosts.size();
    std::vector<std::vector<wire::RegionId>> segments(programs);
    for (std::size_t program = 0; program < programs; ++program)
      for (std::uint64_t i = 0; i < at_once; ++i)
        segments[program].push_back(
            value_of(hosts[program]->end().allocate(2 * rows * 8, fabric_->now() + patience_ns)));
    const TimeNs began = fabric_->now(), until = began + patience_ns;
    for (std::uint64_t first = 0; first < frames; first += at_once) {
      std::vector<std::vector<std::uint64_t>> tickets(programs);
      for (std::uint64_t i = 0; i < at_once; ++i)
        for (std::size_t program = 0; program < programs; ++program)
          tickets[program].push_back(
              value_of(hosts[program]->want(row_of((program + 1) % programs, first + i), "x", until)));
      for (std::uint64_t i = 0; i < at_once; ++i)
        for (std::size_t program = 0; program < programs; ++program) {
          const wire::Got got = value_of(hosts[program]->answer(tickets[program][i], until));
          EXPECT_EQ(got.how, wire::Got::How::needs_segment);
          tickets[program][i] = value_of(hosts[program]->want_pushed(got.lease, segments[program][i], until));
        }
      for (std::uint64_t i = 0; i < at_once; ++i)
        for (std::size_t program = 0; program < programs; ++program)
          EXPECT_GE(value_of(hosts[program]->answer(tickets[program][i], until)).length, rows * 8);
    }
    return fabric_->now() - began;
  }

  template <class Value>
  static Value value_of(Result<Value> result) {
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return result ? *result : Value{};
  }

  std::unique_ptr<SimHost> connect(std::vector<Column>& columns, const std::string& name) {
    const unsigned core = *agent::least_loaded(choices_);
    ++choices_[core].connections;
    ++choices_[core].given;
    const wire::ChannelLayout layout{.request_slots = 1024, .reply_slots = 256, .streams_max = 4};
    auto connected = cluster_->connect_program(core, name, layout);
    EXPECT_TRUE(connected);
    auto host = std::make_unique<SimHost>(fabric_, std::move(connected->link), layout);
    const Status opened =
        host->open(name, "local:/p", 1, rows, wire::Destination::ipc_page, {}, 0, 0, fabric_->now() + patience_ns);
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    Column column;
    column.values.resize(rows, static_cast<std::int64_t>(core));
    auto range = host->end().announce(column.values.data(), rows * 8);
    EXPECT_TRUE(range);
    column.range = *range;
    columns.push_back(std::move(column));
    return host;
  }

  static std::string row_of(std::size_t program, std::uint64_t frame) {
    return fmt::format("rank{}-step{}", program, frame);
  }

  // A program on one core finds what those on the others have put.
  void check_found(SimHost& host, std::size_t programs) {
    for (std::size_t program = 0; program < programs; ++program) {
      const auto bytes = host.get(row_of(program, 0), "x", 0);
      EXPECT_TRUE(bytes) << (bytes ? "" : bytes.error().message);
    }
  }

  TimeNs cost(std::size_t core) {
    const agent::Dispatcher& dispatcher = cluster_->dispatcher(core);
    const mover::MoverCounters& moved = dispatcher.mover().counters();
    const pool::PoolsCounters pools = dispatcher.pools().counters();
    // Bytes of an object that another core gets count at both; only that one copies them.
    std::uint64_t bytes = moved.bytes + pools.served_bytes - pools.served_gets * rows * 8;
    std::uint64_t handled = moved.frames + pools.served_puts;
    for (const auto& each : dispatcher.channels()) {
      bytes += each.counters.bytes_pushed;
      handled += each.counters.pushes;
    }
    const std::uint64_t requests = pools.remote_puts + pools.served_puts + pools.remote_gets + pools.served_gets;
    const TimeNs all = static_cast<TimeNs>(static_cast<double>(static_cast<std::int64_t>(bytes)) * ns_of_byte) +
                       static_cast<TimeNs>(handled) * ns_of_frame + static_cast<TimeNs>(requests) * ns_of_request;
    const TimeNs more = std::max<TimeNs>(all - spent_[core], 0);
    spent_[core] += more;
    return more;
  }

  Work work_;
  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::vector<TimeNs> spent_;  // of each core, on all that is counted so far
  std::vector<agent::CoreChoice> choices_;
  std::unique_ptr<SimCluster> cluster_;
};

void expect_scaling(Work work) {
  std::map<std::pair<std::size_t, std::size_t>, double> rates;
  for (const std::size_t cores : {1, 2, 8})
    for (const std::size_t programs : {1, 2, 4, 8}) {
      Machine machine(cores, work);
      const double rate = rates[{cores, programs}] = machine.rate(programs);
      ASSERT_FALSE(testing::Test::HasFailure()) << cores << " cores, " << programs << " programs";
      testing::Test::RecordProperty(fmt::format("frames_per_s_{}_cores_{}_programs", cores, programs),
                                    fmt::format("{:.0f}", rate));
      for (const std::uint64_t each : machine.spread())
        EXPECT_LE(each, (programs + cores - 1) / cores) << cores << " cores, " << programs << " programs";
    }
  const auto ratio = [&](std::size_t cores, std::size_t programs, std::size_t than_cores, std::size_t than_programs) {
    return rates[{cores, programs}] / rates[{than_cores, than_programs}];
  };
  EXPECT_NEAR(ratio(1, 8, 1, 1), 1, 0.2) << "one core has one rate, whatever the number of programs";
  // An object whose row belongs to another core is copied twice: 1.5 times on average with 2 cores, 1.875 times with 8.
  EXPECT_GE(ratio(2, 8, 1, 8), 1.15);
  EXPECT_GE(ratio(8, 8, 1, 8), 3.2);
  EXPECT_GE(ratio(8, 8, 8, 1), 3.2) << "the rate grows with the programs";
  EXPECT_GE(ratio(8, 4, 8, 1), 2);
}

TEST(CoresSimulation, RatesScaleWithProgramsAndCores) { expect_scaling(Work::sends); }

TEST(CoresSimulation, RatesOfGetsScaleWithProgramsAndCores) { expect_scaling(Work::gets); }

}  // namespace
}  // namespace offpath::sim
