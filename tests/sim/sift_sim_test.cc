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
// In some worlds agents are killed and come back without memory. What they alone had is lost (the pool is not kept),
// but the others go on, a later flush ends, and rows that never were with a killed agent are there exactly once.
//
// In others the pool is kept, and agents are killed at any moment, while they come back too, at the end all at once.
// Their store is slow, is full for a while, fails although it has stored, does not get to removing what is to be
// removed, and cannot be read for a moment. Every row whose put was answered is there exactly once; one whose put was
// not, at most once. In most of these each thing that is kept has a copy at the next agent, which has no more memory
// for copies than copies.h says, or little more than half of it: what finds no room waits there, a removal that gets
// lost gives its room back seconds later, and nothing waits for ever.
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
#include "testing/link/fault_link.h"

namespace offpath::sift {
namespace {

using link::SeededRandom;
using Row = std::pair<std::uint64_t, std::int64_t>;  // identifier, step

struct Faults {
  double offer_lost = 0, answer_lost = 0, repeated = 0, pull_fails = 0, corrupted = 0;
  TimeNs delay_max_ns = millisecond_ns;
  TimeNs patience_ns = 50 * millisecond_ns;  // of a carrier that hears nothing
};

struct Agent {
  std::string name;
  std::uint64_t incarnation = 1;
  FrameMemory memory;
  std::unique_ptr<Sift> sift;
  TimeNs job_ns = millisecond_ns;
  std::uint64_t next_token = 1;
  std::map<std::uint64_t, std::function<void(const Status&)>> answers;  // of its puts and of offers to it
  std::map<std::uint64_t, FramePtr> offered;                            // the result of a pull of an offer
  std::map<std::uint64_t, std::function<void(const Status&)>> flushes;
  TimeNs away_until = 0;
  TimeNs timer_at = never;

  std::deque<std::pair<std::string, FramePtr>> to_put;
  std::uint32_t puts_open = 0;

