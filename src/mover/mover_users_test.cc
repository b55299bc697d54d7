// Several users of one mover: the bounds of each, and their independence.
#include "base/log.h"
#include "testing/mover/mover_fixture.h"

namespace offpath::mover {
namespace {

// Another user's channel with a stream of its own.
class TwoUsers : public MoverTest {
 protected:
  static constexpr ChannelNumber other_channel = 2;
  static constexpr uid_t first_user = 0, other_user = 1000;

  void open_other(std::uint32_t stream) {
    const std::string name = fmt::format("other {}", stream);
    wire::OpenStream open{.stream = stream,
                          .destination = wire::Destination::ipc_page,
                          .rows_max = rows,
                          .keep = 1,
                          .ranks = 0,
                          .rank = 0,
                          .name = name,
                          .pool = "local:/other",
                          .schema = encoded};
    request_of(other_channel, wire::EntryKind::open_stream, open);
  }
  template <class Message>
  void request_of(ChannelNumber number, wire::EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    mover->on_request(number, {++ticket, static_cast<std::uint8_t>(kind), payload}, 0, effects);
    credit.clear();
    for (service::Effect& effect : effects) {
      if (const auto* failed = std::get_if<service::FailEffect>(&effect)) failures.push_back(failed->failure.message);
      if (const auto* line = std::get_if<service::LineEffect>(&effect);
          line != nullptr && line->word == service::LineEffect::Word::credit)
        credit[line->channel] = line->value;
    }
    effects.clear();
  }
  std::map<ChannelNumber, std::uint64_t> credit;  // granted by the last request
};

TEST_F(TwoUsers, StreamsOfOneUserAreBoundedAndTheOtherOpensSome) {
  make(0, {.user_streams_max = 1});
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  open_other(0);
  EXPECT_TRUE(failures.empty());
  open_other(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0], "1 streams of user 1000 are open, which is the limit of each user (limits.user_streams_max)");
  mover->on_channel_closed(other_channel, 0, effects);
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  open_other(0);
  EXPECT_EQ(failures.size(), 1u);  // ended ones no longer count
}

TEST_F(TwoUsers, NamesOfStreamsAreEachUsersOwn) {
  make(0);  // the first user's stream "s"
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  wire::OpenStream open{.stream = 0,
                        .destination = wire::Destination::ipc_page,
                        .rows_max = rows,
                        .keep = 1,
                        .ranks = 0,
                        .rank = 0,
                        .name = "s",
                        .pool = "local:/other",
                        .schema = encoded};
  request_of(other_channel, wire::EntryKind::open_stream, open);
  EXPECT_TRUE(failures.empty()) << failures.front();
  open.stream = 1;
  request_of(other_channel, wire::EntryKind::open_stream, open);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0], "stream \"s\" is open already, by other (process 2)") << "nothing of the first user's program";
}

TEST_F(TwoUsers, AUserWhoHasTakenItsShareWaitsAndHoldsUpNobody) {
  constexpr std::uint64_t share = 1 << 20;
  make(0, {.memory_bytes_max = 4 * share, .user_bytes_max = share});
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  EXPECT_EQ(mover->credit().memory_free_for(other_user), share);
  EXPECT_LT(mover->credit().memory_free_for(first_user), share);  // its stream was granted credit
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = share + 1});
  EXPECT_TRUE(credit.empty());  // it waits
  open_other(0);
  request_of(other_channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = share});
  EXPECT_EQ(credit[other_channel], share);
  // Nor does it delay later waiters when memory becomes free.
  Buffer used = cache->take(share - page_bytes, other_user).value();
  open_other(1);
  request_of(other_channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 1, .total = share / 2});
  EXPECT_TRUE(credit.empty());
  used = {};
  request_of(other_channel, wire::EntryKind::close_stream, wire::CloseStream{.stream = 0});
  EXPECT_EQ(credit.count(channel), 0u);
  EXPECT_GE(credit[other_channel], share / 2);
}

TEST_F(TwoUsers, AStreamThatGivesUpIsInNobodysWay) {
  constexpr std::uint64_t some = 256 << 10;
  make(0, {.memory_bytes_max = 4 << 20});
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  open_other(0);
  Buffer used = cache->take((4 << 20) - some / 2, other_user).value();
  const std::uint64_t too_much = 4 << 20;
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = too_much});
  open_other(1);
  request_of(other_channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 1, .total = some});
  EXPECT_TRUE(credit.empty());
  // There is enough for the second one now, and the first one, which has waited longer, is before it.
  used = cache->take(some, other_user).value();
  request_of(other_channel, wire::EntryKind::close_stream, wire::CloseStream{.stream = 0});
  EXPECT_EQ(credit.count(other_channel), 0u);
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = 0});
  EXPECT_GE(credit[other_channel], some);
  EXPECT_EQ(mover->streams(0)[0].lacking_since, never);
}

