#include "sift/sift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

// One agent whose effects the test handles one by one.
class OneAgent {
 public:
  explicit OneAgent(std::string_view name, std::vector<std::string> members = {"a"}, std::string self = "a",
                    bool kept = false)
      : sift(Sift::make({.settings = parse_settings(name).value(), .self = {self, 1}, .memory = memory, .kept = kept},
                        members)
                 .value()) {}

  template <class Kind>
  std::vector<Kind> take() {
    std::vector<Kind> found;
    for (Effect& effect : effects)
      if (auto* kind = std::get_if<Kind>(&effect)) found.push_back(std::move(*kind));
    std::erase_if(effects, [](const Effect& effect) { return std::holds_alternative<Kind>(effect); });
    return found;
  }
  void run_jobs() {
    for (std::vector<JobEffect> jobs = take<JobEffect>(); !jobs.empty(); jobs = take<JobEffect>())
      for (const JobEffect& job : jobs) sift->on_job(job.token, job.run(), now, effects);
  }
  // Publishes to itself until nothing is left to do. Without `publishes` published pieces stay in the list.
  void run(bool publishes = true) {
    constexpr std::uint64_t own = 1'000'000;
    for (bool any = true; any;) {
      run_jobs();
      any = keep();
      for (const PublishEffect& each : publishes ? take<PublishEffect>() : std::vector<PublishEffect>{}) {
        any = true;
        sift->on_offer(own + each.token, each.header, each.frame ? each.frame->bytes : 0, each.frame, now, effects);
      }
      for (const StoredEffect& answer : take<StoredEffect>()) {
        any = true;
        if (answer.token >= own) sift->on_published(answer.token - own, answer.status, now, effects);
      }
    }
  }
  // Carries out what a kept pool requests of its store.
  bool keep() {
    bool any = false;
    for (KeepEffect& each : take<KeepEffect>()) {
      any = true;
      names.push_back(each.name);
      store[each.name] = std::move(each.object);
      sift->on_kept(each.token, {}, now, effects);
    }
    for (const ForgetEffect& each : take<ForgetEffect>()) store.erase(each.name);
    for (const ReadEffect& each : take<ReadEffect>()) {
      any = true;
      const auto at = store.find(each.name);
      if (std::optional<Failure> failure = fails_reading ? fails_reading(each.name) : std::nullopt)
        sift->on_read(each.token, tl::unexpected(*failure), now, effects);
      else if (at == store.end())
        sift->on_read(each.token, fail(Error::not_found, "none"), now, effects);
      else
        sift->on_read(each.token, at->second, now, effects);
    }
    return any;
  }
  // Starts another life with the objects of the former one.
  void restore(std::map<std::string, FramePtr> from) {
    store = std::move(from);
    std::vector<KeptItem> items;
    for (const auto& [name, object] : store) items.push_back({name, object->bytes, object->rows});
    sift->restore(1, items, now, effects);
  }
  void flush() {
    sift->on_flush(77, ++flushes, never, now, effects);
    run();
    ASSERT_EQ(take<FlushedEffect>().size(), 1u);
  }
  FramePtr frame(std::uint64_t first, std::uint64_t rows, std::int64_t step) {
    std::vector<std::uint64_t> ids(rows);
    for (std::uint64_t i = 0; i < rows; ++i) ids[i] = first + i;
    return particle_frame(*form, ids, step, program);
  }

  FrameMemory memory{BufferCache::make({.huge_pages = false}), 7}, program{BufferCache::make({.huge_pages = false}), 7};
  std::shared_ptr<const RowForm> form = RowForm::make(particle_schema(), "id").value();
  Effects effects;
  std::unique_ptr<Sift> sift;
  TimeNs now = 0;
  std::uint64_t flushes = 0;
  std::map<std::string, FramePtr> store;
  std::vector<std::string> names;  // names of kept objects
  std::function<std::optional<Failure>(const std::string& name)> fails_reading;
};