  struct Object {
    std::vector<std::byte> bytes;
    std::uint64_t rows;
  };
  std::map<std::string, Object> store;  // outlives the agent
  // Of others, with what they take; those that wait for room, in their order. It outlives the agent as well, as it is
  // made anew.
  struct Copies {
    std::uint64_t room = 0, used = 0, used_peak = 0, waited = 0;
    std::map<std::pair<std::size_t, std::string>, std::uint64_t> held;
    std::deque<std::function<bool()>> waiting;  // each says whether it has begun
  } copies;
  std::map<std::uint64_t, std::vector<Row>> unanswered;
  [[nodiscard]] bool is_up() const { return sift != nullptr && sift->is_restored(); }
};

enum class Kills { none, lose, kept };

class World {
 public:
  World(std::uint64_t seed, Kills kills) : random_(seed), kills_(kills != Kills::none), kept_(kills == Kills::kept) {
    draw();
    map_stages(seed);
    std::vector<std::string> names;
    for (std::uint64_t i = 0; i < agents_count_; ++i) names.push_back(fmt::format("dpu{:03}", i));
    agents_.resize(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      agents_[i].name = names[i];
      agents_[i].job_ns = random_.chance(0.1) ? 50 * millisecond_ns : 1 + random_.below(2 * millisecond_ns);
      start(i);
      agents_[i].copies.room = copies_bytes(agents_[i].sift->geometry(), static_cast<std::uint32_t>(i));
      if (random_.chance(0.5))
        agents_[i].copies.room -= agents_[i].copies.room * 3 / 8;  // those of another one, which is away, have the rest
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
    if (kept_ && random_.chance(0.3)) full_until_ = now_ + random_.below(second_ns);
    if (random_.chance(0.5)) {  // in the midst of it
      step_until(now_ + 50 * millisecond_ns);
      flush(false);
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
    return fmt::format("{} agents, {} stages, fanout {}, threshold {}, budget {}, {} rows{}", agents_.size(),
                       settings_.stages, settings_.fanout, settings_.threshold_bytes, settings_.budget_bytes,
                       put_.size(), mapped);
  }
  [[nodiscard]] std::uint64_t repeated() const { return repeated_; }
  // Copies that there were, those that had to wait for room among them.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> copies() const {
    std::pair<std::uint64_t, std::uint64_t> all{copies_, 0};
    for (const Agent& agent : agents_) all.second += agent.copies.waited;
    return all;
  }

 private:
  void draw() {
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
    form_ = TrackForm::make(schema, "id").value();
    // The smallest budget that lets one piece in, and a little.
    const std::uint64_t piece =
        rows_max_ * form_->rows->row_bytes() + form_->rows->overhead_bytes() + (kept_ ? kept_notes_bytes_max : 0);
    const std::uint64_t least = BufferCache::class_bytes(piece) +
                                std::max(piece + piece / 8, rows_max_ * TrackRun::sort_bytes_per_row) +
                                parts_bytes_max(0, 0, settings_.fanout, form_->rows->overhead_bytes());
    settings_.budget_bytes =
        std::max(least + random_.below(random_.chance(0.5) ? 64 << 10 : 4 << 20), settings_.threshold_bytes);
    settings_.replicas = kept_ && random_.chance(0.8) ? 2 : 1;
    settings_.credit_bytes = random_.chance(0.5) ? settings_.budget_bytes : 1 + random_.below(100'000);
    if (random_.chance(0.6)) {
      faults_ = {.offer_lost = 0.05, .answer_lost = 0.1, .repeated = 0.1, .pull_fails = 0.05, .corrupted = 0.02};
      faults_.delay_max_ns = 20 * millisecond_ns;
    }
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

  // ---- the store of a pool that is kept

  // The agents that have copies of this agent's kept objects.
  [[nodiscard]] Agent::Copies* copies_of(std::size_t i) {
    return settings_.replicas < 2 || agents_.size() < 2 ? nullptr : &agents_[holders_[i]].copies;
  }

  // Copies of runs take other memory: they stay.
  void keep(std::size_t i, KeepEffect effect) {
    Agent::Copies* const copies = copies_of(i);
    if (copies == nullptr || effect.object == nullptr || copy_stays(effect.name))
      return store_object(i, std::move(effect));
    ++copies_;
    const std::uint64_t life = agents_[i].incarnation, bytes = align_up(effect.object->bytes, page_bytes);
    const auto over = std::make_shared<bool>(false);
    const std::uint64_t token = effect.token;
    const auto begin = [this, i, life, copies, bytes, over, effect = std::move(effect)] {
      if (*over || agents_[i].incarnation != life) return true;
      std::uint64_t& before = copies->held[{i, effect.name}];  // an object may exist although keeping it failed
      if (copies->used - before + bytes > copies->room) return false;
      copies->used += bytes - before;
      copies->used_peak = std::max(copies->used_peak, copies->used);
      before = bytes;
      store_object(i, effect);
      return *over = true;
    };
    if (begin()) return;
    ++copies->waited;
    copies->waiting.push_back(begin);
    at(now_ + 30 * second_ns, [this, i, life, over, token] {
      if (std::exchange(*over, true) || agents_[i].incarnation != life) return;
      // Where there are many, nobody looks whose copies go where: one may have those of several.
      EXPECT_GT(agents_.size(), 16u) << "a copy found no room in time";
      Effects effects;
      agents_[i].sift->on_kept(token, fail(Error::no_memory, "no room for a copy"), now_, effects);
      carry_out(i, effects);
    });
  }

  void forget_copy(std::size_t i, const std::string& name) {
    Agent::Copies* const copies = copies_of(i);
    if (copies == nullptr) return;
    const auto held = copies->held.extract({i, name});
    if (!held) return;
    copies->used -= held.mapped();
    for (auto& begin : std::exchange(copies->waiting, {}))
      if (!begin()) copies->waiting.push_back(std::move(begin));
  }

  void store_object(std::size_t i, KeepEffect effect) {
    const bool full = now_ < full_until_;
    const bool stored = effect.object != nullptr && !full && !random_.chance(0.02),
               told = stored && !random_.chance(0.02);
    const std::uint64_t life = agents_[i].incarnation;
    const TimeNs when = now_ + 1 + random_.below(3 * millisecond_ns);
    at(when, [this, i, stored, name = effect.name,
              object = effect.object] {  // also if it is killed meanwhile: it had been asked for
      if (!stored) {
        if (!agents_[i].store.contains(name)) forget_copy(i, name);
        return;
      }
      const Bytes bytes(object->buffer.data(), object->bytes);
      agents_[i].store.insert_or_assign(name, Agent::Object{{bytes.begin(), bytes.end()}, object->rows});
    });
    at(when + random_.below(millisecond_ns), [this, i, life, told, full, token = effect.token] {
      if (agents_[i].incarnation != life) return;
      Effects effects;
      agents_[i].sift->on_kept(token, told ? Status{} : fail(full ? Error::no_space : Error::timeout, "drawn"), now_,
                               effects);
      carry_out(i, effects);
    });
  }

  void forget(std::size_t i, const ForgetEffect& effect) {
    // every agent with a copy is asked again; that the agent itself still has it does no harm
    const bool lost = random_.chance(0.05);
    at(now_ + 1 + (lost ? 5 * second_ns : random_.below(5 * millisecond_ns)),
       [this, i, lost, life = agents_[i].incarnation, name = effect.name] {
         if (agents_[i].incarnation != life) return;
         if (!lost) agents_[i].store.erase(name);
         forget_copy(i, name);
       });
  }

  void read(std::size_t i, const ReadEffect& effect) {
    at(now_ + 1 + random_.below(3 * millisecond_ns), [this, i, life = agents_[i].incarnation, effect] {
      Agent& agent = agents_[i];
      if (agent.incarnation != life) return;
      Effects effects;
      agent.sift->on_read(effect.token, stored_object(agent, effect.name), now_, effects);
      carry_out(i, effects);
    });
  }

  Result<FramePtr> stored_object(const Agent& agent, const std::string& name) {
    if (random_.chance(0.05)) {
      if (random_.chance(0.5)) return fail(Error::io, "the disk fails for the moment");
      return fail(Error::would_block, "no room for the moment");
    }
    const auto found = agent.store.find(name);
    if (found == agent.store.end()) {
      ADD_FAILURE() << "'" << name << "' is read, and was forgotten";
      return fail(Error::not_found, "none");
    }
    const auto& bytes = found->second.bytes;
    auto copy = std::make_shared<service::Frame>();
    OFP_ASSIGN(copy->buffer, agent.memory.cache->take(bytes.size(), 7));
    std::memcpy(copy->buffer.data(), bytes.data(), bytes.size());
    copy->bytes = bytes.size();
    copy->rows = found->second.rows;
    return copy;
  }

  // ---- programs

  void make_puts() {
    const std::uint64_t ids = 1 + random_.below(3000);
    const std::uint64_t spread = random_.chance(0.3) ? 1 : random_.chance(0.2) ? 0 : 0x1'0001;
    const auto steps = static_cast<std::int64_t>(1 + random_.below(6));
    std::uint64_t budget_of_rows = 30'000;
    for (std::int64_t step = 0; step < steps; ++step)
      for (std::size_t i = 0; i < agents_.size(); ++i)
        for (std::uint64_t piece = random_.below(4); piece > 0 && budget_of_rows > 0; --piece) {
          if (!agents_[i].sift->may_put()) continue;
          std::vector<std::uint64_t> numbers(1 + random_.below(rows_max_));
          budget_of_rows -= std::min<std::uint64_t>(budget_of_rows, numbers.size());
          for (std::uint64_t& id : numbers) {
            id = random_.below(ids) * spread - (random_.chance(0.1) ? 5 : 0);
            if (form_->rows->key_bytes() == 4) id &= 0xFFFF'FFFF;
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
    for (std::uint64_t row = 0; row < view.rows; ++row) {
      std::uint64_t id = 0;
      std::memcpy(&id, view.ids.values + row * view.ids.value_bytes, view.ids.value_bytes);
      rows.emplace_back(id, step_of(row_key).value());
    }
    return rows;
  }

  // ---- the carrier

  void offer(std::size_t from, PublishEffect effect) {
    const std::size_t to = agents_[from].sift->geometry().position_of(effect.member);
    ASSERT_LT(to, agents_.size());
    auto over = std::make_shared<bool>(false);
    const std::uint64_t life = agents_[from].incarnation;
    const auto answered = [this, from, life, over, token = effect.token](const Status& status) {
      if (std::exchange(*over, true) || agents_[from].incarnation != life) return;
      Effects effects;
      agents_[from].sift->on_published(token, status, now_, effects);
      carry_out(from, effects);
    };
    at(now_ + faults_.patience_ns + random_.below(millisecond_ns),
       [answered] { answered(fail(Error::timeout, "no answer")); });
    const auto bytes = decode_piece_header(encode(effect.header));
    ASSERT_TRUE(bytes) << bytes.error().message;
    const std::uint32_t times = random_.chance(faults_.repeated) ? 2 : 1;
    for (std::uint32_t i = 0; i < times; ++i) {
      if (random_.chance(faults_.offer_lost)) continue;
      at(now_ + 1 + random_.below(faults_.delay_max_ns),
         [this, to, answered, header = *bytes, frame = effect.frame] { deliver(to, header, frame, answered); });
    }
  }

  void deliver(std::size_t to, const PieceHeader& header, const FramePtr& frame,
               const std::function<void(const Status&)>& answered) {
    Agent& agent = agents_[to];
    if (agent.away_until > now_ || !agent.is_up()) return;
    const std::uint64_t token = agent.next_token++;
    agent.answers[token] = [this, answered](const Status& status) {
      if (random_.chance(faults_.answer_lost)) return;
      at(now_ + 1 + random_.below(faults_.delay_max_ns), [answered, status] { answered(status); });
    };
    agent.offered[token] = frame;
    Effects effects;
    agent.sift->on_offer(token, header, frame == nullptr ? 0 : frame->bytes, nullptr, now_, effects);
    carry_out(to, effects);
  }

  // A copy in the puller's own memory, as a link makes it.
  Result<FramePtr> pull(Agent& agent, std::uint64_t token) {
    const FramePtr source = agent.offered.at(token);
    if (random_.chance(faults_.pull_fails)) return fail(Error::peer_lost, "the link broke");
    auto copy = std::make_shared<service::Frame>();
    OFP_ASSIGN(copy->buffer, agent.memory.cache->take(source->bytes, 7));
    std::memcpy(copy->buffer.data(), source->buffer.data(), source->bytes);
    copy->bytes = source->bytes;
    copy->rows = source->rows;
    copy->arrow = true;
    if (random_.chance(faults_.corrupted)) {
      const auto view = form_->rows->view({copy->buffer.data(), copy->bytes}).value();
      const_cast<std::byte&>(view.ids.values[random_.below(view.rows * view.ids.value_bytes)]) ^= std::byte{16};
    }
    return copy;
  }

  void carry_out(std::size_t i, Effects& effects) {
    Agent& agent = agents_[i];
    const std::uint64_t life = agent.incarnation;
    for (Effect& effect : effects) {
      if (auto* answer = std::get_if<StoredEffect>(&effect)) {
        const auto node = agent.answers.extract(answer->token);
        ASSERT_FALSE(node.empty()) << "an answer nobody waits for, or the second one";
        agent.offered.erase(answer->token);
        node.mapped()(answer->status);
      } else if (auto* publish = std::get_if<PublishEffect>(&effect)) {
        offer(i, std::move(*publish));
      } else if (auto* wanted = std::get_if<AdmitEffect>(&effect)) {
        at(now_ + 1 + random_.below(faults_.delay_max_ns), [this, i, life, token = wanted->token] {
          if (agents_[i].incarnation != life) return;
          Effects next;
          agents_[i].sift->on_pulled(token, pull(agents_[i], token), now_, next);
          carry_out(i, next);
        });
      } else if (auto* job = std::get_if<JobEffect>(&effect)) {
        at(now_ + 1 + random_.below(2 * agent.job_ns), [this, i, life, job = std::move(*job)] {
          if (agents_[i].incarnation != life) return;
          const Status status = random_.chance(0.02) ? Status(fail(Error::no_memory, "drawn")) : job.run();
          check_budgets(agents_[i]);
          Effects next;
          agents_[i].sift->on_job(job.token, status, now_, next);
          carry_out(i, next);
        });
      } else if (auto* flushed = std::get_if<FlushedEffect>(&effect)) {
        const auto node = agent.flushes.extract(flushed->token);
        ASSERT_FALSE(node.empty());
        node.mapped()(flushed->status);
      } else if (auto* kept = std::get_if<KeepEffect>(&effect)) {
        keep(i, std::move(*kept));
      } else if (auto* forgotten = std::get_if<ForgetEffect>(&effect)) {
        forget(i, *forgotten);
      } else if (auto* asked = std::get_if<ReadEffect>(&effect)) {
        read(i, *asked);
      }
    }
    check_budgets(agent);
    arm(i);
  }

  void arm(std::size_t i) {
    const TimeNs next = agents_[i].sift->next_deadline();
    if (next == never || agents_[i].timer_at <= next) return;
    agents_[i].timer_at = next;
    at(std::max(next, now_), [this, i, life = agents_[i].incarnation] {
      if (agents_[i].incarnation != life) return;
      agents_[i].timer_at = never;
      Effects effects;
      agents_[i].sift->on_time(now_, effects);
      carry_out(i, effects);
      arm(i);
    });
  }

  void check_budgets(const Agent& agent) {
    if (!agent.is_up()) return;
    std::uint64_t allowed = agent.sift->track_bytes() * 2 + (1 << 20);  // a run that is made has its sources beside it
    for (std::uint32_t stage = 1; stage <= settings_.track_stage(); ++stage) {
      const StageCounters& counters = agent.sift->counters(stage);
      ASSERT_LE(counters.used_bytes_peak, settings_.budget_bytes);
      allowed += counters.used_bytes;
    }
    // Freed memory counts as used until a job has returned it to the kernel, and that job does not run at once here.
    ASSERT_LE(agent.memory.cache->used_bytes(), allowed + agent.memory.cache->leaving_bytes());
  }

  // ---- time

  void at(TimeNs when, std::function<void()> what) { events_.emplace(when, std::move(what)); }

  bool step() {
    if (events_.empty() || ::testing::Test::HasFailure()) return false;
    auto first = events_.extract(events_.begin());
    now_ = first.key();
    first.mapped()();
    if (faults_.offer_lost > 0 && random_.chance(0.001))
      agents_[random_.below(agents_.size())].away_until = now_ + random_.below(200 * millisecond_ns);
    return true;
  }
  void step_until(TimeNs when) {
    while (!events_.empty() && events_.begin()->first <= when && step()) {
    }
    now_ = std::max(now_, when);
  }
  void run_until(const std::function<bool()>& done) {
    const TimeNs end = now_ + 3600 * second_ns;
    while (!done() && now_ < end)
      if (!step()) break;
    if (!::testing::Test::HasFailure()) {
      ASSERT_TRUE(done()) << "at " << now_ / second_ns << " s the world stands still";
    }
  }

  // ---- what must hold

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
    std::map<Row, int> found;
    for (Agent& agent : agents_) {
      TrackReader reader(agent.sift->tracks(), {}, 1 + random_.below(5000));
      std::pair<std::uint64_t, std::int64_t> before{0, INT64_MIN};
      for (;;) {
        const auto frame = reader.next(program_memory_);
        ASSERT_TRUE(frame) << frame.error().message;
        if (*frame == nullptr) break;
        const RowsView view = form_->answers->view({(*frame)->buffer.data(), (*frame)->bytes}).value();
        for (std::uint64_t row = 0; row < view.rows; ++row) {
          const auto step = load<std::int64_t>(view.columns[0].values + row * 8);
          std::uint64_t id = 0;
          std::memcpy(&id, view.ids.values + row * view.ids.value_bytes, view.ids.value_bytes);
          ++found[{id, step}];
          const std::pair key{key_of(*form_->rows, id), step};
          ASSERT_LE(before, key) << "the order of (identifier, step)";
          before = key;
          ASSERT_EQ(wrong_row(*form_->rows, view, row, step, 1), "");
        }
      }
      for (std::uint32_t stage = 1; stage <= settings_.track_stage(); ++stage)
        repeated_ += agent.sift->counters(stage).repeated;
    }
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
        element = geometry.next(element, settings_.split_bits(element.stage).part_of(row.first));
        holder = geometry.owner(element, holder);
      }
    }
    return false;
  }

  SeededRandom random_;
  bool kills_, kept_;
  std::uint64_t agents_count_ = 1, rows_max_ = 1, flushes_ = 0, repeated_ = 0;
  Settings settings_;
  Faults faults_;
  std::shared_ptr<const TrackForm> form_;
  FrameMemory program_memory_{BufferCache::make({.cached_bytes_max = 1 << 20, .huge_pages = false}), 7};
  std::vector<Agent> agents_;
  std::vector<std::size_t> holders_;  // of their copies
  std::uint64_t copies_ = 0;
  std::multimap<TimeNs, std::function<void()>> events_;
  TimeNs now_ = 0, kill_until_ = 0, full_until_ = 0;
  std::map<Row, int> put_, unknown_;
  std::map<std::size_t, std::set<Row>> by_agent_;
  std::set<std::size_t> killed_;
};

void run_worlds(Kills kills, std::uint64_t worlds) {
  std::uint64_t repeated = 0, copies = 0, waited = 0;
  const bool all = sim::each_seed(worlds, [&](std::uint64_t seed) {
    World world(seed, kills);
    world.run();
    repeated += world.repeated();
    copies += world.copies().first;
    waited += world.copies().second;
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "the world: " << world.describe();
  });
  if (!all) return;
  EXPECT_GT(repeated, 0u) << "no piece was ever offered twice: the faults are not there";
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
