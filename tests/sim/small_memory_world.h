// Agents with little memory, and programs of theirs that fill it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_host.h"
#include "wire/messages/stream_messages.h"

namespace offpath::sim {

[[nodiscard]] inline SimCluster::Options small_memory(std::size_t members, std::uint64_t memory_bytes) {
  SimCluster::Options options;
  options.members = members;
  options.dispatcher.mover.memory_bytes_max = memory_bytes;
  options.dispatcher.mover.window_bytes = memory_bytes;
  options.dispatcher.channels.idle_before_sleep_ns = 20 * microsecond_ns;
  options.group.membership.dead_after_ns = second_ns;
  options.links.mapped = true;
  options.links.welcome.memory_bytes_max = memory_bytes;
  return options;
}

class SmallMemoryWorld {
 public:
  static constexpr TimeNs patience_ns = 120 * second_ns;
  struct Program {
    std::unique_ptr<SimHost> host;
    std::vector<Column> columns;
    std::vector<std::uint64_t> tickets;  // of its sends
  };

  SmallMemoryWorld(std::uint64_t seed, const SimCluster::Options& options)
      : random_(seed),
        fabric_(std::make_shared<link::LoopbackFabric>(random_.next())),
        cluster_(std::make_unique<SimCluster>(fabric_, options)) {}

  // With a stream into the pool, and columns of `rows_max` rows, whose values are drawn.
  [[nodiscard]] Status add_program(std::size_t place, const std::string& pool, std::uint32_t columns,
                                   std::uint64_t rows_max) {
    const wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 256, .streams_max = 1};
    const std::string name = fmt::format("program{}", programs.size());
    OFP_ASSIGN(auto connected, cluster_->connect_program(place, name, layout));
    Program program;
    program.host = std::make_unique<SimHost>(fabric_, std::move(connected.link), layout);
    OFP_TRY(program.host->open(name, pool, columns, rows_max, wire::Destination::ipc_page, {}, 0, 0, deadline()));
    program.columns.resize(columns);
    for (Column& column : program.columns) {
      column.values.resize(rows_max);
      for (std::int64_t& value : column.values) value = static_cast<std::int64_t>(random_.below(10'000));
      OFP_ASSIGN(column.range, program.host->end().announce(column.values.data(), rows_max * 8));
    }
    programs.push_back(std::move(program));
    return {};
  }
  [[nodiscard]] TimeNs deadline() const { return fabric_->now() + patience_ns; }

  link::SeededRandom random_;
  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::unique_ptr<SimCluster> cluster_;
  std::vector<Program> programs;
};

}  // namespace offpath::sim