// A piece as another agent would offer it, for the element of stage 2 with this index.
std::pair<PieceHeader, FramePtr> offered(OneAgent& agent, std::uint32_t index, std::uint64_t sequence,
                                         std::uint64_t rows, std::int64_t step) {
  std::vector<std::uint64_t> ids(rows);
  for (std::uint64_t i = 0; i < rows; ++i) ids[i] = index + i * agent.sift->geometry().settings().elements(2);
  FramePtr frame = particle_frame(*agent.form, ids, step, agent.program);
  PieceHeader header;
  header.pool = "/t";
  header.element = {2, index};
  header.source = {"b", 1};
  header.sequence = sequence;
  header.overhead_bytes = agent.form->overhead_bytes();
  header.runs = {{step, rows}};
  header.crc32c = seal(header, crc32c(std::as_bytes(std::span(ids))));
  return {header, frame};
}

TEST(Sift, WhatIsPutBecomesTracks) {
  OneAgent agent("sift:/t?key=id&stages=2&fanout=4&threshold=64KiB&budget=4MiB");
  for (std::int64_t step = 0; step < 20; ++step) {
    agent.sift->on_put(static_cast<std::uint64_t>(step), fmt::format("step{:04}", step), agent.frame(100, 500, step), 0,
                       agent.effects);
    agent.run();
  }
  agent.sift->on_flush(77, 1, never, 0, agent.effects);
  agent.run();
  const auto flushed = agent.take<FlushedEffect>();
  ASSERT_EQ(flushed.size(), 1u);
  EXPECT_TRUE(flushed[0].status);
  EXPECT_TRUE(agent.sift->idle());
  const std::uint64_t wanted[] = {123};
  TrackReader reader(agent.sift->tracks(wanted), {.identifiers = {{123}}, .first_step = 5, .last_step = 14}, 1000);
  const FramePtr frame = reader.next(agent.program).value();
  ASSERT_NE(frame, nullptr);
  const auto view = agent.sift->form()->answers->view({frame->buffer.data(), frame->bytes}).value();
  ASSERT_EQ(view.rows, 10u);
  for (std::uint64_t row = 0; row < 10; ++row) {
    EXPECT_EQ(load<std::int64_t>(view.columns[0].values + row * 8), static_cast<std::int64_t>(row + 5));
    EXPECT_EQ(load<std::uint64_t>(view.ids.values + row * 8), 123u);
    EXPECT_EQ(wrong_row(*agent.form, view, row, static_cast<std::int64_t>(row + 5), 1), "");
  }
  EXPECT_EQ(reader.next(agent.program).value(), nullptr);
  for (std::uint32_t stage = 1; stage <= 3; ++stage) EXPECT_EQ(agent.sift->counters(stage).used_bytes, 0u) << stage;
}

