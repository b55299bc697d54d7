// Pools over the members of a group in virtual time, under seeded faults.
//
// Each seed draws a world (how many members, how many copies of a row, how slow and of which kind the links are) and
// then what happens: programs at any member put, read each other's objects, list and drop; members are killed and
// started again, with everything they held. What must hold whatever happens:
//   - what was stored is found, from every member, with the bytes it had, as long as fewer owners die at a time than
//     there are copies
//   - what was dropped is not found, and a list has each object once
//   - nobody waits beyond his deadline, and no memory is lost
// Half of the worlds have disks that fail now and then, and the pool is durable: there any member may die at any time
// between two puts, and its rows are found when it is back.
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "frame/layout.h"
#include "frame/parse.h"
#include "testing/pool/memory_store.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_host.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"

namespace offpath::sim {
namespace {

using link::SeededRandom;

constexpr std::uint64_t rows_max = 8000;  // of 8 bytes: beyond the copied size, so that larger batches are pulled
constexpr TimeNs patience_ns = 60 * second_ns;

struct Program {
  std::unique_ptr<SimHost> host;
  std::size_t place = 0;
  std::vector<Column> columns;
  bool over = false;
};

// Members that were killed: in worlds where others have copies, and in worlds with disks.
struct Killed {
  std::uint64_t with_copies = 0, with_disks = 0;
};

class World {
 public:
  // `one_agent`: the members are cores of one agent, and the pool is its local one.
  World(std::uint64_t seed, std::size_t members, Killed& killed, bool one_agent = false)
      : killed_(killed), random_(seed), fabric_(std::make_shared<link::LoopbackFabric>(random_.next())) {
    SimCluster::Options options;
    options.members = members;
    options.dispatcher.mover.memory_bytes_max = 64ull << 20;
    options.dispatcher.mover.window_bytes = 1 << 20;
    options.dispatcher.channels.idle_before_sleep_ns = 20 * microsecond_ns;
    options.group.membership.dead_after_ns = second_ns;
    options.links.mapped = random_.chance(0.5);
    options.links.staged = random_.chance(0.3) && options.links.mapped;
    options.links.welcome.memory_bytes_max = options.dispatcher.mover.memory_bytes_max;
    if (random_.chance(0.3)) options.links.operation = {1'000, 100'000, 0.05, 2'000'000};
    copies_ = one_agent ? 1 : 1 + random_.below(3);
    options.one_agent = one_agent;
    pool_ = one_agent ? "local:/p" : "hash:/p";
    long_keys_ = random_.chance(0.3);
    durable_ = random_.chance(0.5);
    for (std::size_t place = 0; durable_ && place < members; ++place) {
      const auto disk = std::make_shared<pool::MemoryStore>();
      disk->fails_writing = [this] { return random_.chance(0.05); };
      options.disks.push_back(disk);
    }
    cluster_ = std::make_unique<SimCluster>(fabric_, options);
    made_ = fmt::format("{}?replicas={}", pool_, copies_);
    if (durable_) made_ += one_agent ? "&spill=durable&budget=2MiB" : "&spill=durable&budget=256KiB";
    // Programs send from segments where ranges cannot be read: src/host does that, and is not here.
    staged_ = options.links.staged;
  }

  void run(std::uint64_t actions) {
    ASSERT_TRUE(cluster_->wait_for_agreement(patience_ns)) << "the members have not found each other";
    for (std::size_t place = 0; place < cluster_->size(); ++place) add_program(place);
    for (std::uint64_t i = 0; i < actions && !testing::Test::HasFailure(); ++i) act();
    check_all();
  }

 private:
  [[nodiscard]] TimeNs deadline() const { return fabric_->now() + patience_ns; }

