#include "sift/elements/restoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "testing/sift/one_sift.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

constexpr const char* kept_text = "sift:/t?key=id&fanout=2&threshold=32KiB&budget=4MiB&spill=durable";

// Runs of tracks, a split with unanswered parts, and pieces that were not split.
void take_some(OneSift& agent) {
  std::int64_t step = 0;
  const auto put = [&](std::uint64_t rows) {
    agent.sift->on_put(static_cast<std::uint64_t>(step), fmt::format("step{:04}", step), agent.frame(100, rows, step),
                       0, agent.effects);
    ++step;
  };
  for (int i = 0; i < 3; ++i) {
    put(1500);
    agent.run();
    agent.flush();
  }
  put(1500);
  agent.run(false);
  put(100);
  agent.run(false);
}

TEST(Restoring, ReadErrorsAtARestartLoseNothing) {
  OneSift before(kept_text, {"a"}, "a", true);
  before.restore({});
  take_some(before);
  for (const char* kind : {"piece", "split", "run"})
    EXPECT_TRUE(std::ranges::any_of(before.store, [&](const auto& each) { return each.first.starts_with(kind); }))
        << kind << " of " << before.store.begin()->first;
  OneSift after(kept_text, {"a"}, "a", true);
  std::map<std::string, int> failures;
  after.fails_reading = [&](const std::string& name) -> std::optional<Failure> {
    if (++failures[name] > 5) return std::nullopt;
    return Failure{Error::io, "the disk fails"};
  };
  after.restore(before.store);
  for (int looks = 0; looks < 100; ++looks) {
    after.run();
    if (after.sift->next_deadline() == never) break;
    after.now = std::max(after.now, after.sift->next_deadline());
    after.sift->on_time(after.now, after.effects);
  }
  ASSERT_TRUE(after.sift->is_restored());
  after.flush();
  EXPECT_EQ(after.sift->tracks().rows(), 4u * 1500 + 100);
  for (std::uint32_t stage = 1; stage <= 2; ++stage) EXPECT_EQ(after.sift->counters(stage).lost, 0u) << stage;
}

// As one that was made by an agent that charges less for sorts.
TEST(Restoring, TheLargestSplitThatTheBudgetCanHoldComesBack) {
  const auto pool = [](std::uint64_t budget) {
    return fmt::format("sift:/t?key=id&fanout=4&threshold=1MiB&budget={}&spill=durable", budget);
  };
  OneSift before(pool(8 << 20), {"a"}, "a", true);
  before.restore({});
  const auto put = [&](std::int64_t step) {
    before.sift->on_put(static_cast<std::uint64_t>(step), fmt::format("{}", step), before.frame(0, 1500, step), 0,
                        before.effects);
    before.run(false);
  };
  put(1);
  before.flush();
  for (std::int64_t step = 2; step < 10; ++step) put(step);
  before.sift->on_flush(78, ++before.flushes, never, 0, before.effects);
  before.run(false);
  EXPECT_EQ(before.sift->counters(1).splits, 2u);

  std::uint64_t budget = parts_bytes_max(0, 0, 4, before.form->overhead_bytes());
  for (const auto& [name, object] : before.store)
    if (name.starts_with("piece")) budget += BufferCache::class_bytes(object->bytes) + object->bytes / 8 * 9 + 8;
  OneSift after(pool(budget), {"a"}, "a", true);
  after.restore(before.store);
  after.run();
  EXPECT_EQ(after.sift->counters(1).restored, 8u);
  after.flush();
  EXPECT_EQ(after.sift->tracks().rows(), 9u * 1500);
}

// How much a split takes beside its rows is known once a frame is. Pieces whose removal was undone come back as well.
TEST(Restoring, MorePiecesThanTheBudgetHoldsLeaveRoomForTheirSplits) {
  const auto pool = [](const char* budget) {
    return fmt::format("sift:/t?key=id&fanout=4&threshold=64KiB&budget={}&spill=durable", budget);
  };
  OneSift before(pool("64MiB"), {"a"}, "a", true);
  before.restore({});
  for (std::int64_t step = 1; step <= 100; ++step)
    before.sift->on_put(static_cast<std::uint64_t>(step), fmt::format("{}", step), before.frame(0, 10, step), 0,
                        before.effects);
  before.run_jobs();
  before.keep();
  EXPECT_EQ(before.store.size(), 100u);

  OneSift after(pool("512KiB"), {"a"}, "a", true);
  after.restore(before.store);
  after.run();
  after.flush();
  EXPECT_EQ(after.sift->tracks().rows(), 100u * 10);
}