TEST(Sift, BadPutsAreAnsweredAndLeaveNothing) {
  OneAgent agent("sift:/t?key=id&threshold=64KiB&budget=1MiB");
  const auto refused = [&](std::string_view row_key, FramePtr frame) {
    agent.sift->on_put(1, row_key, std::move(frame), 0, agent.effects);
    const auto answers = agent.take<StoredEffect>();
    return answers.size() == 1 && !answers[0].status ? answers[0].status.error().message : std::string("taken");
  };
  EXPECT_THAT(refused("step", agent.frame(0, 10, 0)), HasSubstr("does not end in the number"));
  EXPECT_THAT(refused("1", nullptr), HasSubstr("not an Arrow frame"));
  auto plain = std::make_shared<service::Frame>();
  plain->buffer = agent.program.cache->take(1000, 7).value();
  plain->bytes = 1000;
  EXPECT_THAT(refused("1", plain), HasSubstr("not an Arrow frame"));
  frame::Schema schema = particle_schema();
  schema.fields[0].name = "nr";
  EXPECT_THAT(refused("1", RowForm::make(schema, "nr").value()->make_frame(3, agent.program).value().frame),
              HasSubstr("no column 'id'"));
  EXPECT_THAT(refused("1", agent.frame(0, 100'000, 0)), HasSubstr("budget of '/t' is 1048576"));
  EXPECT_EQ(refused("1", agent.frame(0, 10, 0)), "taken");
  schema = particle_schema();
  schema.fields[2].type = frame::Type::float64;
  EXPECT_THAT(refused("2", RowForm::make(schema, "id").value()->make_frame(3, agent.program).value().frame),
              HasSubstr("column 2 is 'y' float64"));
  EXPECT_EQ(agent.sift->counters(1).pieces_taken, 1u);
  EXPECT_EQ(agent.sift->counters(1).refused, 6u);
}

TEST(Sift, APieceIsTakenOnceHoweverOftenItIsOffered) {
  OneAgent agent("sift:/t?key=id&fanout=4&threshold=1MiB", {"a", "b"});
  const std::uint32_t index = agent.sift->geometry().elements_of(0, 2).at(0);
  const auto [header, frame] = offered(agent, index, 1, 100, 3);
  agent.sift->on_offer(1, header, frame->bytes, nullptr, 0, agent.effects);
  agent.sift->on_offer(2, header, frame->bytes, nullptr, 0, agent.effects);  // its answer took too long
  auto pulls = agent.take<AdmitEffect>();
  ASSERT_EQ(pulls.size(), 1u);
  EXPECT_EQ(pulls[0].token, 1u);
  agent.sift->on_pulled(1, fail(Error::peer_lost, "gone"), 0, agent.effects);
  EXPECT_EQ(agent.take<StoredEffect>().size(), 1u);
  pulls = agent.take<AdmitEffect>();
  ASSERT_EQ(pulls.size(), 1u) << "the second offer is pulled in its place";
  EXPECT_EQ(pulls[0].token, 2u);
  agent.sift->on_pulled(2, frame, 0, agent.effects);
  agent.sift->on_offer(3, header, frame->bytes, nullptr, 0, agent.effects);
  const auto answers = agent.take<StoredEffect>();
  ASSERT_EQ(answers.size(), 2u);
  for (const StoredEffect& answer : answers) EXPECT_TRUE(answer.status);
  EXPECT_EQ(agent.take<AdmitEffect>().size(), 0u);
  EXPECT_EQ(agent.sift->counters(2).rows_taken, 100u);
}

TEST(Sift, WrongPiecesAreRefusedAndComeAgain) {
  OneAgent agent("sift:/t?key=id&fanout=4&threshold=1MiB", {"a", "b"});
  const std::uint32_t index = agent.sift->geometry().elements_of(0, 2).at(0),
                      other = agent.sift->geometry().elements_of(1, 2).at(0);
  const auto [header, frame] = offered(agent, index, 1, 100, 3);
  const auto answer_to = [&](const PieceHeader& changed, std::uint64_t bytes, const FramePtr& brought) {
    agent.sift->on_offer(1, changed, bytes, nullptr, 0, agent.effects);
    if (!agent.take<AdmitEffect>().empty()) agent.sift->on_pulled(1, brought, 0, agent.effects);
    const auto answers = agent.take<StoredEffect>();
    return answers.size() != 1 ? "no answer" : answers[0].status ? "taken" : answers[0].status.error().message;
  };
  PieceHeader wrong = header;
  wrong.pool = "/other";
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("no sift pool '/other'"));
  wrong = header;
  wrong.element.index = other;
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("does not hold element"));
  wrong = header;
  wrong.crc32c ^= 1;
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("checksum"));
  wrong = header;
  wrong.runs[0].rows = 99;
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("100 rows, but its header says 99"));
  EXPECT_THAT(answer_to(header, frame->bytes + 8, frame), HasSubstr("were offered"));
  EXPECT_EQ(agent.sift->counters(2).used_bytes, 0u);
  EXPECT_EQ(answer_to(header, frame->bytes, frame), "taken");
}

