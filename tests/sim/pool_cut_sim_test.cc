// Pools over members that are cut off from each other, held up, killed and started again, while several programs put
// and get the same few keys at once. history.h judges what they saw:
//   - a read returns what some serial order of the puts allows
//   - what was stored is found from every member when all is at rest, and all copies are the same
//   - of two puts that both sides of a cut stored, the one that is given up is counted
//
//   - where puts need more than half of the members, nothing is ever given up
//
// Each seed draws members, copies, links and, in most of the worlds, disks. They lose what was not synced, fail once in
// a while, cannot be read for seconds, and run full. Half of these hold a durable pool; in the others objects go to
// disk when their pool's budget is used up, so that an agent that is killed loses some, and others have copies.
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "frame/layout.h"
#include "frame/parse.h"
#include "testing/pool/memory_store.h"
#include "tests/sim/history.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_host.h"
#include "wire/messages/message_kinds.h"

namespace offpath::sim {
namespace {

using link::SeededRandom;

constexpr TimeNs patience_ns = 30 * second_ns;
constexpr std::uint64_t rows_max = 2000, keys = 12;
constexpr std::size_t posted_max = 4;  // of one program at a time

struct Posted {
  std::uint64_t ticket, value;
  std::string key;
};

struct Program {
  std::size_t place = 0;
  bool over = false;
  std::unique_ptr<SimHost> host;
  std::vector<std::vector<Column>> columns;  // one for each that may be posted
  std::map<std::size_t, Posted> posted;      // by which of them
};

struct Faults {
  std::uint64_t cuts = 0, kills_of_durable = 0, kills_of_spilling = 0;
};

class World {
 public:
  World(std::uint64_t seed, Faults& faults)
      : faults_(faults), random_(seed), fabric_(std::make_shared<link::LoopbackFabric>(random_.next())) {
    SimCluster::Options options;
    copies_ = 1 + random_.below(3);
    majority_ = random_.chance(0.15);
    if (majority_) copies_ = 3;
    options.members = majority_ ? 3 : 3 + random_.below(4);
    options.dispatcher.mover.memory_bytes_max = 64ull << 20;
    options.dispatcher.mover.window_bytes = 1 << 20;
    options.dispatcher.channels.idle_before_sleep_ns = 20 * microsecond_ns;
    // Everything an agent waits for is short, so that worlds are.
    options.dispatcher.pools.put_wait_ns = 4 * second_ns;
    options.dispatcher.pools.ask_wait_ns = 500 * millisecond_ns;
    options.dispatcher.pools.move_retry_ns = 200 * millisecond_ns;
    options.dispatcher.pools.compare_wait_ns = 50 * millisecond_ns;
    options.dispatcher.pools.join_wait_ns = 200 * millisecond_ns;
    options.group.membership.dead_after_ns = 240 * millisecond_ns;
    options.tick_ns = 10 * millisecond_ns;
    options.round_ns = options.between_rounds_ns = 100 * microsecond_ns;
    options.links.silence_ns = 500 * millisecond_ns;
    options.links.welcome.memory_bytes_max = options.dispatcher.mover.memory_bytes_max;
    options.links.mapped = random_.chance(0.9);
    if (random_.chance(0.3)) options.links.operation = {1'000, 100'000, 0.05, 2'000'000};
    durable_ = random_.chance(0.4);
    spills_ = !durable_ && random_.chance(0.5);
    unreadable_until_.assign(options.members, 0);
    for (std::size_t place = 0; (durable_ || spills_) && place < options.members; ++place) {
      const auto disk = std::make_shared<pool::MemoryStore>();
      disk->fails_writing = [this] { return random_.chance(0.02); };
      disk->fails_reading = [this, place] { return random_.chance(0.02) || fabric_->now() < unreadable_until_[place]; };
      disks_.push_back(disk);
      options.disks.push_back(disk);
    }
    if (spills_) kills_left_ = copies_ - 1;
    pool_ = fmt::format("hash:/p?replicas={}{}{}", copies_, majority_ ? "&min_copies=2" : "",
                        durable_  ? "&spill=durable"
                        : spills_ ? "&spill=on&budget=64KiB"
                                  : "");
    cluster_ = std::make_unique<SimCluster>(fabric_, options);
    sides_.assign(cluster_->size(), 0);
  }

  void run(std::uint64_t actions) {
    ASSERT_TRUE(cluster_->wait_for_agreement(patience_ns)) << "the members have not found each other";
    for (std::size_t place = 0; place < cluster_->size(); ++place) add_program(place);
    rest();
    for (std::uint64_t i = 0; i < actions && !testing::Test::HasFailure(); ++i) act();
    if (!testing::Test::HasFailure()) check_all();
  }