// A kept piece of text with an offset that is as `change` makes it, in the next life.
class RestoredText {
 public:
  RestoredText(std::uint64_t rows, const std::function<void(std::byte* offsets)>& change) {
    frame::Schema schema = particle_schema();
    schema.fields[0].type = frame::Type::utf8;
    const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
    OneSift before(text, {"a"}, "a", true);
    before.restore({});
    before.sift->on_put(1, "1", particle_frame(*form, std::vector<std::uint64_t>(rows, 5), 1, before.program), 0,
                        before.effects);
    before.run_jobs();
    before.keep();
    OFP_ASSERT(before.store.size() == 1);
    const FramePtr object = before.store.begin()->second;
    const KeptParts parts = open_kept({object->buffer.data(), object->bytes}).value();
    change(const_cast<std::byte*>(form->view(parts.body).value().ids.values));
    after.restore(before.store);
    after.keep();
  }
  [[nodiscard]] const StageCounters& counters() const { return after.sift->counters(1); }

  static constexpr const char* text = "sift:/t?key=id&by=hash&fanout=2&threshold=32MiB&budget=256MiB&spill=durable";
  OneSift after{text, {"a"}, "a", true};
};

TEST(Restoring, ManyIdentifiersOfAnyLengthThatComeBackAreCheckedInAJob) {
  const auto nothing = [](std::byte*) {};
  const auto wrong = [](std::byte* offsets) { store(offsets + 8, std::uint32_t{1} << 30); };
  RestoredText few(10, nothing);
  EXPECT_EQ(few.counters().restored, 1u) << "at once";
  EXPECT_EQ(RestoredText(10, wrong).counters().lost, 1u);

  RestoredText many(40'000, nothing);
  EXPECT_EQ(many.counters().restored, 0u) << "before its job";
  EXPECT_FALSE(many.after.sift->idle());
  many.after.run_jobs();
  EXPECT_EQ(many.counters().restored, 1u);
  many.after.flush();
  EXPECT_EQ(many.after.sift->tracks().rows(), 40'000u);

  RestoredText damaged(40'000, wrong);
  damaged.after.run_jobs();
  EXPECT_EQ(damaged.counters().lost, 1u);
  EXPECT_EQ(damaged.counters().used_bytes, 0u);
  EXPECT_TRUE(damaged.after.sift->idle());
}

TEST(Restoring, APieceThatComesBackIsReadAgainIfItsCheckCouldNotBeMade) {
  RestoredText many(40'000, [](std::byte*) {});
  const auto jobs = many.after.take<JobEffect>();
  ASSERT_EQ(jobs.size(), 1u);
  many.after.sift->on_job(jobs[0].token, fail(Error::no_memory, "none"), 0, many.after.effects);
  EXPECT_EQ(many.counters().lost, 0u);
  many.after.now = many.after.sift->next_deadline();
  ASSERT_NE(many.after.now, never);
  many.after.sift->on_time(many.after.now, many.after.effects);
  many.after.run();
  EXPECT_EQ(many.counters().restored, 1u);
}

TEST(Restoring, TheNameOfARunThatIsLostIsNotGivenAgain) {
  OneSift before(kept_text, {"a"}, "a", true);
  before.restore({});
  take_some(before);
  std::map<ElementId, std::uint64_t> newest;
  for (const auto& [name, object] : before.store)
    if (const auto kept = KeptName::parse(name); kept->kind == KeptName::Kind::run)
      newest[kept->element] = std::max(newest[kept->element], kept->number);
  ASSERT_FALSE(newest.empty());
  OneSift after(kept_text, {"a"}, "a", true);
  after.fails_reading = [&](const std::string& name) -> std::optional<Failure> {
    const auto kept = KeptName::parse(name);
    if (kept->kind != KeptName::Kind::run || kept->number != newest.at(kept->element)) return std::nullopt;
    return Failure{Error::not_found, "lost"};
  };
  after.restore(before.store);
  after.run();
  ASSERT_TRUE(after.sift->is_restored());
  after.flush();
  std::size_t runs = 0;
  for (const std::string& name : after.names)
    if (const auto kept = KeptName::parse(name); kept->kind == KeptName::Kind::run) {
      ++runs;
      EXPECT_GT(kept->number, newest.at(kept->element)) << name;
    }
  EXPECT_GT(runs, 0u);
}

}  // namespace
}  // namespace offpath::sift