TEST(Sift, OffersWaitForRoomInTheirOrder) {
  OneAgent agent("sift:/t?key=id&fanout=2&threshold=64KiB&budget=512KiB&age=10s", {"a", "b"});
  const std::uint32_t index = agent.sift->geometry().elements_of(0, 2).at(0);
  std::vector<std::pair<PieceHeader, FramePtr>> pieces;
  for (std::uint64_t sequence = 1; sequence <= 8; ++sequence) {
    pieces.push_back(offered(agent, index, sequence, 1500, 0));  // 58 KB, below the threshold
    agent.sift->on_offer(sequence, pieces.back().first, pieces.back().second->bytes, nullptr, 0, agent.effects);
  }
  auto pulls = agent.take<AdmitEffect>();
  ASSERT_GE(pulls.size(), 2u);
  ASSERT_LT(pulls.size(), 8u);
  EXPECT_EQ(agent.sift->counters(2).offers_waiting, 8 - pulls.size());
  std::uint64_t next = 1;
  while (!pulls.empty()) {
    for (const AdmitEffect& pull : pulls) {
      EXPECT_EQ(pull.token, next++);
      agent.sift->on_pulled(pull.token, pieces[pull.token - 1].second, 0, agent.effects);
    }
    agent.run_jobs();
    pulls = agent.take<AdmitEffect>();
  }
  EXPECT_EQ(next, 9u);
  EXPECT_LE(agent.sift->counters(2).used_bytes_peak, 512u << 10);
}

TEST(Sift, AFullBudgetSplitsWhatIsBelowTheThreshold) {
  OneAgent agent("sift:/t?key=id&fanout=2&threshold=512KiB&budget=512KiB&age=10s");
  for (std::uint64_t token = 1; token <= 20; ++token)
    agent.sift->on_put(token, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  EXPECT_GT(agent.sift->counters(1).offers_waiting, 0u);
  EXPECT_EQ(agent.sift->counters(1).split_under_pressure, 1u);
  agent.run();
  EXPECT_EQ(agent.sift->counters(1).offers_waiting, 0u);
  EXPECT_EQ(agent.sift->counters(1).pieces_taken, 20u);
}

TEST(Sift, WhatIsOldIsSplit) {
  OneAgent agent("sift:/t?key=id&fanout=2&threshold=1MiB&age=100ms");
  agent.sift->on_put(1, "0", agent.frame(0, 10, 0), 5, agent.effects);
  EXPECT_EQ(agent.sift->next_deadline(), 5 + 100 * millisecond_ns);
  agent.sift->on_time(100 * millisecond_ns, agent.effects);
  EXPECT_EQ(agent.take<JobEffect>().size(), 0u);
  agent.sift->on_time(101 * millisecond_ns, agent.effects);
  EXPECT_EQ(agent.take<JobEffect>().size(), 1u);
}

TEST(Sift, APieceIsPublishedUntilItIsAnsweredUnderTheSameNumber) {
  OneAgent agent("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB", {"a", "b"});
  agent.sift->on_put(1, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  agent.run_jobs();
  auto published = agent.take<PublishEffect>();
  ASSERT_EQ(published.size(), 2u);
  const std::uint64_t used = agent.sift->counters(1).used_bytes;
  EXPECT_GT(used, 0u);
  TimeNs wait = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    agent.sift->on_published(published[0].token, fail(Error::peer_lost, "away"), agent.now, agent.effects);
    EXPECT_EQ(agent.take<PublishEffect>().size(), 0u);
    const TimeNs next = agent.sift->next_deadline();
    EXPECT_GE(next - agent.now, std::min(wait, second_ns));
    wait = next - agent.now;
    EXPECT_LE(wait, second_ns);
    agent.now = next;
    agent.sift->on_time(agent.now, agent.effects);
    const auto again = agent.take<PublishEffect>();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].header, published[0].header);
    EXPECT_EQ(again[0].token, published[0].token);
  }
  EXPECT_EQ(agent.sift->counters(1).used_bytes, used);
  for (const PublishEffect& each : published) agent.sift->on_published(each.token, {}, agent.now, agent.effects);
  EXPECT_EQ(agent.sift->counters(1).used_bytes, 0u);
  EXPECT_TRUE(agent.sift->idle());
}

