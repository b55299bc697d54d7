// The sift service of many agents in virtual time, under seeded faults.
//
// Each seed draws a world (how many agents, stages, fan-out, thresholds and budgets, how slow each agent's jobs and the
// way to it are) and what the carrier between agents does wrong: it delays and reorders offers, repeats them, loses
// them and their answers, breaks pulls, and lets an agent be away for a while. Programs put frames as fast as they are
// taken. What must hold whatever happens:
//   - no stage of any agent uses more than its budget, by its own account and by the memory really in use
//   - after a flush every row that was put is in the tracks exactly once, with its values, in the order of a plain sort
//   - nothing waits for ever: with budgets of a few pieces the world comes to rest
//
// In some worlds agents are killed and come back without memory. Rows that they alone had are lost (the pool is not
// kept), but the others go on, a later flush ends, and rows that never were with a killed agent are there exactly once.
//
// In others the pool is kept, and agents are killed at any moment, while they come back too, at the end all at once.
// Their store is slow, is full for a while, fails although it has stored, does not get to removing what is to be
// removed, and cannot be read for a moment. Every row whose put was answered is there exactly once; one whose put was
// not, at most once. In most of these each thing that is kept has a copy at the next agent, which has no more memory
// for copies than copies.h says, or little more than half of it: what finds no room waits there, a removal that gets
// lost gives its room back seconds later, and nothing waits for ever.
//
// In a third of the worlds identifiers are long: bytes, decimals or text of any length, by hash or by ranges.
//
// In half of the worlds without killed agents, and of those that are kept, tracks have a fraction of the memory that
// they need and leave it for that store. It is full for a while, cannot be written or read for a moment; a reader that
// began in the midst of it reads what there was then, to its end. Tracks never take more memory than they may.
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "pool/directory/placement.h"
#include "seeds.h"
#include "sift/kept/copies.h"
#include "sift/sift.h"
#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"
#include "sift_sim_stores.h"

namespace offpath::sift {
namespace {

using link::SeededRandom;
using simulated::Agent, simulated::Row;

enum class Kills { none, lose, kept };

class World : simulated::Stores {
 public:
  World(std::uint64_t seed, Kills kills) : Stores(seed), kills_(kills != Kills::none), kept_(kills == Kills::kept) {
    draw(seed);
    map_stages(seed);
    bound_tracks(seed);
    std::vector<std::string> names;
    for (std::uint64_t i = 0; i < agents_count_; ++i) names.push_back(fmt::format("dpu{:03}", i));
    agents_.resize(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      agents_[i].name = names[i];
      agents_[i].job_ns = random_.chance(0.1) ? 50 * millisecond_ns : 1 + random_.below(2 * millisecond_ns);
      start(i);
      Settings in_memory = settings_;  // copies do not leave memory here
      in_memory.durable = false;
      in_memory.tracks_budget_bytes = 0;
      agents_[i].copies.room = copies_bytes(Geometry::make(in_memory, names).value(), static_cast<std::uint32_t>(i));
      if (random_.chance(0.5))
        agents_[i].copies.room -= agents_[i].copies.room * 3 / 8;  // copies of an absent agent have the rest
      const auto owners = pool::owners_of(pool::Policy::hash, 2, kept_row(names[i], 2, names), names);
      holders_.push_back(static_cast<std::size_t>(std::ranges::find(names, owners.back()) - names.begin()));
    }
  }

