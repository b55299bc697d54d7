// Merges of runs of tracks on one agent, in virtual time: however fast a program puts rows, and whatever the disk does
// to the runs that lie there.
//
// The agent has two threads for jobs, first come, first served, and a disk that writes one object at a time. A program
// has a few puts open at any moment. What must hold:
//   - merges to be made are made in each stretch of time, and the runs that a merge could take stay few
//   - tracks take no more memory than their bound, the lists of blocks included
//   - a block that is lost costs its rows and nothing else; a disk that fails for a while costs nothing
//
// Seeds: seeds.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/log.h"
#include "seeds.h"
#include "sift/sift.h"
#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"
#include "testing/link/seeded_random.h"
#include "testing/pool/memory_unread.h"

namespace offpath::sift {
namespace {

using link::SeededRandom;
using ::testing::HasSubstr;

constexpr std::uint64_t rows_of_put = 400, ids = 3000;

class World {
 public:
  World(std::uint64_t seed, const std::string& pool, bool kept = false)
      : random_(seed), settings_(parse_settings(pool).value()) {
    sift = Sift::make({.settings = settings_, .self = {"a", 1}, .memory = memory_, .kept = kept}, {"a"}).value();
    if (kept) call([&](Effects& effects) { sift->restore(1, {}, now, effects); });
  }

  // Until so many frames are stored; false: the world stands still before that.
  bool put(std::uint64_t frames) {
    frames_left_ = frames;
    feed();
    return run_until([&] { return frames_left_ == 0 && puts_open_ == 0; });
  }
  bool flush() {
    bool over = false;
    flushed_ = [&](const Status& status) {
      over = true;
      EXPECT_TRUE(status) << status.error().message;
    };
    call([&](Effects& effects) { sift->on_flush(0, ++flushes_, now + 1000 * second_ns, now, effects); });
    return run_until([&] { return over; });
  }
  // Until nothing happens any more for so long.
  void rest(TimeNs during) {
    const TimeNs end = now + during;
    while (!events_.empty() && events_.begin()->first <= end && step()) {
    }
    now = std::max(now, end);
  }

