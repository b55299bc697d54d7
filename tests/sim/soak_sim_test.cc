// An hour of a mixed load in virtual time, at small scale. Programs come to two agents that share pools, put steps of
// two ranks, read, wait for what never comes, list, spill, sift, run functions and drop; some are killed in the middle
// of it, and now and then the agents are cut off from each other. Whatever programs did: once they have left, the
// agents hold what they held before, and so does this process (mappings, descriptors, heap).
//
// A seed is an hour; ./dev test --long takes ten of them. Seeds: seeds.h.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "testing/pool/memory_store.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_host.h"
#include "wire/messages/sift_messages.h"
#include "wire/messages/task_messages.h"

namespace offpath::sim {
namespace {

constexpr TimeNs hour_ns = 3600 * second_ns, between_visits_ns = 15 * second_ns, patience_ns = 60 * second_ns;
constexpr std::size_t members = 2;
constexpr int warm_up_visits = 24;  // until one-time allocations are done: pools up to their limit above all
constexpr std::uint64_t rows_max = 500, steps = 3, pools_max = 12;

// The resources that an agent holds, by name.
using Held = std::map<std::string, std::uint64_t>;

Held held_by(const agent::Dispatcher& dispatcher) {
  const service::BufferCacheCounters buffers = dispatcher.buffers().counters();
  const mover::MoverCounters mover = dispatcher.mover().counters();
  const pool::FrameTableCounters table = dispatcher.pools().table().counters();
  const pool::PoolsCounters pools = dispatcher.pools().counters();
  const pool::ComputeCounters computes = dispatcher.computes().counters();
  const pool::QueryServiceCounters queries = dispatcher.queries().counters();
  const task::TaskCounters tasks = dispatcher.tasks().counters();
  const task::MessageCounters messages = dispatcher.tasks().messages().counters();
  return {{"channels", dispatcher.channels().size()},
          {"buffer bytes", dispatcher.buffers().used_bytes()},
          {"buffers", buffers.used_buffers},
          {"buffer bytes that leave", buffers.leaving_bytes},
          {"streams", mover.streams_open},
          {"operations", mover.operations},
          {"promised bytes", mover.promised_bytes},
          {"frames", table.frames},
          {"frame bytes", table.bytes},
          {"key bytes", table.key_bytes},
          {"waiting gets", table.waiting},
          {"leases", table.leases},
          {"waiting puts", pools.puts_under_way},
          {"waiting pulls", pools.pulls_waiting},
          {"waiting moves", pools.moves_waiting},
          {"waiting removals", pools.removals_waiting},
          {"waiting comparisons", pools.comparisons_waiting},
          {"reserved bytes", dispatcher.pools().reserved()},
          {"sift pools", dispatcher.sifts().pools().size()},
          {"computations", computes.waiting + computes.calling},
          {"queries", queries.open + queries.running},
          {"sessions", tasks.sessions},
          {"tasks", tasks.waiting + tasks.running},
          {"resident bytes", tasks.resident_bytes + tasks.target_bytes},
          {"lanes", messages.lanes},
          {"messages", messages.held}};
}

// The resources of this process: both agents, and no program by then.
Held held_by_process() {
  std::uint64_t mappings = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) mappings += line.find("memfd:") != std::string::npos ? 1 : 0;
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return {{"mappings", mappings}, {"descriptors", static_cast<std::uint64_t>(std::distance(begin(files), end(files)))}};
}

std::string differences(const Held& before, const Held& now) {
  std::string text;
  for (const auto& [name, count] : now)
    if (before.at(name) != count) text += fmt::format("\n  {}: {}, before {}", name, count, before.at(name));
  return text;
}

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), fabric_(std::make_shared<link::LoopbackFabric>(random_.next())) {
    SimCluster::Options options;
    options.members = members;
    options.dispatcher.mover.memory_bytes_max = 16ull << 20;
    options.dispatcher.mover.window_bytes = 1 << 20;
    options.dispatcher.buffers.cached_bytes_max = 0;  // so that mapped memory is in use
    options.dispatcher.buffers.huge_pages = false;
    options.dispatcher.pools.table.user_pools_max = pools_max;
    options.dispatcher.channels.idle_before_sleep_ns = 20 * microsecond_ns;
    options.group.membership.dead_after_ns = second_ns;
    options.tick_ns = 10 * millisecond_ns;
    options.round_ns = options.between_rounds_ns = 50 * microsecond_ns;
    options.links.silence_ns = second_ns;
    options.links.welcome.memory_bytes_max = options.dispatcher.mover.memory_bytes_max;
    for (std::size_t place = 0; place < members; ++place) {
      disks_.push_back(std::make_shared<pool::MemoryStore>());
      options.disks.push_back(disks_.back());
    }
    cluster_ = std::make_unique<SimCluster>(fabric_, options);
    for (std::size_t place = 0; place < members; ++place) cluster_->dispatcher(place).serve_plugins(functions());
  }

  void run() {
    ASSERT_TRUE(cluster_->wait_for_agreement(patience_ns)) << "the members have not found each other";
    const TimeNs end = fabric_->now() + hour_ns;
    std::size_t heap = 0;
    for (; fabric_->now() < end && !testing::Test::HasFailure(); ++visits_) {
      const TimeNs next = fabric_->now() + between_visits_ns;
      visit();
      if (testing::Test::HasFailure()) return;
      if (random_.chance(0.1)) cut();
      if (fabric_->now() < next) cluster_->run_for(next - fabric_->now());
      if (visits_ < warm_up_visits) continue;
      compare();
      if (visits_ == 2 * warm_up_visits) heap = ::mallinfo2().uordblks;
    }
    if (testing::Test::HasFailure()) return;
    // It goes up and down by 350 KiB: histories of bounded length (recent drops, replaced writers) and containers that
    // keep their capacity. Two more KiB after each visit are too much.
    EXPECT_LE(::mallinfo2().uordblks, heap + heap_growth_max) << "after " << visits_ << " visits";
    EXPECT_GT(visits_, 100);
    EXPECT_GT(killed_, visits_ / 10);
    EXPECT_GT(ran_, static_cast<std::uint64_t>(visits_));
  }

 private:
  static constexpr std::size_t heap_growth_max = 512 << 10;
  struct Program {
    std::unique_ptr<SimHost> host;
    std::shared_ptr<link::LoopbackFate> fate;
    std::vector<Column> columns;
  };

  [[nodiscard]] TimeNs deadline() const { return fabric_->now() + patience_ns; }

  // The place of plug-ins: each call ends a little later, well.
  agent::CallFunctions functions() {
    return {[this](plugin::Call call, TimeNs, agent::CallFunctions::Done done) -> Result<plugin::CallNumber> {
              const TimeNs due = fabric_->now() + 100 * microsecond_ns;
              const auto number = next_call_++;
              calls_.insert(number);
              const auto kept = std::make_shared<plugin::Call>(std::move(call));  // its memory stays until its end
              fabric_->at(due, [this, kept, done, number, due] {
                if (calls_.erase(number) == 0) return;
                ++ran_;
                done(plugin::Outputs(), due);
              });
              return number;
            },
            [this](plugin::CallNumber number, TimeNs) { calls_.erase(number); }};
  }

  void connect(Program& program, std::size_t place, std::uint32_t streams) {
    const wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 256, .streams_max = streams};
    auto connected = cluster_->connect_program(place, "program", layout);
    ASSERT_TRUE(connected) << connected.error().message;
    program.host = std::make_unique<SimHost>(fabric_, std::move(connected->link), layout);
    program.fate = std::move(connected->fate);
    for (int i = 0; i < 2; ++i) {
      Column column;
      for (std::uint64_t row = 0; row < rows_max; ++row) column.values.push_back(static_cast<std::int64_t>(row));
      auto range = program.host->end().announce(column.values.data(), rows_max * 8);
      ASSERT_TRUE(range) << range.error().message;
      column.range = *range;
      program.columns.push_back(std::move(column));
    }
  }
  void open(Program& program, const std::string& pool, std::uint32_t ranks = 0, std::uint32_t rank = 0) {
    // Another name each time: that a program has gone is not known at once.
    const Status opened = program.host->open(fmt::format("stream{}", ++streams_), pool, 2, rows_max,
                                             wire::Destination::ipc_page, {}, ranks, rank, deadline());
    ASSERT_TRUE(opened) << pool << ": " << opened.error().message;
  }
  std::uint64_t send(Program& program, std::uint64_t step, const std::string& column) {
    const auto ticket =
        program.host->send(program.columns, 1 + random_.below(rows_max), row_of(step), column, deadline());
    EXPECT_TRUE(ticket) << ticket.error().message;
    return ticket ? *ticket : 0;
  }
  void end_step(Program& program, std::uint64_t step) {
    std::vector<std::byte> payload;
    wire::encode(wire::StepEnd{program.host->stream(), row_of(step)}, payload);
    channel::HostEnd& end = program.host->end();
    auto posting = end.begin();
    const auto ticket =
        end.post_data(posting, wire::EntryKind::step_end, program.host->stream(), payload, 0, 0, {}, deadline());
    EXPECT_TRUE(ticket) << ticket.error().message;
  }
  void wait_stored(Program& program, std::uint64_t ticket) {
    const Status stored =
        program.host->end().wait(program.host->stream(), ticket, channel::Progress::stored, deadline());
    EXPECT_TRUE(stored) << stored.error().message;
  }
  template <class Message>
  Result<channel::Reply> ask(Program& program, wire::EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    return program.host->end().call(kind, payload, deadline());
  }
  std::uint64_t drop(Program& program, const std::string& pool) {
    const auto reply = ask(program, wire::EntryKind::pool_drop, wire::PoolDrop{pool, "*", "*"});
    EXPECT_TRUE(reply) << pool << ": " << reply.error().message;
    wire::Done done{};
    return reply && wire::decode(reply->payload, done) ? done.value : 0;
  }
  // Asked, and not waited for: the program leaves first.
  void leave_waiting(Program& program, const std::string& pool) {
    std::vector<std::byte> payload;
    wire::encode(wire::PoolGet{pool, "never", "", never}, payload);
    EXPECT_TRUE(program.host->end().post(wire::EntryKind::pool_get, payload, deadline()));
  }
  [[nodiscard]] std::string row_of(std::uint64_t step) const { return fmt::format("visit{}step{:06}", visits_, step); }

  void visit() {
    for (const auto& part : {&World::put_steps, &World::fill_disks, &World::make_tracks, &World::run_functions})
      if (!testing::Test::HasFailure()) (this->*part)();
  }

  // Of two ranks at two agents, one of which may die before its step has ended.
  void put_steps() {
    const std::string pool = "hash:/steps?replicas=2";
    const bool kills = random_.chance(0.3);
    std::vector<Program> programs(members);
    for (std::size_t rank = 0; rank < members; ++rank) {
      connect(programs[rank], rank, 1);
      if (testing::Test::HasFatalFailure()) return;
      open(programs[rank], pool, members, static_cast<std::uint32_t>(rank));
      if (testing::Test::HasFatalFailure()) return;
    }
    for (std::uint64_t step = 0; step < steps; ++step)
      for (std::size_t rank = 0; rank < members; ++rank) {
        const std::uint64_t ticket = send(programs[rank], step, fmt::format("rank{}", rank));
        if (kills && step == steps - 1 && rank == 1) {
          leave_waiting(programs[1], "hash:/steps");
          cluster_->run_for(static_cast<TimeNs>(random_.below(50 * microsecond_ns)));
          programs[1].fate->kill_host();
          ++killed_;
          continue;
        }
        wait_stored(programs[rank], ticket);
        end_step(programs[rank], step);
      }
    EXPECT_TRUE(programs[0].host->get(row_of(0), "rank1", 5 * second_ns));
    const auto absent = programs[0].host->get("absent", "", 20 * millisecond_ns);
    EXPECT_EQ(absent.error().code, Error::timeout);
    const auto listed = ask(programs[0], wire::EntryKind::pool_list, wire::PoolList{"hash:/steps", "*", "*", 0});
    EXPECT_TRUE(listed) << listed.error().message;
    leave_waiting(programs[0], "hash:/steps");
    EXPECT_GE(drop(programs[0], "hash:/steps"), members * (steps - 1));
  }

  // More than the pool's budget; and a pool that no other visit names.
  void fill_disks() {
    Program program;
    connect(program, random_.below(members), 1);
    if (testing::Test::HasFatalFailure()) return;
    open(program, "local:/cold?spill=on&budget=16KiB");
    if (testing::Test::HasFatalFailure()) return;
    for (std::uint64_t step = 0; step < 8; ++step) wait_stored(program, send(program, step, ""));
    for (std::uint64_t step = 0; step < 8; ++step) EXPECT_TRUE(program.host->get(row_of(step), "", second_ns)) << step;
    EXPECT_EQ(drop(program, "local:/cold"), 8u);
    const Status closed = program.host->end().close_stream(program.host->stream(), deadline());
    EXPECT_TRUE(closed) << closed.error().message;
    const std::string once = fmt::format("local:/once{}", visits_);
    open(program, once);
    wait_stored(program, send(program, 0, ""));
    EXPECT_EQ(drop(program, once), 1u);
  }

  void make_tracks() {
    std::vector<Program> programs(members);
    for (std::size_t place = 0; place < members; ++place) {
      connect(programs[place], place, 1);
      if (testing::Test::HasFatalFailure()) return;
      open(programs[place], "sift:/tracks?key=c0&stages=1&fanout=4&threshold=16KiB&age=20ms&budget=1MiB");
      if (testing::Test::HasFatalFailure()) return;
    }
    for (std::uint64_t step = 0; step < steps; ++step)
      for (Program& program : programs) wait_stored(program, send(program, step, ""));
    const auto flushed = ask(programs[0], wire::EntryKind::sift_flush, wire::SiftFlush{patience_ns, "sift:/tracks"});
    EXPECT_TRUE(flushed) << flushed.error().message;
    (void)drop(programs[0], "sift:/tracks");
  }

  // The program leaves while the last of them is under way, and does not close its session.
  void run_functions() {
    Program program;
    connect(program, random_.below(members), 1);
    if (testing::Test::HasFatalFailure()) return;
    channel::HostEnd& end = program.host->end();
    const auto lines = end.allocate(64 * wire::task_line_bytes, deadline());
    ASSERT_TRUE(lines) << lines.error().message;
    const auto opened =
        ask(program, wire::EntryKind::task_open,
            wire::TaskOpen{wire::task_any_lane,
                           1,
                           {.region = *lines, .generation = 0, .offset = 0, .length = 64 * wire::task_line_bytes}});
    ASSERT_TRUE(opened) << opened.error().message;
    wire::Done session{};
    ASSERT_TRUE(wire::decode(opened->payload, session));
    for (std::uint32_t task = 0; task < 4; ++task) {
      wire::TaskRun run{};
      run.session = session.value;
      run.line = task;
      run.plugin = "p";
      run.function = "f";
      const Column& column = program.columns[task % 2];
      run.inputs.push_back(
          {{.region = column.range.region, .generation = column.range.generation, .offset = 0, .length = rows_max * 8},
           rows_max * 8,
           task + 1,
           0,
           0,
           0,
           "x"});
      if (task < 3) {
        const auto ran = ask(program, wire::EntryKind::task_run, run);
        EXPECT_TRUE(ran) << ran.error().message;
        continue;
      }
      std::vector<std::byte> payload;
      wire::encode(run, payload);
      EXPECT_TRUE(end.post(wire::EntryKind::task_run, payload, deadline()));
    }
  }

  // For longer than it takes to be thought dead, or not.
  void cut() {
    cluster_->set_sides({0, 1});
    cluster_->run_for(static_cast<TimeNs>(random_.below(4 * second_ns)));
    cluster_->set_sides({0, 0});
    ASSERT_TRUE(cluster_->wait_for_agreement(patience_ns));
  }

  [[nodiscard]] Held held() {
    Held all = held_by_process();
    all.emplace("calls", calls_.size());
    for (std::size_t place = 0; place < members; ++place) {
      all.emplace(fmt::format("files of {}", place), disks_[place]->files.size());
      for (const auto& [name, count] : held_by(cluster_->dispatcher(place)))
        all.emplace(fmt::format("{} of {}", name, place), count);
    }
    return all;
  }
  void compare() {
    if (baseline_.empty()) baseline_ = held();
    const Held now = held();
    for (std::size_t place = 0; place < members; ++place)  // empty ones leave when others need their place
      EXPECT_LE(cluster_->dispatcher(place).pools().table().counters().pools, pools_max);
    EXPECT_EQ(differences(baseline_, now), "") << "after visit " << visits_;
  }

  link::SeededRandom random_;
  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::vector<std::shared_ptr<pool::MemoryStore>> disks_;
  std::unique_ptr<SimCluster> cluster_;
  Held baseline_;
  std::set<plugin::CallNumber> calls_;
  plugin::CallNumber next_call_ = 1;
  std::uint64_t ran_ = 0, streams_ = 0;
  int visits_ = 0, killed_ = 0;
};

TEST(SoakSimulation, AnHourLeavesNothingBehind) {
  each_seed(std::getenv("OFFPATH_LONG") != nullptr ? 10 : 1, [](std::uint64_t seed) {
    World world(seed);
    world.run();
  });
}

}  // namespace
}  // namespace offpath::sim