  void add_program(std::size_t place) {
    const wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 256, .streams_max = 4};
    const std::string name = fmt::format("program{}", programs_.size());
    auto connected = cluster_->connect_program(place, name, layout);
    ASSERT_TRUE(connected) << connected.error().message;
    Program program;
    program.place = place;
    program.host = std::make_unique<SimHost>(fabric_, std::move(connected->link), layout);
    const Status opened =
        program.host->open(name, made_, 1, rows_max, wire::Destination::ipc_page, {}, 0, 0, deadline());
    ASSERT_TRUE(opened) << opened.error().message;
    Column column;
    if (staged_) {
      auto segment = program.host->end().allocate(rows_max * 8, deadline());
      ASSERT_TRUE(segment) << segment.error().message;
      column.segment = reinterpret_cast<std::int64_t*>(program.host->end().segment(*segment).data());
      column.range.region = *segment;
    } else {
      column.values.resize(rows_max);
      auto range = program.host->end().announce(column.values.data(), rows_max * 8);
      ASSERT_TRUE(range) << range.error().message;
      column.range = *range;
    }
    program.columns.push_back(std::move(column));
    programs_.push_back(std::move(program));
  }

  Program* some_program() {
    std::vector<Program*> running;
    for (Program& program : programs_)
      if (!program.over) running.push_back(&program);
    return running.empty() ? nullptr : running[random_.below(running.size())];
  }

  void act() {
    Program* program = some_program();
    if (program == nullptr) return add_program(some_member(true));
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return put(*program);
      case 4:
      case 5:
        return read_one(*program);
      case 6:
        return drop_one(*program);
      case 7:
        return list(*program);
      case 8:
        return cluster_->run_for(static_cast<TimeNs>(random_.below(50 * millisecond_ns)));
      case 9:
        if (durable_) return kill_and_start();
        if (copies_ > 1 && random_.chance(0.5)) kill_one();
        return;
      case 10:
      case 11:
        return start_one();
    }
  }

  std::size_t some_member(bool runs) {
    std::vector<std::size_t> fitting;
    for (std::size_t place = 0; place < cluster_->size(); ++place)
      if (cluster_->runs(place) == runs) fitting.push_back(place);
    return fitting.empty() ? cluster_->size() : fitting[random_.below(fitting.size())];
  }

  // In some worlds most are longer than a ring's entry, each always the same.
  [[nodiscard]] std::string row_of(std::uint64_t number) const {
    std::string row = fmt::format("step{}", number);
    if (long_keys_) row.append(number * 7919 * 13 % (wire::key_bytes_max - row.size() + 1), 'k');
    return row;
  }

  void put(Program& program) {
    const std::uint64_t rows = random_.chance(0.5) ? random_.below(64) : random_.below(rows_max + 1);
    Column& column = program.columns.front();
    std::int64_t* values = column.segment != nullptr ? column.segment : column.values.data();
    for (std::uint64_t i = 0; i < rows; ++i) values[i] = static_cast<std::int64_t>(random_.next());
    const std::string row = row_of(random_.below(30));
    auto ticket = program.host->send(program.columns, rows, row, "c", deadline());
    ASSERT_TRUE(ticket) << ticket.error().message;
    const Status stored =
        program.host->end().wait(program.host->stream(), *ticket, channel::Progress::stored, deadline());
    ASSERT_TRUE(stored) << stored.error().message;
    stored_[row] = std::vector<std::int64_t>(values, values + rows);
  }