  [[nodiscard]] const FrameMemory& program() const { return program_; }
  [[nodiscard]] const StageCounters& counters() const { return sift->counters(settings_.track_stage()); }
  // The largest number of mergeable runs of one element.
  [[nodiscard]] std::size_t small_runs() const {
    std::size_t most = 0;
    const TrackSnapshot tracks = sift->tracks();
    for (const auto& group : tracks.groups()) {
      const auto small = std::ranges::count_if(group.runs, [&](const auto& run) {
        return run->bytes() <= sift->track_memory().run_bytes_max() / 2 && !run->is_damaged();
      });
      most = std::max(most, static_cast<std::size_t>(small));
    }
    return most;
  }
  // Some element has runs that are to be merged.
  [[nodiscard]] bool is_merge_due() const {
    const TrackSnapshot tracks = sift->tracks();
    return std::ranges::any_of(tracks.groups(), [&](const auto& group) {
      TrackRuns runs;
      for (const auto& run : group.runs) runs.add(run);
      return runs.can_merge(sift->track_memory().run_bytes_max(), now);
    });
  }
  // All rows of the identifier, or why they cannot be read.
  Result<std::vector<std::int64_t>> steps_of(std::uint64_t id) {
    TrackReader reader(sift->tracks(), {.identifiers = {{id}}}, 100'000);
    std::vector<std::int64_t> steps;
    for (;;) {
      OFP_ASSIGN(const FramePtr frame, reader.next(program_));
      if (frame == nullptr) return steps;
      const RowsView view = form_->answers->view({frame->buffer.data(), frame->bytes}).value();
      for (std::uint64_t row = 0; row < view.rows; ++row) {
        steps.push_back(load<std::int64_t>(view.columns[0].values + row * 8));
        EXPECT_EQ(wrong_row(*form_->rows, view, row, steps.back(), 1), "");
      }
    }
  }
  void expect_all_rows() {
    for (const auto& [id, steps] : stored) {
      const auto found = steps_of(id);
      ASSERT_TRUE(found) << found.error().message;
      ASSERT_EQ(*found, steps) << "identifier " << id;
    }
  }

  // Changes a byte of a block of some run that is on disk: of one that may be merged, or of another. False: there is
  // none.
  bool corrupt_a_block(bool may_be_merged) {
    const TrackSnapshot tracks = sift->tracks();
    for (const auto& group : tracks.groups())
      for (const auto& run : group.runs) {
        if (run->is_in_memory() || run->is_damaged() || corrupt.contains(run)) continue;
        if (may_be_merged != (run->bytes() <= sift->track_memory().run_bytes_max() / 2)) continue;
        const std::size_t number = random_.below(run->blocks().size());
        const RunBlock& block = run->blocks()[number];
        for (auto& [name, object] : disk_) {
          if (object.run != run->object().get()) continue;
          object.bytes[block.at + random_.below(block.bytes)] ^= std::byte{8};
          corrupt.emplace(run, number);
          return true;
        }
      }
    return false;
  }

  std::unique_ptr<Sift> sift;
  TimeNs now = 0;
  TimeNs job_ns = millisecond_ns, write_ns = 20 * millisecond_ns;
  bool full_for_merges = false;                                    // the disk: for more rows than a put has
  std::function<bool()> fails_reading;                             // for the moment
  std::map<std::uint64_t, std::vector<std::int64_t>> stored;       // by identifier, in order
  std::map<std::shared_ptr<const TrackRun>, std::size_t> corrupt;  // the block of each run
  std::size_t small_runs_most = 0;
  std::uint64_t waited = 0;  // jobs after which pieces waited for sorts

 private:
  struct Object {
    std::vector<std::byte> bytes;
    const service::Frame* run = nullptr;  // the frame that reads it
  };

  void call(const std::function<void(Effects&)>& what) {
    Effects effects;
    what(effects);
    carry_out(effects);
    if (settings_.spills()) {
      ASSERT_LE(sift->track_memory().memory_bytes(), settings_.tracks_budget_bytes);
    }
    const TimeNs next = sift->next_deadline();
    if (next == never || timer_at_ <= next) return;
    timer_at_ = next;
    at(std::max(next, now), [this] {
      timer_at_ = never;
      call([&](Effects& more) { sift->on_time(now, more); });
    });
  }

  void feed() {
    while (frames_left_ > 0 && puts_open_ < 4) {
      --frames_left_;
      ++puts_open_;
      const std::int64_t step = ++step_;
      std::set<std::uint64_t> drawn;
      while (drawn.size() < rows_of_put) drawn.insert(random_.below(ids));
      const std::vector<std::uint64_t> numbers(drawn.begin(), drawn.end());
      const std::uint64_t token = next_token_++;
      puts_[token] = [this, numbers, step] {
        for (const std::uint64_t id : numbers) {
          std::vector<std::int64_t>& steps = stored[id];
          steps.insert(std::ranges::upper_bound(steps, step), step);
        }
        --puts_open_;
        at(now + 1, [this] { feed(); });
      };
      const FramePtr frame = particle_frame(*form_->rows, numbers, step, program_);
      call([&](Effects& effects) { sift->on_put(token, fmt::format("step{}", step), frame, now, effects); });
    }
  }

  void carry_out(Effects& effects) {
    for (Effect& effect : effects) {
      if (auto* answer = std::get_if<StoredEffect>(&effect)) {
        ASSERT_TRUE(answer->status) << answer->status.error().message;
        if (const auto put = puts_.extract(answer->token)) {
          put.mapped()();
          continue;
        }
        const std::uint64_t published = offers_.extract(answer->token).mapped();
        at(now + 1, [this, published] { call([&](Effects& more) { sift->on_published(published, {}, now, more); }); });
      } else if (auto* publish = std::get_if<PublishEffect>(&effect)) {
        const std::uint64_t token = next_token_++;
        offers_[token] = publish->token;
        at(now + 1, [this, token, header = publish->header, frame = publish->frame] {
          call([&](Effects& more) {
            sift->on_offer(token, header, frame == nullptr ? 0 : frame->bytes, frame, now, more);
          });
        });
      } else if (auto* job = std::get_if<JobEffect>(&effect)) {
        jobs_.push_back(std::move(*job));
        begin_jobs();
      } else if (auto* kept = std::get_if<KeepEffect>(&effect)) {
        write(kept->name, kept->object, [this, token = kept->token](const Status& status) {
          call([&](Effects& more) { sift->on_kept(token, status, now, more); });
        });
      } else if (auto* leaving = std::get_if<SpillEffect>(&effect)) {
        const auto done = [this, token = leaving->token, name = leaving->name](const Status& status) {
          call([&](Effects& more) {
            sift->on_spilled(token, status ? unread(name) : Result<FramePtr>(tl::unexpected(status.error())), now,
                             more);
          });
        };
        if (disk_.contains(leaving->name))
          at(now + 1, [done] { done({}); });
        else
          write(leaving->name, leaving->object, done);
      } else if (auto* forgotten = std::get_if<ForgetEffect>(&effect)) {
        disk_.erase(forgotten->name);
      } else if (auto* flushed = std::get_if<FlushedEffect>(&effect)) {
        flushed_(flushed->status);
      }
    }
  }

  void begin_jobs() {
    constexpr std::size_t threads = 2;
    while (busy_ < threads && !jobs_.empty()) {
      ++busy_;
      at(now + 1 + random_.below(2 * job_ns), [this, job = std::move(jobs_.front())] {
        const Status status = job.run();
        --busy_;
        call([&](Effects& more) { sift->on_job(job.token, status, now, more); });
        begin_jobs();
        small_runs_most = std::max(small_runs_most, small_runs());
        waited += counters().offers_waiting > 0 ? 1 : 0;
      });
      jobs_.pop_front();
    }
  }

  // One at a time.
  void write(const std::string& name, const FramePtr& object, const std::function<void(const Status&)>& done) {
    disk_free_at_ = std::max(disk_free_at_, now) + 1 + random_.below(2 * write_ns);
    at(disk_free_at_, [this, name, object, done] {
      if (object == nullptr) return done(fail(Error::no_memory, "no memory"));
      if (full_for_merges && object->rows > rows_of_put)
        return done(fail(Error::no_space, "/disk/{}: No space left on device", name));
      const Bytes bytes(object->buffer.data(), object->bytes);
      disk_[name] = {{bytes.begin(), bytes.end()}};
      done({});
    });
  }

  FramePtr unread(const std::string& name) {
    Object& object = disk_.at(name);
    FramePtr frame = pool::MemoryUnread::frame(object.bytes.size(), 0, memory_.cache, [this, name]() -> Result<Bytes> {
      if (fails_reading && fails_reading()) return fail(Error::io, "/disk/{}: read: Input/output error", name);
      const auto found = disk_.find(name);
      if (found != disk_.end()) return Bytes(found->second.bytes);
      ADD_FAILURE() << "'" << name << "' is read, and was forgotten";
      return fail(Error::io, "none");
    });
    object.run = frame.get();
    return frame;
  }

  void at(TimeNs when, std::function<void()> what) { events_.emplace(when, std::move(what)); }
  bool step() {
    if (events_.empty() || ::testing::Test::HasFailure()) return false;
    const auto first = events_.extract(events_.begin());
    now = first.key();
    first.mapped()();
    return true;
  }
  bool run_until(const std::function<bool()>& done) {
    const TimeNs end = now + 600 * second_ns;
    while (!done() && now < end && step()) {
    }
    return done();
  }

  SeededRandom random_;
  Settings settings_;
  std::shared_ptr<const TrackForm> form_ = TrackForm::make(particle_schema(), "id").value();
  FrameMemory memory_{BufferCache::make({.cached_bytes_max = 1 << 20, .huge_pages = false}), 7},
      program_{BufferCache::make({.cached_bytes_max = 1 << 20, .huge_pages = false}), 7};
  std::multimap<TimeNs, std::function<void()>> events_;
  TimeNs timer_at_ = never, disk_free_at_ = 0;
  std::deque<JobEffect> jobs_;
  std::size_t busy_ = 0;
  std::map<std::string, Object> disk_;
  std::uint64_t next_token_ = 1, frames_left_ = 0, puts_open_ = 0, flushes_ = 0;
  std::int64_t step_ = 0;
  std::map<std::uint64_t, std::function<void()>> puts_;
  std::map<std::uint64_t, std::uint64_t> offers_;
  std::function<void(const Status&)> flushed_;
};

std::string pool_of(std::uint64_t seed, const char* more) {
  return fmt::format("sift:/t?key=id&fanout={}&threshold={}&budget=2MiB&age=5ms{}", 2 << seed % 3, 4096 << seed / 3 % 3,
                     more);
}

// Slow disk, slow threads, or neither: sorts wait for room nearly always, and merges with them.
TEST(SiftMergeSim, MergesGoOnAndRunsStayFewHoweverFastProgramsPut) {
  std::uint64_t waited = 0, due = 0;
  const bool all = sim::each_seed(8, [&](std::uint64_t seed) {
    const bool kept = seed % 4 == 3;
    World world(seed,
                pool_of(seed, kept            ? "&spill=durable&tracks_budget=1MiB"
                              : seed % 4 == 0 ? ""
                                              : "&spill=on&tracks_budget=1MiB"),
                kept);
    if (seed % 2 == 0) world.job_ns = 10 * millisecond_ns;
    if (seed % 3 == 0) world.write_ns = 60 * millisecond_ns;
    for (const std::uint64_t frames : {80, 120, 120}) {
      // Sorts that waited long may make runs that are too large to be merged: then none is due.
      const bool is_due = world.is_merge_due();
      const std::uint64_t merges = world.counters().merges;
      ASSERT_TRUE(world.put(frames)) << "the world stands still";
      if (is_due) {
        EXPECT_GT(world.counters().merges, merges) << "after " << frames << " frames";
      }
      due += is_due ? 1 : 0;
    }
    EXPECT_GT(world.counters().merges, 0u);
    EXPECT_LE(world.small_runs_most, TrackRuns::waiting_runs_max + 4);
    waited += world.waited;
    ASSERT_TRUE(world.flush());
    world.expect_all_rows();
  });
  if (all) {
    EXPECT_GT(due, 8u) << "few stretches began with a merge to be made";
    EXPECT_GT(waited, 0u) << "programs were never held back: sorts did not wait";
  }
}

std::vector<std::string> lines;  // of the log, from warnings on
void note_line(LogLevel level, std::string_view line, void*) {
  if (level >= LogLevel::warning) lines.emplace_back(line);
}

TEST(SiftMergeSim, ABlockThatIsLostCostsItsRowsAndNothingElse) {
  set_log(LogLevel::info, note_line, nullptr);
  std::uint64_t failures = 0;
  const bool all = sim::each_seed(8, [&](std::uint64_t seed) {
    lines.clear();
    World world(seed, pool_of(seed, "&spill=on&tracks_budget=1MiB"));
    ASSERT_TRUE(world.put(60));
    for (int turn = 0; turn < 6; ++turn) {
      world.corrupt_a_block(turn % 3 != 0);
      ASSERT_TRUE(world.put(40)) << "the world stands still";
    }
    ASSERT_TRUE(world.flush());
    world.rest(10 * second_ns);
    ASSERT_FALSE(world.corrupt.empty());
    EXPECT_LE(world.small_runs_most, TrackRuns::waiting_runs_max + 4);
    std::size_t lost = 0;
    for (const auto& [id, steps] : world.stored) {
      const bool in_lost_block = std::ranges::any_of(world.corrupt, [&, id = id](const auto& each) {
        const RunBlock& block = each.first->blocks()[each.second];
        return block.first_key <= id && id <= block.last_key && each.first->find_block(id).has_value();
      });
      const auto found = world.steps_of(id);
      if (found) {
        ASSERT_EQ(*found, steps) << "identifier " << id;
        continue;
      }
      ++lost;
      ASSERT_TRUE(in_lost_block) << id << ": " << found.error().message;
      ASSERT_EQ(found.error().code, Error::io);
      ASSERT_THAT(found.error().message, HasSubstr("in a file in memory, is corrupt"));
    }
    EXPECT_GT(lost, 0u);
    failures += world.counters().merge_failures;
    std::uint64_t left = 0;  // a merge may have read one before it changed
    const TrackSnapshot tracks = world.sift->tracks();
    for (const auto& group : tracks.groups())
      for (const auto& run : group.runs) {
        if (!world.corrupt.contains(run)) continue;
        ++left;
        // A look-up ends at the first such block, so some may not have been read.
        EXPECT_FALSE(run->block(world.corrupt.at(run), world.program()));
      }
    const auto [runs, damaged] = world.sift->track_memory().count_runs();
    EXPECT_EQ(damaged, left);
    EXPECT_EQ(lines.size(), damaged) << "each is logged once";
    for (const std::string& line : lines) {
      EXPECT_THAT(line, HasSubstr("in a file in memory, is corrupt: its checksum is"));
      EXPECT_THAT(line, HasSubstr("Check the disk"));
    }
  });
  set_log(LogLevel::off, nullptr, nullptr);
  if (all) {
    EXPECT_GT(failures, 0u) << "no merge met a block that is lost";
  }
}

TEST(SiftMergeSim, ADiskThatFailsForAWhileDelaysMergesAndLosesNothing) {
  set_log(LogLevel::info, note_line, nullptr);
  std::uint64_t failures = 0;
  const bool all = sim::each_seed(8, [&](std::uint64_t seed) {
    lines.clear();
    const bool kept = seed % 2 == 0;
    World world(seed, pool_of(seed, kept ? "&spill=durable&tracks_budget=1MiB" : "&spill=on&tracks_budget=1MiB"), kept);
    ASSERT_TRUE(world.put(60));
    SeededRandom random(seed);
    world.fails_reading = [&] { return random.chance(0.3); };
    ASSERT_TRUE(world.put(60));
    const std::uint64_t before = world.counters().merge_failures;
    world.fails_reading = [] { return true; };
    world.rest(300 * second_ns);
    // From 10 ms, doubled each time: 15 in that time for each run on disk, and not one a moment.
    EXPECT_LT(world.counters().merge_failures - before, 16 * world.sift->track_memory().count_runs().first);
    failures += world.counters().merge_failures;
    const auto told = lines.size();
    EXPECT_LE(told, world.counters().merge_failures);
    for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr("tries again"));
    world.fails_reading = nullptr;
    ASSERT_TRUE(world.put(60));
    ASSERT_TRUE(world.flush());
    world.rest(120 * second_ns);
    EXPECT_LE(world.small_runs(), 16u) << "they were merged afterwards";
    EXPECT_EQ(world.sift->track_memory().count_runs().second, 0u);
    world.expect_all_rows();
  });
  set_log(LogLevel::off, nullptr, nullptr);
  if (all) {
    EXPECT_GT(failures, 20u);
  }
}

// The disk is full when a merged run is to be kept, and only then.
TEST(SiftMergeSim, AMergeThatFindsNoSpaceIsTriedAgainWithAGrowingPause) {
  set_log(LogLevel::info, note_line, nullptr);
  lines.clear();
  World world(1, "sift:/t?key=id&fanout=2&threshold=4096&budget=2MiB&age=5ms&spill=durable", true);
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(world.put(1) && world.flush());
  world.rest(second_ns);
  world.full_for_merges = true;
  const std::uint64_t merges = world.counters().merges;
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(world.put(1) && world.flush());
  world.rest(200 * second_ns);
  EXPECT_EQ(world.counters().merges, merges);
  EXPECT_GT(world.counters().merge_failures, 10u);
  EXPECT_LT(world.counters().merge_failures, 60u);
  ASSERT_LE(lines.size(), 2u) << "once for each element";
  ASSERT_GE(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("No space left on device"));
  EXPECT_THAT(lines[0], HasSubstr("make room"));
  world.full_for_merges = false;
  world.rest(61 * second_ns);
  EXPECT_GT(world.counters().merges, merges);
  EXPECT_LT(world.small_runs(), 8u);
  world.expect_all_rows();
  set_log(LogLevel::off, nullptr, nullptr);
}

TEST(SiftMergeSim, ListsOfBlocksAreChargedAndHoldBackProgramsWhenTheyHaveHalfOfTheBudget) {
  set_log(LogLevel::info, note_line, nullptr);
  lines.clear();
  World world(1, "sift:/t?key=id&fanout=2&threshold=4096&budget=2MiB&age=5ms&spill=on&tracks_budget=256KiB");
  world.job_ns = world.write_ns = 100 * microsecond_ns;
  EXPECT_FALSE(world.put(2000)) << "40 megabytes in blocks of 4 KiB have lists of half a megabyte";
  const TrackMemory& tracks = world.sift->track_memory();
  EXPECT_GT(tracks.list_bytes(), 128u << 10);
  EXPECT_LE(tracks.memory_bytes(), 256u << 10);
  EXPECT_THAT(tracks.held_back(), HasSubstr("over half of tracks_budget=262144"));
  EXPECT_EQ(std::ranges::count_if(lines,
                                  [](const std::string& line) {
                                    return line.find("programs are held back: the lists of blocks") !=
                                           std::string::npos;
                                  }),
            1);
  std::uint64_t listed = 0;
  const TrackSnapshot snapshot = world.sift->tracks();
  for (const auto& group : snapshot.groups())
    for (const auto& run : group.runs) listed += run->blocks().size() * sizeof(RunBlock);
  EXPECT_EQ(tracks.list_bytes(), listed);
  set_log(LogLevel::off, nullptr, nullptr);
}

}  // namespace
}  // namespace offpath::sift
