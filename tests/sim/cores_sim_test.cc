// Rates of an agent of several cores in virtual time, where work takes its core so long as a real one: programs are
// spread over the cores as the agent does it, each sends all it has to one local pool, and the time counts until
// everything is stored.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "agent/cores/core_loads.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_host.h"

namespace offpath::sim {
namespace {

// How long a core works: reads at 5 GB/s, and the handling of a frame and of a request between cores.
constexpr double ns_of_byte = 0.2;
constexpr TimeNs ns_of_frame = 2 * microsecond_ns, ns_of_request = microsecond_ns;
constexpr std::uint64_t rows = 8192;  // of 8 bytes
constexpr std::uint64_t frames = 96;  // of each program
constexpr TimeNs patience_ns = 60 * second_ns;

class Machine {
 public:
  explicit Machine(std::size_t cores) : fabric_(std::make_shared<link::LoopbackFabric>(cores)), spent_(cores) {
    SimCluster::Options options;
    options.members = cores;
    options.one_agent = true;
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
    const TimeNs began = fabric_->now();
    std::vector<std::uint64_t> last(programs);
    for (std::size_t program = 0; program < programs; ++program)
      for (std::uint64_t frame = 0; frame < frames; ++frame) {
        const auto ticket =
            hosts[program]->send(columns[program], rows, row_of(program, frame), "x", began + patience_ns);
        EXPECT_TRUE(ticket) << (ticket ? "" : ticket.error().message);
        if (ticket) last[program] = *ticket;
      }
    for (std::size_t program = 0; program < programs; ++program) {
      const Status stored = hosts[program]->end().wait(hosts[program]->stream(), last[program],
                                                       channel::Progress::stored, began + patience_ns);
      EXPECT_TRUE(stored) << (stored ? "" : stored.error().message);
    }
    const double seconds = static_cast<double>(fabric_->now() - began) / second_ns;
    check_found(*hosts.front(), programs);
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
  struct Spent {
    std::uint64_t bytes = 0, frames = 0, requests = 0;
  };

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
    const Spent now{moved.bytes + pools.served_bytes, moved.frames + pools.served_puts,
                    pools.remote_puts + pools.served_puts};
    const Spent before = std::exchange(spent_[core], now);
    return static_cast<TimeNs>(static_cast<double>(now.bytes - before.bytes) * ns_of_byte) +
           static_cast<TimeNs>(now.frames - before.frames) * ns_of_frame +
           static_cast<TimeNs>(now.requests - before.requests) * ns_of_request;
  }

  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::vector<Spent> spent_;
  std::vector<agent::CoreChoice> choices_;
  std::unique_ptr<SimCluster> cluster_;
};

TEST(CoresSimulation, RatesScaleWithProgramsAndCores) {
  std::map<std::pair<std::size_t, std::size_t>, double> rates;
  for (const std::size_t cores : {1, 2, 8})
    for (const std::size_t programs : {1, 2, 4, 8}) {
      Machine machine(cores);
      const double rate = rates[{cores, programs}] = machine.rate(programs);
      ASSERT_FALSE(testing::Test::HasFailure()) << cores << " cores, " << programs << " programs";
      RecordProperty(fmt::format("frames_per_s_{}_cores_{}_programs", cores, programs), fmt::format("{:.0f}", rate));
      for (const std::uint64_t each : machine.spread())
        EXPECT_LE(each, (programs + cores - 1) / cores) << cores << " cores, " << programs << " programs";
    }
  const auto ratio = [&](std::size_t cores, std::size_t programs, std::size_t than_cores, std::size_t than_programs) {
    return rates[{cores, programs}] / rates[{than_cores, than_programs}];
  };
  EXPECT_NEAR(ratio(1, 8, 1, 1), 1, 0.2) << "one core has one rate, whatever the number of programs";
  // A frame whose row belongs to another core is read twice: 1.5 times on average with 2 cores, 1.875 times with 8.
  EXPECT_GE(ratio(2, 8, 1, 8), 1.15);
  EXPECT_GE(ratio(8, 8, 1, 8), 3.2);
  EXPECT_GE(ratio(8, 8, 8, 1), 3.2) << "the rate grows with the programs";
  EXPECT_GE(ratio(8, 4, 8, 1), 2);
}

}  // namespace
}  // namespace offpath::sim