  void run() {
    make_puts();
    for (std::size_t i = 0; i < agents_.size(); ++i) feed(i);
    if (kills_) {
      const TimeNs during = kept_ && random_.chance(0.5) ? 2 * second_ns : 200 * millisecond_ns;
      for (std::uint64_t i = 1 + random_.below(kept_ ? 8 : 3); i > 0; --i)
        at(now_ + random_.below(static_cast<std::uint64_t>(during)),
           [this, victim = random_.below(agents_.size())] { kill(victim); });
      kill_until_ = now_ + during;
    }
    if ((kept_ || settings_.spills()) && random_.chance(0.3)) full_until_ = now_ + random_.below(second_ns);
    if (random_.chance(0.5)) {  // in the midst of it
      step_until(now_ + 50 * millisecond_ns);
      flush(false);
      if (settings_.spills() && !kills_) begin_long_read();
    }
    run_until([this] {
      return std::ranges::all_of(agents_,
                                 [](const Agent& agent) { return agent.to_put.empty() && agent.puts_open == 0; });
    });
    step_until(kill_until_);
    run_until([this] {
      return std::ranges::all_of(
          agents_, [](const Agent& agent) { return agent.is_up() && agent.to_put.empty() && agent.puts_open == 0; });
    });
    flush(true);
    check_tracks();
    end_long_read();
    if (kept_ && !::testing::Test::HasFailure()) {
      for (std::size_t i = 0; i < agents_.size(); ++i) kill(i);
      run_until([this] { return std::ranges::all_of(agents_, &Agent::is_up); });
      flush(true);
      check_tracks();
    }
    for (const Agent& agent : agents_) EXPECT_LE(agent.copies.used_peak, agent.copies.room);
    for (const Agent& agent : agents_)  // something from before a restart may still arrive
      for (std::uint32_t stage = 1; stage <= settings_.stages && (!kills_ || kept_); ++stage)
        EXPECT_EQ(agent.sift->counters(stage).offers_waiting, 0u);
  }

  [[nodiscard]] std::string describe() const {
    std::string mapped;
    for (const auto& [stage, selector] : settings_.selectors) mapped += fmt::format(", stage{}={}", stage, selector);
    return fmt::format("{} agents, {} stages, fanout {}, threshold {}, budget {}, {} rows of {}{}", agents_.size(),
                       settings_.stages, settings_.fanout, settings_.threshold_bytes, settings_.budget_bytes,
                       put_.size(), frame::describe(form_->rows->schema().fields[0]), mapped);
  }
  [[nodiscard]] std::uint64_t repeated() const { return repeated_; }
  // Bytes of tracks that are on disk alone at the end.
  [[nodiscard]] std::uint64_t spilled() const {
    std::uint64_t all = 0;
    for (const Agent& agent : agents_) all += agent.sift->track_memory().disk_bytes();
    return all;
  }
  // Copies that there were, those that had to wait for room among them.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> copies() const {
    std::pair<std::uint64_t, std::uint64_t> all{copies_, 0};
    for (const Agent& agent : agents_) all.second += agent.copies.waited;
    return all;
  }

 private:
  static constexpr std::uint64_t rows_put_max = 30'000, puts_max = 18;  // of all agents, and of each