 private:
  void add_program(std::size_t place) {
    const wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 256, .streams_max = 4};
    const std::string name = fmt::format("program{}", programs_.size());
    auto connected = cluster_->connect_program(place, name, layout);
    ASSERT_TRUE(connected) << connected.error().message;
    Program program;
    program.place = place;
    program.host = std::make_unique<SimHost>(fabric_, std::move(connected->link), layout);
    const Status opened = program.host->open(name, pool_, 1, rows_max, wire::Destination::ipc_page, {}, 0, 0,
                                             fabric_->now() + patience_ns);
    ASSERT_TRUE(opened) << opened.error().message;
    for (std::size_t i = 0; i < posted_max; ++i) {
      Column column;
      column.values.resize(rows_max);
      auto range = program.host->end().announce(column.values.data(), rows_max * 8);
      ASSERT_TRUE(range) << range.error().message;
      column.range = *range;
      program.columns.emplace_back();
      program.columns.back().push_back(std::move(column));
    }
    programs_.push_back(std::move(program));
  }

  void act() {
    reap();
    if (fabric_->now() >= full_until_) empty_disks();
    switch (random_.below(22)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
        return put();
      case 7:
      case 8:
      case 9:
      case 10:
        return get();
      case 11:
      case 12:
        return cluster_->run_for(static_cast<TimeNs>(random_.below(50 * millisecond_ns)));
      case 13:
        return cluster_->run_for(static_cast<TimeNs>(random_.below(400 * millisecond_ns)));
      case 14:
      case 15:
        return random_.chance(0.5) ? cut() : void();
      case 16:
        return random_.chance(0.5) ? heal() : void();
      case 17:
        return random_.chance(0.3) ? hold_up() : void();
      case 18:
        return durable_ && random_.chance(0.5) ? kill_and_start() : void();
      case 19:
        return rest();
      case 20:
        return !disks_.empty() && random_.chance(0.5) ? fail_a_disk() : void();
      case 21:
        return spills_ && kills_left_ > 0 ? kill_and_start_at_rest() : void();
    }
  }

  Program* some_program() {
    std::vector<Program*> running;
    for (Program& program : programs_)
      if (!program.over) running.push_back(&program);
    return running.empty() ? nullptr : running[random_.below(running.size())];
  }
  [[nodiscard]] static std::string key_of(std::uint64_t number) { return fmt::format("row{}", number); }

  // Does not wait until it is stored: another program's put or get comes meanwhile.
  void put() {
    Program* const program = some_program();
    if (program == nullptr || program->posted.size() == posted_max) return;
    std::size_t slot = 0;
    while (program->posted.contains(slot)) ++slot;
    const std::uint64_t value = ++values_,
                        rows = 1 + (random_.chance(0.7) ? random_.below(40) : random_.below(rows_max));
    std::ranges::fill(program->columns[slot].front().values, static_cast<std::int64_t>(value));
    const std::string key = key_of(random_.below(keys));
    history_.begin_put(key, value, sides_[program->place], fabric_->now());
    auto ticket = program->host->send(program->columns[slot], rows, key, "c", fabric_->now() + patience_ns);
    ASSERT_TRUE(ticket) << ticket.error().message;
    program->posted.emplace(slot, Posted{*ticket, value, key});
  }

  // Takes note of puts that have ended.
  void reap() {
    for (Program& program : programs_) {
      if (program.over) continue;
      (void)program.host->end().poll();
      const std::uint64_t stored = program.host->end().stored(program.host->stream());
      std::erase_if(program.posted, [&](const auto& each) {
        const Posted& posted = each.second;
        if (stored < posted.ticket) return false;
        const Status status =
            program.host->end().wait(program.host->stream(), posted.ticket, channel::Progress::stored, fabric_->now());
        history_.end_put(posted.key, posted.value, status.has_value(), fabric_->now());
        return true;
      });
    }
  }

  void get() {
    Program* const program = some_program();
    if (program == nullptr) return;
    read(*program, key_of(random_.below(keys)), random_.chance(0.7) ? 0 : 300 * millisecond_ns);
  }

  void read(Program& program, const std::string& key, TimeNs wait_ns) {
    const TimeNs began = fabric_->now();
    auto bytes = program.host->get(key, "c", wait_ns);
    std::optional<std::uint64_t> value;
    if (bytes) {
      value = value_of(*bytes);
      ASSERT_TRUE(value) << key << " is not as it was put";
    } else if ((bytes.error().code == Error::io || bytes.error().code == Error::timeout) &&
               std::ranges::max(unreadable_until_) > began) {
      return;  // its owner cannot read it, or not in time
    } else if (history_.whole_and_at_rest()) {
      ASSERT_TRUE(bytes.error().code == Error::not_found || bytes.error().code == Error::timeout)
          << bytes.error().message;
    } else if (bytes.error().code != Error::not_found) {
      return;  // an owner that was asked is not there any more
    }
    const std::string wrong = history_.judge_read(key, value, sides_[program.place], began);
    EXPECT_TRUE(wrong.empty()) << wrong << ", read at " << SimCluster::name_of(program.place)
                               << (bytes ? "" : ": " + bytes.error().message) << "\n"
                               << describe();
  }