TEST_F(TwoUsers, AWaitForCreditIsInTheLogOnce) {
  static std::vector<std::string> lines;
  lines.clear();
  set_log(LogLevel::warning, [](LogLevel, std::string_view line, void*) { lines.emplace_back(line); }, nullptr);
  make(0, {.memory_bytes_max = 4 << 20});
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  open_other(0);
  EXPECT_EQ(mover->next_deadline(), never);
  const std::uint64_t too_much = (4 << 20) + 1;
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = too_much});
  EXPECT_EQ(mover->next_deadline(), second_ns);
  const auto pass = [this](TimeNs from, TimeNs to) {
    for (TimeNs now = from; now <= to; now += second_ns / 10) mover->on_time(now, effects);
  };
  pass(0, second_ns - 1);
  EXPECT_TRUE(lines.empty());
  pass(second_ns, 5 * second_ns);
  ASSERT_EQ(lines.size(), 1u) << "once for each wait";
  EXPECT_TRUE(lines[0].starts_with("stream \"s\" of test (process ")) << lines[0];
  EXPECT_NE(lines[0].find("has waited 1 s for credit: "), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("Drop objects of pool \"local:/s\", open the stream with keep"), std::string::npos);
  // Another wait of the same stream, and one of another stream: together, ten seconds after the first line.
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = 0});
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = too_much});
  request_of(other_channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = too_much});
  pass(5 * second_ns, 11 * second_ns - 1);
  EXPECT_EQ(lines.size(), 1u);
  pass(11 * second_ns, 40 * second_ns);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[1].ends_with("; 2 streams wait in all")) << lines[1];
  EXPECT_EQ(mover->next_deadline(), never);
  set_log(LogLevel::warning, nullptr, nullptr);
}

TEST_F(TwoUsers, StreamsTellTheirRatesOfTheLastMinutes) {
  make(0);
  send(0, 1);
  end_pull();
  finish();
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  open_other(0);
  const auto streams = mover->streams(2 * second_ns);
  ASSERT_EQ(streams.size(), 2u);
  for (const auto& stream : streams) {
    ASSERT_EQ(stream.recent.has_value(), stream.bytes > 0) << "one that has sent nothing has no curve";
    if (!stream.recent) continue;
    ASSERT_EQ(stream.recent->bytes_per_s.size(), 1u);
    EXPECT_EQ(stream.recent->bytes_per_s[0], static_cast<double>(column_bytes) / 2);
  }
  EXPECT_EQ(mover->recent(2 * second_ns).bytes_per_s.at(0), static_cast<double>(column_bytes) / 2);
}

TEST_F(TwoUsers, WhatIsSetAsideIsPromisedToNobody) {
  constexpr std::uint64_t memory = 4 << 20;
  make(0, {.memory_bytes_max = memory});
  std::uint64_t aside = 0;
  mover->credit().set_aside([&aside] { return Credit::Aside{aside, aside}; });
  const std::uint64_t unused = mover->credit().memory_unused();
  EXPECT_EQ(mover->credit().memory_free(), unused);
  aside = unused / 2;
  EXPECT_EQ(mover->credit().memory_free(), unused - aside);
  EXPECT_EQ(mover->credit().memory_max_for_programs(), memory - aside);
  EXPECT_EQ(mover->credit().memory_unused(), unused);
  const std::uint64_t total = mover->counters().promised_bytes + unused - aside + 1;
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = total});
  EXPECT_TRUE(credit.empty()) << "one byte more than there is beside it";
  ASSERT_EQ(mover->streams(0).size(), 1u);
  EXPECT_EQ(mover->streams(0)[0].lacking_since, 0);
  EXPECT_EQ(mover->streams(0)[0].credit_lacking, unused - aside + 1);
  aside -= 1;
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = total});
  EXPECT_GE(credit[channel], total);
  EXPECT_EQ(mover->streams(0)[0].lacking_since, never) << "it has what it asked for";
  EXPECT_EQ(mover->streams(0)[0].credit_lacking, 0u);
  aside = memory;
  EXPECT_EQ(mover->credit().memory_free(), 0u) << "more than there is";
}

TEST_F(TwoUsers, ABatchLargerThanAllThatProgramsMayHaveBesideItTakesWhatIsForMembers) {
  constexpr std::uint64_t memory = 4 << 20;
  make(0, {.memory_bytes_max = memory});
  mover->credit().set_aside([] { return Credit::Aside{1 << 20, 1 << 20}; });
  mover->keep_for_members(1 << 20, 0, effects);
  ASSERT_EQ(mover->credit().memory_max_for_programs(), 2u << 20);
  const std::uint64_t total = mover->counters().promised_bytes + (2 << 20) + page_bytes;
  ASSERT_LE(total - mover->counters().promised_bytes, mover->credit().memory_free());
  request_of(channel, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = total});
  EXPECT_GE(credit[channel], total) << "else it would wait forever";
}

TEST_F(TwoUsers, FramesCountForWhoseTheyAre) {
  make(0, {.memory_bytes_max = 64 << 20, .user_bytes_max = 32 << 20});
  mover->on_channel_open(other_channel, {"other", other_user, 2}, 4, 0);
  send(0, 1);
  EXPECT_EQ(cache->used_bytes_of(first_user), cache->used_bytes());
  EXPECT_EQ(cache->used_bytes_of(other_user), 0u);
  end_pull();
  finish();
  store.kept.reset();
  EXPECT_EQ(cache->used_bytes_of(first_user), 0u);
}

}  // namespace
}  // namespace offpath::mover