  void draw(std::uint64_t seed) {
    const std::uint32_t counts[] = {1, 2, 3, 7, 20, 100};
    agents_count_ = counts[random_.below(random_.chance(0.1) ? 6 : 5)];
    settings_.pool = "/tracks";
    settings_.key = "id";
    settings_.stages = static_cast<std::uint32_t>(1 + random_.below(3));
    settings_.fanout = 2u << random_.below(3);
    settings_.threshold_bytes = 4096 << random_.below(5);
    settings_.age_ns = random_.chance(0.3) ? 5 * millisecond_ns : second_ns;
    rows_max_ = 1 + random_.below(600);
    frame::Schema schema;
    const frame::Type keys[] = {frame::Type::uint64, frame::Type::int64, frame::Type::uint32, frame::Type::int32};
    schema.fields.push_back({.name = "id", .type = keys[random_.below(4)]});
    schema.fields.push_back({.name = "x", .type = frame::Type::float32});
    schema.fields.push_back({.name = "type", .type = frame::Type::uint8});
    choose_long_identifiers(seed, schema.fields[0]);
    form_ = TrackForm::make(schema, settings_.key_rule()).value();
    // The smallest budget that lets one piece in, and a little.
    const std::uint64_t piece =
        form_->rows->frame_bytes(rows_max_, rows_max_ * value_of_id(*form_->rows, ~0ull).size()) +
        form_->rows->overhead_bytes() + (kept_ ? kept_notes_bytes_max : 0);
    const std::uint64_t sorted = rows_max_ * TrackRun::sort_bytes_per_row(*form_->rows);
    const std::uint64_t least = BufferCache::class_bytes(piece) + std::max(piece + piece / 8, sorted) +
                                parts_bytes_max(0, 0, settings_.fanout, form_->rows->overhead_bytes());
    settings_.budget_bytes =
        std::max(least + random_.below(random_.chance(0.5) ? 64 << 10 : 4 << 20), settings_.threshold_bytes);
    settings_.replicas = kept_ && random_.chance(0.8) ? 2 : 1;
    settings_.credit_bytes = random_.chance(0.5) ? settings_.budget_bytes : 1 + random_.below(100'000);
    if (random_.chance(0.6)) {
      faults_ = {.offer_lost = 0.05,
                 .answer_lost = 0.1,
                 .repeated = 0.1,
                 .pull_fails = 0.05,
                 .corrupted = 0.02,
                 .away = 0.001};
      faults_.delay_max_ns = 20 * millisecond_ns;
    }
  }

  // In a third of the worlds identifiers are bytes, decimals or text. The worlds are otherwise the same as without.
  void choose_long_identifiers(std::uint64_t seed, frame::Field& field) {
    using frame::Type;
    SeededRandom random(seed ^ 0x10'6C'0DE5);
    if (!random.chance(1.0 / 3)) return;
    const Type types[] = {Type::fixed_binary, Type::decimal128, Type::utf8, Type::large_binary};
    field.type = types[random.below(4)];
    if (field.type == Type::fixed_binary)
      field.width = random.chance(0.5) ? 16 : 9 + static_cast<int>(random.below(56));
    if (field.type == Type::decimal128) field.precision = 38;
    settings_.by = KeyBy::hash;
    if (!random.chance(0.3)) return;
    settings_.by = KeyBy::range;
    settings_.ranges = {"10"};  // of bytes 0x10, before all but text that is empty
    if (field.type == Type::fixed_binary) settings_.ranges = {"70"};
  }

  // In half of the worlds agents are hosts and cards in some racks, and stages are mapped by that. The worlds are
  // otherwise the same as without.
  void map_stages(std::uint64_t seed) {
    SeededRandom random(seed ^ 0x5EED'0F'57A6E5);
    if (kept_ || random.chance(0.5)) return;  // pools that keep copies cannot be mapped
    const std::uint64_t racks = 1 + random.below(4);
    for (std::uint64_t i = 0; i < agents_count_; ++i)  // the first is a host, the second a card
      settings_.places[fmt::format("dpu{:03}", i)] = {fmt::format("r{}", i % racks),
                                                      i == 1 || (i > 1 && random.chance(0.6))};
    const bool has_cards = agents_count_ > 1;
    const std::vector<std::string> anywhere{"hosts", "rack:r0", "dpu*", has_cards ? "dpus" : "hosts"};
    const std::vector<std::string> in_racks{"rack:*", "rack:r[01]", has_cards ? "rack:*/dpus" : "rack:*/hosts"};
    for (std::uint32_t stage = 1; stage <= settings_.track_stage(); ++stage) {
      const bool may_repeat = stage > 1 && stage < settings_.track_stage();
      const std::vector<std::string>& from = may_repeat && random.chance(0.6) ? in_racks : anywhere;
      if (random.chance(0.7)) settings_.selectors[stage] = from[random.below(from.size())];
    }
  }

  void bound_tracks(std::uint64_t seed) {
    SeededRandom random(seed ^ 0x7AC5'B0D6E7);
    if ((kills_ && !kept_) || random.chance(0.5)) return;
    settings_.spill_on = !kept_;
    settings_.durable = kept_;
    settings_.replicas = 1;
    settings_.tracks_budget_bytes = tracks_budget_bytes_min + random.below(random.chance(0.7) ? 1024 : 128 << 10);
    if (!form_->rows->key().is_long()) return;
    // Lists of blocks cannot leave, and have half of it at most: here those of all rows on one agent, twice during a
    // merge.
    const std::uint64_t rows = std::min(rows_put_max, agents_count_ * puts_max * rows_max_) + rows_max_;
    const std::uint64_t id_bytes = value_of_id(*form_->rows, ~0ull).size();
    const std::uint64_t blocks = TrackRun::bytes_max(*form_->rows, rows, rows * id_bytes) / (4 << 10) + 1;
    settings_.tracks_budget_bytes += 4 * blocks * (sizeof(RunBlock) + sizeof(std::size_t) + id_bytes);
  }

  void start(std::size_t i) {
    Agent& agent = agents_[i];
    std::vector<std::string> names;
    for (std::uint64_t each = 0; each < agents_count_; ++each) names.push_back(fmt::format("dpu{:03}", each));
    agent.memory = {BufferCache::make({.cached_bytes_max = 1 << 20, .huge_pages = false}), 7};
    SiftOptions options{.settings = settings_, .self = {agent.name, agent.incarnation}, .memory = agent.memory};
    options.kept = kept_;
    options.check_in_job_bytes = random_.chance(0.5) ? 0 : 1 << 20;
    auto made = Sift::make(options, names);
    ASSERT_TRUE(made) << made.error().message;
    agent.sift = std::move(*made);
    if (!kept_) return;
    std::vector<KeptItem> items;
    for (const auto& [name, object] : agent.store) items.push_back({name, object.bytes.size(), object.rows});
    Effects effects;
    agent.sift->restore(1, items, now_, effects);
    carry_out(i, effects);
  }

  void kill(std::size_t i) {
    Agent& agent = agents_[i];
    agent.sift = nullptr;
    ++agent.incarnation;
    agent.answers.clear();
    agent.offered.clear();
    agent.flushes.clear();
    agent.timer_at = never;
    killed_.insert(i);
    for (const auto& [token, rows] : agent.unanswered)
      for (const Row& row : rows) ++unknown_[row];
    agent.unanswered.clear();
    const auto back = [this, i, life = agent.incarnation] {
      if (agents_[i].incarnation != life) return;  // killed again before
      start(i);
      agents_[i].puts_open = 0;  // the program's channel has ended; it opens another one and goes on
      feed(i);
    };
    if (kept_)
      at(now_ + random_.below(50 * millisecond_ns), back);
    else
      back();
  }

  // A reader that takes its time.
  void begin_long_read() {
    const Agent& agent = agents_[random_.below(agents_.size())];
    const TrackSnapshot tracks = agent.sift->tracks();
    long_rows_ = tracks.rows();
    reads_well_ = true;
    long_read_ = std::make_unique<TrackReader>(tracks, TrackQuery{}, 7);
    for (int i = 0; i < 3; ++i) read_on();
    reads_well_ = false;
  }
  bool read_on() {
    const auto frame = long_read_->next(program_memory_);
    if (!frame) ADD_FAILURE() << frame.error().message;
    if (!frame || *frame == nullptr) return false;
    long_rows_ -= (*frame)->rows;
    return true;
  }
  void end_long_read() {
    if (long_read_ == nullptr) return;
    reads_well_ = true;
    while (read_on()) {
    }
    reads_well_ = false;
    EXPECT_EQ(long_rows_, 0u);
    long_read_ = nullptr;
  }

  // ---- programs

  void make_puts() {
    const std::uint64_t ids = 1 + random_.below(3000);
    const std::uint64_t spread = random_.chance(0.3) ? 1 : random_.chance(0.2) ? 0 : 0x1'0001;
    const auto steps = static_cast<std::int64_t>(1 + random_.below(puts_max / 3));
    std::uint64_t budget_of_rows = rows_put_max;
    for (std::int64_t step = 0; step < steps; ++step)
      for (std::size_t i = 0; i < agents_.size(); ++i)
        for (std::uint64_t piece = random_.below(4); piece > 0 && budget_of_rows > 0; --piece) {
          if (!agents_[i].sift->may_put()) continue;
          std::vector<std::uint64_t> numbers(1 + random_.below(rows_max_));
          budget_of_rows -= std::min<std::uint64_t>(budget_of_rows, numbers.size());
          for (std::uint64_t& id : numbers) {
            id = random_.below(ids) * spread - (random_.chance(0.1) ? 5 : 0);
            if (!form_->rows->key().is_long() && form_->rows->key_bytes() == 4) id &= 0xFFFF'FFFF;
            if (!kept_) ++put_[{id, step * 10}];
            by_agent_[i].insert({id, step * 10});
          }
          // Programs' frames are not the agent's memory here: they are charged by the mover.
          agents_[i].to_put.emplace_back(fmt::format("step{:06}", step * 10),
                                         particle_frame(*form_->rows, numbers, step * 10, program_memory_));
        }
  }

  void feed(std::size_t i) {
    Agent& agent = agents_[i];
    if (!agent.is_up()) {
      if (agent.sift != nullptr)
        at(now_ + millisecond_ns, [this, i, life = agent.incarnation] {
          if (agents_[i].incarnation == life) feed(i);
        });
      return;
    }
    while (!agent.to_put.empty() && agent.puts_open < 4) {
      const std::string row_key = agent.to_put.front().first;
      const FramePtr frame = agent.to_put.front().second;
      agent.to_put.pop_front();
      ++agent.puts_open;
      const std::uint64_t token = agent.next_token++;
      if (kept_) agent.unanswered[token] = rows_of(row_key, frame);
      agent.answers[token] = [this, i, token, row_key, frame](const Status& status) {
        Agent& putter = agents_[i];
        if (!kept_) {
          EXPECT_TRUE(status) << status.error().message;
        }
        if (const auto rows = putter.unanswered.extract(token))
          for (const Row& row : rows.mapped()) ++(status ? put_ : unknown_)[row];
        if (!status) putter.to_put.emplace_back(row_key, frame);  // the program tries again
        --putter.puts_open;
        at(now_ + 1, [this, i] { feed(i); });
      };
      Effects effects;
      agent.sift->on_put(token, row_key, frame, now_, effects);
      carry_out(i, effects);
    }
  }

  std::vector<Row> rows_of(const std::string& row_key, const FramePtr& frame) {
    std::vector<Row> rows;
    const RowsView view = form_->rows->view({frame->buffer.data(), frame->bytes}).value();
    for (std::uint64_t row = 0; row < view.rows; ++row)
      rows.emplace_back(id_of_value(*form_->rows, view.value_of_id(row)), step_of(row_key).value());
    return rows;
  }

  // ---- invariants

  void check(const Agent& agent) const override {
    if (!agent.is_up()) return;
    const TrackMemory& tracks = agent.sift->track_memory();
    // A run that is made has its sources beside it.
    std::uint64_t allowed = tracks.memory_bytes() * 2 + (1 << 20);
    if (settings_.spills()) {  // a piece's run may be larger than allowed, if there is no other
      ASSERT_LE(tracks.memory_bytes(),
                std::max(settings_.tracks_budget_bytes * 5 / 4 + (64 << 10), 4 * settings_.budget_bytes));
      allowed += 2 * settings_.tracks_budget_bytes;
    }
    for (std::uint32_t stage = 1; stage <= settings_.track_stage(); ++stage) {
      const StageCounters& counters = agent.sift->counters(stage);
      ASSERT_LE(counters.used_bytes_peak, settings_.budget_bytes);
      allowed += counters.used_bytes;
    }
    // Freed memory counts as used until a job has returned it to the kernel, and that job does not run at once here.
    ASSERT_LE(agent.memory.cache->used_bytes(), allowed + agent.memory.cache->leaving_bytes());
  }

  void flush(bool wait) {
    const std::uint64_t number = ++flushes_;
    auto left = std::make_shared<std::size_t>(agents_.size());
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      Agent& agent = agents_[i];
      if (!agent.is_up()) continue;
      const std::uint64_t token = agent.next_token++;
      agent.flushes[token] = [left](const Status& status) {
        EXPECT_TRUE(status) << status.error().message;
        --*left;
      };
      Effects effects;
      agent.sift->on_flush(token, number, now_ + 1000 * second_ns, now_, effects);
      carry_out(i, effects);
    }
    if (wait) run_until([left] { return *left == 0; });
  }

  void check_tracks() {
    if (::testing::Test::HasFailure()) return;
    reads_well_ = true;
    std::map<Row, int> found;
    for (Agent& agent : agents_) {
      TrackReader reader(agent.sift->tracks(), {}, 1 + random_.below(5000));
      std::pair<std::string, std::int64_t> before{"", INT64_MIN};
      each_row(reader, program_memory_, [&](const Row& row) {
        ++found[row];
        const std::pair key{ordered_id(*form_->rows, row.first), row.second};
        ASSERT_LE(before, key) << "the order of (identifier, step)";
        before = key;
      });
      if (::testing::Test::HasFailure()) return;
      for (std::uint32_t stage = 1; stage <= settings_.track_stage(); ++stage)
        repeated_ += agent.sift->counters(stage).repeated;
    }
    reads_well_ = false;
    if (kept_) {
      for (const auto& [row, times] : found) {
        ASSERT_LE(times, put_[row] + unknown_[row])
            << "identifier " << row.first << " at step " << row.second << " more often than it was put";
      }
      for (const auto& [row, times] : put_) {
        ASSERT_GE(found[row], times) << "identifier " << row.first << " at step " << row.second
                                     << " was answered, and is lost";
      }
      return;
    }
    if (!kills_) {
      ASSERT_EQ(found.size(), put_.size());
      ASSERT_TRUE(found == put_) << "every row that was put is found as often as it was put";
      return;
    }
    for (const auto& [row, times] : found) ASSERT_TRUE(put_.contains(row)) << "a row that nobody put";
    for (const auto& [row, times] : put_)
      if (!was_with_killed(row)) {
        ASSERT_EQ(found[row], times) << "identifier " << row.first << " at step " << row.second;
      }
  }

  // Was the row with an agent that was killed, in any stage?
  bool was_with_killed(const Row& row) {
    const Geometry& geometry = agents_[0].sift->geometry();
    for (const auto& [agent, rows] : by_agent_) {
      if (!rows.contains(row)) continue;
      std::uint32_t holder = static_cast<std::uint32_t>(agent);
      ElementId element;
      for (;;) {
        if (killed_.contains(holder)) return true;
        if (element.stage == settings_.track_stage()) break;
        element = geometry.next(element, settings_.split_bits(element.stage).part_of(place_of(row.first)));
        holder = geometry.owner(element, holder);
      }
    }
    return false;
  }

  [[nodiscard]] std::uint64_t place_of(std::uint64_t id) const {
    const KeyForm& key = form_->rows->key();
    return key.is_long() ? key.place_of_value(bytes_of(value_of_id(*form_->rows, id))) : id;
  }

  bool kills_, kept_;
  std::uint64_t agents_count_ = 1, rows_max_ = 1, flushes_ = 0, repeated_ = 0;
  FrameMemory program_memory_{BufferCache::make({.cached_bytes_max = 1 << 20, .huge_pages = false}), 7};
  TimeNs kill_until_ = 0;
  std::map<Row, int> put_, unknown_;
  std::map<std::size_t, std::set<Row>> by_agent_;
  std::set<std::size_t> killed_;
  std::unique_ptr<TrackReader> long_read_;
  std::uint64_t long_rows_ = 0;  // that it has still to read
};

void run_worlds(Kills kills, std::uint64_t worlds) {
  std::uint64_t repeated = 0, copies = 0, waited = 0, spilled = 0;
  const bool all = sim::each_seed(worlds, [&](std::uint64_t seed) {
    World world(seed, kills);
    world.run();
    repeated += world.repeated();
    spilled += world.spilled();
    copies += world.copies().first;
    waited += world.copies().second;
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "the world: " << world.describe();
  });
  if (!all) return;
  EXPECT_GT(repeated, 0u) << "no piece was ever offered twice: the faults are not there";
  if (kills != Kills::lose) {
    EXPECT_GT(spilled, 1'000'000u) << "few tracks left memory";
  }
  if (kills == Kills::kept) {
    EXPECT_GT(copies, 1000u);
    EXPECT_GT(waited, 0u) << "no copy ever waited for room: there was enough for everything";
  }
}

TEST(SiftSim, EveryRowIsInTheTracksOnce) { run_worlds(Kills::none, 150); }
TEST(SiftSim, KilledAgentsLoseNothingOfOthers) { run_worlds(Kills::lose, 60); }
TEST(SiftSim, KilledAgentsOfAKeptPoolLoseNothingAndSplitNothingTwice) { run_worlds(Kills::kept, 200); }

}  // namespace
}  // namespace offpath::sift