TEST(Sift, CreditBoundsWhatIsUnderWay) {
  OneAgent agent("sift:/t?key=id&fanout=4&threshold=4KiB&budget=1MiB&credit=50kB", {"a", "b"});
  agent.sift->on_put(1, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  agent.run_jobs();
  std::size_t sent = 0;
  for (auto published = agent.take<PublishEffect>(); !published.empty(); published = agent.take<PublishEffect>()) {
    ASSERT_EQ(published.size(), 1u) << "two parts are more than 50 kB";
    sent += published.size();
    agent.sift->on_published(published[0].token, {}, 0, agent.effects);
  }
  EXPECT_EQ(sent, 4u);
}

TEST(Sift, AFailedJobLosesNothing) {
  OneAgent agent("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB");
  agent.sift->on_put(1, "0", agent.frame(0, 1000, 0), 0, agent.effects);
  const auto jobs = agent.take<JobEffect>();
  ASSERT_EQ(jobs.size(), 1u);
  agent.sift->on_job(jobs[0].token, fail(Error::no_memory, "none"), 0, agent.effects);
  EXPECT_EQ(agent.take<JobEffect>().size(), 0u);
  agent.now = agent.sift->next_deadline();
  agent.sift->on_time(agent.now, agent.effects);
  agent.run();
  EXPECT_EQ(agent.sift->tracks().rows(), 1000u);
}

TEST(Sift, AFlushThatIsNotPassedOnEndsAtItsDeadline) {
  OneAgent agent("sift:/t?key=id&fanout=4&threshold=64KiB", {"a", "b"});
  agent.sift->on_flush(9, 4, 500, 0, agent.effects);
  EXPECT_EQ(agent.sift->next_deadline(), 500);
  std::vector<std::uint64_t> tokens;
  for (const PublishEffect& each : agent.take<PublishEffect>()) {
    EXPECT_EQ(each.header.flush, 4u);
    if (each.member == "a") agent.sift->on_offer(1, each.header, 0, nullptr, 0, agent.effects);
  }
  agent.sift->on_time(500, agent.effects);
  const auto flushed = agent.take<FlushedEffect>();
  ASSERT_EQ(flushed.size(), 1u);
  ASSERT_FALSE(flushed[0].status);
  EXPECT_THAT(flushed[0].status.error().message, HasSubstr("waits for 'b'"));
}

constexpr const char* kept_text = "sift:/t?key=id&fanout=2&threshold=32KiB&budget=4MiB&spill=durable";

// Runs of tracks, a split with unanswered parts, and pieces that were not split.
void take_some(OneAgent& agent) {
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

TEST(Sift, ReadErrorsAtARestartLoseNothing) {
  OneAgent before(kept_text, {"a"}, "a", true);
  before.restore({});
  take_some(before);
  for (const char* kind : {"piece", "split", "run"})
    EXPECT_TRUE(std::ranges::any_of(before.store, [&](const auto& each) { return each.first.starts_with(kind); }))
        << kind << " of " << before.store.begin()->first;
  OneAgent after(kept_text, {"a"}, "a", true);
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

TEST(Sift, TheNameOfARunThatIsLostIsNotGivenAgain) {
  OneAgent before(kept_text, {"a"}, "a", true);
  before.restore({});
  take_some(before);
  std::map<ElementId, std::uint64_t> newest;
  for (const auto& [name, object] : before.store)
    if (const auto kept = KeptName::parse(name); kept->kind == KeptName::Kind::run)
      newest[kept->element] = std::max(newest[kept->element], kept->number);
  ASSERT_FALSE(newest.empty());
  OneAgent after(kept_text, {"a"}, "a", true);
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

TEST(Sift, DroppingAnswersEverything) {
  OneAgent agent("sift:/t?key=id&fanout=2&threshold=64KiB&budget=512KiB");
  for (std::uint64_t token = 1; token <= 20; ++token)
    agent.sift->on_put(token, "0", agent.frame(0, 1500, 0), 0, agent.effects);
  agent.sift->on_flush(99, 1, never, 0, agent.effects);
  const std::size_t answered = agent.take<StoredEffect>().size();
  const auto jobs = agent.take<JobEffect>();
  agent.sift->drop(agent.effects);
  EXPECT_EQ(agent.take<StoredEffect>().size(), 20 - answered);
  EXPECT_EQ(agent.take<FlushedEffect>().size(), 1u);
  for (const JobEffect& job : jobs) agent.sift->on_job(job.token, job.run(), 0, agent.effects);
  agent.sift->on_put(50, "0", agent.frame(0, 10, 0), 0, agent.effects);
  ASSERT_EQ(agent.effects.size(), 1u);
  EXPECT_FALSE(std::get<StoredEffect>(agent.effects[0]).status);
}

}  // namespace
}  // namespace offpath::sift