  // The value that all rows of the object have; nothing, if they differ.
  static std::optional<std::uint64_t> value_of(Bytes object) {
    auto view = frame::parse_frame(object);
    if (!view) return std::nullopt;
    auto schema = frame::read_schema(object, *view);
    if (!schema) return std::nullopt;
    auto layout = frame::make_layout(*schema);
    std::int64_t rows = 0;
    std::vector<frame::NodeShape> nodes;
    std::vector<frame::BufferPlace> buffers;
    if (!layout || !frame::read_batch(*layout, object, *view, rows, nodes, buffers) || rows == 0) return std::nullopt;
    const auto* const values = reinterpret_cast<const std::byte*>(object.data()) +
                               buffers[layout->nodes[layout->columns[0]].buffer + 1].offset;
    std::uint64_t first = 0;
    std::memcpy(&first, values, 8);
    for (std::int64_t row = 1; row < rows; ++row)
      if (std::memcmp(values + 8 * row, &first, 8) != 0) return std::nullopt;
    return first;
  }

  // ---- faults

  [[nodiscard]] bool is_cut() const {
    return std::ranges::count(sides_, sides_.front()) != static_cast<std::ptrdiff_t>(sides_.size());
  }
  void set_sides() {
    reap();
    cluster_->set_sides(sides_);
    history_.change(!is_cut());
  }
  void cut() {
    for (unsigned& side : sides_) side = static_cast<unsigned>(random_.below(2));
    set_sides();
    if (is_cut()) ++faults_.cuts;
    if (random_.chance(0.6)) rest();
  }
  void heal() {
    if (!is_cut()) return;
    std::ranges::fill(sides_, 0);
    set_sides();
    if (random_.chance(0.5)) rest();
  }
  // An agent that is late; now and then so late that the others think it dead.
  void hold_up() {
    reap();
    history_.change(!is_cut());
    cluster_->hold_up(
        random_.below(cluster_->size()),
        fabric_->now() + static_cast<TimeNs>(random_.below(random_.chance(0.5) ? 100 * millisecond_ns : second_ns)));
  }
  // It cannot be read for seconds, or is full for less time than a put waits.
  void fail_a_disk() {
    const std::size_t place = random_.below(disks_.size());
    if (random_.chance(0.5)) {
      unreadable_until_[place] = fabric_->now() + static_cast<TimeNs>(random_.below(6 * second_ns));
    } else {
      disks_[place]->bytes_max = disks_[place]->used() + random_.below(40'000);
      full_until_ = fabric_->now() + static_cast<TimeNs>(random_.below(second_ns));
    }
  }
  void empty_disks() {
    for (const auto& disk : disks_) disk->bytes_max = UINT64_MAX;
  }
  // Objects in memory alone are lost there, so each row needs a whole copy elsewhere.
  void kill_and_start_at_rest() {
    --kills_left_;
    std::ranges::fill(sides_, 0);
    set_sides();
    rest();
    if (testing::Test::HasFailure()) return;
    kill_and_start();
    if (!testing::Test::HasFailure()) rest();
  }
  // Its machine loses power.
  void kill_and_start() {
    const std::size_t place = random_.below(cluster_->size());
    reap();
    for (Program& program : programs_)
      if (program.place == place && !program.over) {
        program.over = true;  // its posts may be stored or not
        program.posted.clear();
      }
    lost_conflicts_ += cluster_->dispatcher(place).pools().counters().conflicts;
    cluster_->kill(place);
    ++(durable_ ? faults_.kills_of_durable : faults_.kills_of_spilling);
    disks_[place]->power_cut(random_);
    history_.change(!is_cut());
    if (random_.chance(0.5)) cluster_->run_for(static_cast<TimeNs>(random_.below(600 * millisecond_ns)));
    cluster_->start(place);
    history_.change(!is_cut());
    ASSERT_TRUE(cluster_->wait_for_agreement(patience_ns));
    add_program(place);
  }

  // Waits until members agree, all puts have ended, and all consequences are settled, on each side of a partition.
  void rest() {
    empty_disks();
    const auto settled = [this] {
      if (!cluster_->agrees()) return false;
      for (const Program& program : programs_)
        for (const auto& [slot, posted] : program.posted)
          if (program.host->end().stored(program.host->stream()) < posted.ticket) return false;
      for (std::size_t place = 0; place < cluster_->size(); ++place) {
        const pool::PoolsCounters counters = cluster_->dispatcher(place).pools().counters();
        if (cluster_->is_held_up(place)) return false;
        if (counters.puts_under_way + counters.pulls_waiting + counters.moves_waiting + counters.comparisons_waiting !=
            0)
          return false;
      }
      return true;
    };
    ASSERT_TRUE(fabric_->run_until(fabric_->now() + patience_ns, settled)) << "rows have not come to rest\n"
                                                                           << describe();
    reap();
    history_.rest();
  }

  void check_all() {
    std::ranges::fill(sides_, 0);
    std::ranges::fill(unreadable_until_, 0);
    set_sides();
    rest();
    if (testing::Test::HasFailure()) return;
    if (majority_) {
      EXPECT_TRUE(history_.torn().empty()) << fmt::format("{}", fmt::join(history_.torn(), ", ")) << "\n" << describe();
    }
    std::uint64_t conflicts = lost_conflicts_;
    for (std::size_t place = 0; place < cluster_->size(); ++place)
      conflicts += cluster_->dispatcher(place).pools().counters().conflicts;
    EXPECT_GE(conflicts, history_.torn().size())
        << "puts were given up, of " << fmt::format("{}", fmt::join(history_.torn(), ", ")) << ", and nothing says so\n"
        << describe();
    for (std::size_t place = 0; place < cluster_->size() && !testing::Test::HasFailure(); ++place) {
      add_program(place);
      for (std::uint64_t key = 0; key < keys && !testing::Test::HasFailure(); ++key)
        read(programs_.back(), key_of(key), 0);
    }
    if (testing::Test::HasFailure()) return;
    rest();  // copies that a read found corrupt are made again
    for (const std::string& key : history_.keys()) {
      if (testing::Test::HasFailure()) return;
      std::map<std::uint64_t, std::size_t> copies;
      std::size_t count = 0;
      for (std::size_t place = 0; place < cluster_->size(); ++place) {
        const auto held = cluster_->dispatcher(place).pools().table().held("hash:/p", {key, "c"});
        if (!held) continue;
        ++count;
        if (held->frame->unread) continue;
        const auto value = value_of(Bytes(held->frame->buffer.data(), held->frame->bytes));
        ASSERT_TRUE(value);
        copies.emplace(*value, place);
      }
      EXPECT_LE(copies.size(), 1u) << key << " has copies that differ\n" << describe();
      if (count > 0) {
        EXPECT_EQ(count, std::min<std::size_t>(copies_, cluster_->size())) << key << "\n" << describe();
      }
    }
  }

  std::string describe() {
    std::string text = fmt::format("{}\n", pool_);
    for (std::size_t place = 0; place < cluster_->size(); ++place) {
      if (!cluster_->runs(place)) continue;
      const pool::PoolsCounters counters = cluster_->dispatcher(place).pools().counters();
      text += fmt::format("  {} on side {}: {} puts and {} moves wait;", SimCluster::name_of(place), sides_[place],
                          counters.puts_under_way, counters.moves_waiting + counters.comparisons_waiting);
      for (const auto& held : cluster_->dispatcher(place).pools().table().held("hash:/p")) {
        const auto value =
            held.frame->unread ? std::nullopt : value_of(Bytes(held.frame->buffer.data(), held.frame->bytes));
        text += fmt::format(" {}={}", held.keys.first, value ? fmt::format("{}", *value) : "on disk");
      }
      text += "\n";
    }
    return text;
  }

  Faults& faults_;
  SeededRandom random_;
  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::unique_ptr<SimCluster> cluster_;
  std::vector<std::shared_ptr<pool::MemoryStore>> disks_;
  std::vector<Program> programs_;
  std::vector<unsigned> sides_;
  History history_;
  std::string pool_;
  std::uint64_t copies_ = 1, values_ = 0, lost_conflicts_ = 0, kills_left_ = 0;
  bool durable_ = false, spills_ = false, majority_ = false;
  std::vector<TimeNs> unreadable_until_;
  TimeNs full_until_ = 0;
};

TEST(PoolCuts, WhatWasStoredIsFoundAndInSomeOrder) {
  Faults faults;
  const bool all = each_seed(300, [&](std::uint64_t seed) {
    World world(seed, faults);
    if (!testing::Test::HasFailure()) world.run(40);
  });
  if (!all) return;
  EXPECT_GT(faults.cuts, 0u);
  EXPECT_GT(faults.kills_of_durable, 0u);
  EXPECT_GT(faults.kills_of_spilling, 0u);
}

}  // namespace
}  // namespace offpath::sim