  void read_one(Program& program) {
    if (stored_.empty()) return;
    auto at = stored_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random_.below(stored_.size())));
    read(program, at->first, at->second);
  }

  void read(Program& program, const std::string& row, const std::vector<std::int64_t>& values) {
    auto bytes = program.host->get(row, "c", 5 * second_ns);
    ASSERT_TRUE(bytes) << brief(row) << " of " << copies_ << " copies, read at " << SimCluster::name_of(program.place)
                       << ": " << bytes.error().message;
    auto view = frame::parse_frame(*bytes);
    ASSERT_TRUE(view) << view.error().message;
    auto schema = frame::read_schema(*bytes, *view);
    ASSERT_TRUE(schema) << schema.error().message;
    auto layout = frame::make_layout(*schema);
    std::int64_t rows = 0;
    std::vector<frame::NodeShape> nodes;
    std::vector<frame::BufferPlace> buffers;
    ASSERT_TRUE(frame::read_batch(*layout, *bytes, *view, rows, nodes, buffers));
    ASSERT_EQ(static_cast<std::size_t>(rows), values.size()) << brief(row);
    const frame::BufferPlace& column = buffers[layout->nodes[layout->columns[0]].buffer + 1];
    if (rows > 0) {
      ASSERT_EQ(std::memcmp(bytes->data() + column.offset, values.data(), values.size() * 8), 0) << brief(row);
    }
  }

  Result<channel::Reply> call(Program& program, wire::EntryKind kind, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    return program.host->end().call(kind, payload, deadline());
  }

  // Also while members come and go, and rows are under way between them: dropped objects stay dropped (quiet() counts
  // objects). With disks a member that was away has it again, so there only when all is at rest.
  void drop_one(Program& program) {
    const bool rest = durable_ || random_.chance(0.3);
    if (stored_.empty() || (rest && !quiet())) return;
    auto at = stored_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random_.below(stored_.size())));
    Result<channel::Reply> reply = call(program, wire::EntryKind::pool_drop, wire::PoolDrop{pool_, at->first, "*"});
    for (int again = 0; !reply && !rest && again < 100;
         ++again) {  // a dead member was asked: an error, and the request is repeated
      cluster_->run_for(100 * millisecond_ns);
      reply = call(program, wire::EntryKind::pool_drop, wire::PoolDrop{pool_, at->first, "*"});
    }
    ASSERT_TRUE(reply) << reply.error().message;
    wire::Done done{};
    ASSERT_TRUE(wire::decode(reply->payload, done));
    if (rest) {
      EXPECT_EQ(done.value, 1u) << brief(at->first);
    }
    const std::string row = at->first;
    stored_.erase(at);
    auto bytes = program.host->get(row, "c", 0);
    ASSERT_FALSE(bytes) << brief(row) << " was dropped";
    EXPECT_EQ(bytes.error().code, Error::not_found) << bytes.error().message;
  }

  void list(Program& program) {
    if (stored_.empty() || !quiet()) return;
    std::vector<std::string> rows, expected;
    wire::Listed listed{true, {}};
    while (listed.more) {
      auto reply = call(program, wire::EntryKind::pool_list, wire::PoolList{pool_, "*", "*", rows.size()});
      ASSERT_TRUE(reply) << reply.error().message;
      ASSERT_TRUE(wire::decode(reply->payload, listed));
      ASSERT_FALSE(listed.entries.empty());
      for (const wire::ListedEntry& entry : listed.entries) rows.emplace_back(entry.row_key);
    }
    for (const auto& [row, values] : stored_) expected.push_back(row);
    std::ranges::sort(rows);
    EXPECT_TRUE(rows == expected) << rows.size() << " rows listed, " << expected.size() << " are stored";
  }

  // Members agree, and no row is under way.
  bool quiet() {
    const auto settled = [this] {
      if (!cluster_->agrees()) return false;
      std::uint64_t held = 0;
      for (std::size_t place = 0; place < cluster_->size(); ++place) {
        if (!cluster_->runs(place)) continue;
        if (cluster_->dispatcher(place).pools().counters().puts_under_way != 0) return false;
        for (const auto& pool : cluster_->dispatcher(place).pools().pools()) held += pool.frames;
      }
      return held == stored_.size() * std::min<std::size_t>(copies_, running());
    };
    const bool reached = fabric_->run_until(deadline(), settled);
    EXPECT_TRUE(reached) << "rows have not come to rest\n" << describe();
    return reached;
  }

  std::size_t running() const {
    std::size_t count = 0;
    for (std::size_t place = 0; place < cluster_->size(); ++place) count += cluster_->runs(place) ? 1 : 0;
    return count;
  }

  std::string describe() {
    std::string text = fmt::format("{} rows stored, {} copies of each\n", stored_.size(), copies_);
    for (std::size_t place = 0; place < cluster_->size(); ++place) {
      if (!cluster_->runs(place)) continue;
      text += fmt::format("  {}: {} puts wait", SimCluster::name_of(place),
                          cluster_->dispatcher(place).pools().counters().puts_under_way);
      for (const auto& pool : cluster_->dispatcher(place).pools().pools())
        text += fmt::format(", {} {} frames over {} members", pool.name, pool.frames, pool.members);
      for (const auto& held : cluster_->dispatcher(place).pools().table().held(pool_))
        text += fmt::format(" {}", brief(held.keys.first));
      text += "\n";
    }
    return text;
  }

  // One at a time: the next only when all rows have their copies again.
  void kill_one() {
    if (running() <= 1 || !quiet()) return;
    const std::size_t place = some_member(true);
    for (Program& program : programs_)
      if (program.place == place) program.over = true;
    cluster_->kill(place);
    ++killed_.with_copies;
    if (random_.chance(0.5)) cluster_->run_for(static_cast<TimeNs>(random_.below(2 * second_ns)));
  }

  // With work under way; its rows are not read until it is back. Some are put again meanwhile, where another member has
  // them then.
  void kill_and_start() {
    const std::size_t place = some_member(true);
    for (Program& program : programs_)
      if (program.place == place) program.over = true;
    cluster_->kill(place);
    ++killed_.with_disks;
    if (random_.chance(0.7)) cluster_->run_for(static_cast<TimeNs>(random_.below(3 * second_ns)));
    Program* const other = some_program();
    for (std::uint64_t puts = random_.below(3);
         puts > 0 && other != nullptr && running() > 0 && !testing::Test::HasFailure(); --puts)
      put(*other);
    cluster_->start(place);
    ASSERT_TRUE(cluster_->wait_for_agreement(patience_ns));
    add_program(place);
    if (!testing::Test::HasFailure()) (void)quiet();
  }

  void start_one() {
    const std::size_t place = some_member(false);
    if (place == cluster_->size()) return;
    cluster_->start(place);
    if (random_.chance(0.5)) cluster_->run_for(static_cast<TimeNs>(random_.below(2 * second_ns)));
    if (random_.chance(0.7) && cluster_->wait_for_agreement(patience_ns)) add_program(place);
  }

  void check_all() {
    if (testing::Test::HasFailure() || stored_.empty() || !quiet()) return;
    for (std::size_t place = 0; place < cluster_->size(); ++place) {
      if (!cluster_->runs(place)) continue;
      add_program(place);
      for (const auto& [row, values] : stored_) {
        if (testing::Test::HasFailure()) return;
        read(programs_.back(), row, values);
      }
    }
    for (Program& program : programs_) program.host->end().close(second_ns);
    cluster_->run_for(second_ns);
    for (std::size_t place = 0; place < cluster_->size(); ++place) {
      if (!cluster_->runs(place)) continue;
      const agent::Dispatcher& dispatcher = cluster_->dispatcher(place);
      EXPECT_EQ(dispatcher.mover().counters().promised_bytes, 0u) << "credit was lost";
      EXPECT_EQ(dispatcher.pools().table().counters().leases, 0u);
      EXPECT_EQ(dispatcher.pools().table().counters().waiting, 0u);
      std::uint64_t held = 0;
      for (const auto& pool : dispatcher.pools().pools()) held += pool.bytes;
      EXPECT_LE(dispatcher.buffers().used_bytes(), held + dispatcher.pools().table().counters().frames * page_bytes)
          << "memory was lost";
    }
  }

  Killed& killed_;
  SeededRandom random_;
  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::unique_ptr<SimCluster> cluster_;
  std::vector<Program> programs_;
  std::map<std::string, std::vector<std::int64_t>> stored_;
  std::string pool_, made_;  // its name; with options
  std::uint64_t copies_ = 1;
  bool staged_ = false, durable_ = false, long_keys_ = false;
};

TEST(PoolSimulation, WhatWasStoredIsFoundWhoeverDies) {
  Killed killed;
  const bool all = each_seed(60, [&](std::uint64_t seed) {
    World world(seed, 2 + seed % 5, killed);
    if (!testing::Test::HasFailure()) world.run(40);
  });
  if (!all) return;
  EXPECT_GT(killed.with_copies, 0u);
  EXPECT_GT(killed.with_disks, 0u);
}

// Programs that are spread over the cores of one agent see one local pool.
TEST(PoolSimulation, ALocalPoolIsOneOverAllCoresOfItsAgent) {
  Killed killed;
  const bool all = each_seed(30, [&](std::uint64_t seed) {
    World world(seed, seed % 3 == 0 ? 8 : 2 + seed % 3, killed, true);
    if (!testing::Test::HasFailure()) world.run(40);
  });
  if (!all) return;
  EXPECT_GT(killed.with_disks, 0u);
}

}  // namespace
}  // namespace offpath::sim
