#include "telemetry/sampling.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "testing/telemetry/host.h"

namespace offpath::exchange {
namespace {

SamplingOptions options() { return {.producer = "node17", .key = TestHost::key(), .session = 99}; }

// The agent, a host, and a network under the test's control.
struct Sampled {
  explicit Sampled(SamplingOptions how = options()) : sampling(std::move(how), 0) {}

  // Delivers requests and answers, each way in `way_ns`, until there are no more.
  void talk() {
    for (int rounds = 0; rounds < 100 && !effects.requests.empty(); ++rounds) {
      const std::vector<SamplerRequest> requests = std::exchange(effects.requests, {});
      now += way_ns;
      std::vector<std::vector<std::byte>> answers;
      for (const SamplerRequest& each : requests) answers.push_back(host.answer(each, now));
      now += way_ns;
      for (const auto& each : answers)
        if (!each.empty()) arrive(each);
    }
  }
  void arrive(Bytes datagram) { sampling.on_datagram(datagram, now, TestHost::epoch_ns + now, effects); }
  void pass(TimeNs wait) {
    now += wait;
    sampling.on_time(now, effects);
  }

  TimeNs now = 0, way_ns = 20 * microsecond_ns;
  TestHost host;
  Sampling sampling;
  SamplingEffects effects;
};

TEST(Sampling, AHostIsKnownAfterThreeRoundTrips) {
  Sampled all;
  all.pass(0);
  all.talk();
  EXPECT_EQ(all.sampling.counters().requests, 3u);  // token, schema, values
  ASSERT_TRUE(all.sampling.described());
  EXPECT_EQ(all.sampling.schema().fields.size(), 3u);
  EXPECT_EQ(all.sampling.counters().samples, 1u);
  const Sample& sample = all.sampling.newest();
  EXPECT_TRUE(fits(sample, all.sampling.schema()));
  EXPECT_EQ(sample.values.f64(0), 0.5);
  EXPECT_EQ(sample.producer, "node17");
  EXPECT_EQ(sample.source_ns, TestHost::epoch_ns + 5 * all.way_ns);
  EXPECT_EQ(sample.receive_ns, TestHost::epoch_ns + 6 * all.way_ns);
  EXPECT_EQ(all.sampling.next_deadline(), second_ns);
}

TEST(Sampling, AMissingValueArrivesAsMissing) {
  Sampled all;
  all.pass(0);
  all.talk();
  all.host.directory().write("/proc/loadavg", "0.75 none 0.10\n");
  all.pass(second_ns);
  all.talk();
  EXPECT_EQ(all.sampling.newest().values.f64(0), 0.75);
  EXPECT_FALSE(all.sampling.newest().values.has(1));
  EXPECT_TRUE(all.sampling.newest().values.has(2));
}

TEST(Sampling, ALostDatagramIsAskedForAgainAndALostHostIsSilent) {
  Sampled all;
  all.pass(0);
  all.talk();
  all.pass(second_ns);
  all.effects.requests.clear();  // lost
  all.pass(options().retry_ns);
  EXPECT_EQ(all.sampling.counters().retransmits, 1u);
  all.talk();
  EXPECT_EQ(all.sampling.counters().samples, 2u);
  EXPECT_FALSE(all.sampling.silent(all.now));
  for (TimeNs end = all.now + 5 * second_ns; all.now < end; all.effects.requests.clear())
    all.pass(all.sampling.next_deadline() - all.now);
  EXPECT_TRUE(all.sampling.silent(all.now));
  EXPECT_GE(all.sampling.counters().missed, 4u);
  EXPECT_LT(all.sampling.counters().requests, 80u) << "waits double";
  all.pass(second_ns);
  all.talk();
  EXPECT_FALSE(all.sampling.silent(all.now));
  EXPECT_EQ(all.sampling.counters().samples, 3u);
}

TEST(Sampling, LateAndDoubledAnswersAreCountedAndNotTaken) {
  Sampled all;
  all.pass(0);
  all.talk();
  all.pass(second_ns);
  const SamplerRequest first = std::exchange(all.effects.requests, {}).at(0);
  all.pass(options().retry_ns);
  const SamplerRequest second = std::exchange(all.effects.requests, {}).at(0);
  const auto one = all.host.answer(first, all.now), two = all.host.answer(second, all.now);
  EXPECT_TRUE(all.host.answer(first, all.now).empty()) << "a request that comes twice is answered once";
  all.arrive(two);
  EXPECT_EQ(all.sampling.counters().samples, 2u);
  const Sample newest = all.sampling.newest();
  all.arrive(two);
  all.arrive(one);
  EXPECT_EQ(all.sampling.counters().doubled, 1u);
  EXPECT_EQ(all.sampling.counters().late, 1u);
  EXPECT_EQ(all.sampling.newest(), newest);
}

TEST(Sampling, AnyAttemptsAnswerWillDo) {
  Sampled all;
  all.pass(0);
  all.talk();
  all.pass(second_ns);
  const SamplerRequest first = std::exchange(all.effects.requests, {}).at(0);
  all.pass(options().retry_ns);
  all.effects.requests.clear();
  all.arrive(all.host.answer(first, all.now));
  EXPECT_EQ(all.sampling.counters().samples, 2u);
}

TEST(Sampling, ASamplerThatWasStartedAgainIsGreetedAgain) {
  Sampled all;
  all.pass(0);
  all.talk();
  all.host.start();
  all.pass(second_ns);
  all.talk();
  EXPECT_EQ(all.sampling.counters().samples, 2u);
  EXPECT_EQ(all.sampling.counters().schemas, 1u) << "the schema is the same";
  EXPECT_EQ(all.sampling.counters().restarts, 1u);
  all.host.start_with_more_fields();
  all.pass(second_ns);
  all.talk();
  EXPECT_EQ(all.sampling.counters().samples, 3u);
  EXPECT_EQ(all.sampling.schema().fields.size(), 4u);
  EXPECT_EQ(all.sampling.newest().values.u64(3), 7u);
  EXPECT_EQ(all.sampling.counters().restarts, 2u);
}

TEST(Sampling, TokensNeverGetOldForWhoAsks) {
  Sampled all;
  for (int minute = 0; minute < 10; ++minute) {
    all.pass(50 * second_ns);
    all.talk();
  }
  EXPECT_EQ(all.sampling.counters().samples, 10u);
  EXPECT_EQ(all.sampling.counters().requests, 12u) << "one token, one schema";
  EXPECT_EQ(all.sampling.counters().restarts, 0u);
}

TEST(Sampling, AnotherKeyIsNoKey) {
  SamplingOptions other = options();
  other.key[3] ^= 1;
  Sampled all(other);
  all.pass(0);
  all.talk();
  EXPECT_EQ(all.host.answerer().answered, 0u);
  EXPECT_EQ(all.host.answerer().refused, 1u);
  Sampled right;
  right.pass(0);
  auto answer = right.host.answer(right.effects.requests.at(0), 0);
  answer.back() ^= std::byte{1};
  right.arrive(answer);
  EXPECT_EQ(right.sampling.counters().refused, 1u);
}

TEST(Sampler, AStrangerGetsNoAnswerWhateverHeSends) {
  TestHost host;
  std::mt19937_64 random(1);
  for (std::size_t length = 0; length < 200; ++length) {
    std::vector<std::byte> bytes(length);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_TRUE(host.answer(bytes, 0).empty());
  }
  Sampled agent;
  agent.pass(0);
  const SamplerRequest good = agent.effects.requests.at(0);
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_TRUE(host.answer(Bytes(good).first(length), 0).empty());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    SamplerRequest changed = good;
    changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_TRUE(host.answer(changed, 0).empty()) << bit;
  }
  EXPECT_FALSE(host.answer(good, 0).empty());
}

TEST(Sampler, NoAnswerIsLongerThanTheRequestAllows) {
  Sampled all;
  all.pass(0);
  const auto token = all.host.answer(all.effects.requests.at(0), 0);
  EXPECT_LE(token.size(), all.effects.requests.at(0).size());
  all.talk();
  const auto full = decode_answer(token, TestHost::key()).value();
  std::uint64_t number = 1000;
  for (const ofs_datagram_kind kind : {OFS_DESCRIBE, OFS_SAMPLE})
    for (std::uint32_t most = 0; most < 400; ++most) {
      const auto answer = all.host.answer(
          encode_request({kind, options().session, ++number, full.header.token, all.sampling.newest().schema, 0, most},
                         TestHost::key()),
          all.now);
      EXPECT_LE(answer.size(), std::max<std::size_t>(most, sizeof(SamplerRequest))) << most;
    }
}

TEST(Sampler, RequestsOfAnEarlierTimeAreNotAnsweredWithValues) {
  Sampled all;
  all.pass(0);
  all.talk();
  all.pass(second_ns);
  const SamplerRequest recorded = all.effects.requests.at(0);
  all.talk();
  EXPECT_TRUE(all.host.answer(recorded, all.now).empty());
  const auto later = all.host.answer(recorded, all.now + 300 * second_ns);
  EXPECT_EQ(decode_answer(later, TestHost::key()).value().header.kind, OFS_TOKEN) << "its token is too old";
  all.host.start();
  EXPECT_EQ(decode_answer(all.host.answer(recorded, all.now), TestHost::key()).value().header.kind, OFS_TOKEN);
}

TEST(Sampler, NumbersMayComeInAnyOrderWithinTheWindow) {
  Sampled all;
  all.pass(0);
  all.talk();
  const std::uint64_t token =
      decode_answer(all.host.answer(encode_request({OFS_SAMPLE, 7, 1, 0, 0, 0, 2000}, TestHost::key()), all.now),
                    TestHost::key())
          .value()
          .header.token;
  const auto ask = [&](std::uint64_t number) {
    return !all.host
                .answer(encode_request({OFS_SAMPLE, 7, number, token, all.sampling.newest().schema, 0, 2000},
                                       TestHost::key()),
                        all.now)
                .empty();
  };
  EXPECT_TRUE(ask(100));
  EXPECT_TRUE(ask(98));
  EXPECT_TRUE(ask(99));
  for (const std::uint64_t number : {100u, 99u, 98u}) EXPECT_FALSE(ask(number)) << number;
  EXPECT_TRUE(ask(37));
  EXPECT_FALSE(ask(36)) << "too far behind to know";
  EXPECT_TRUE(ask(1000));
  EXPECT_FALSE(ask(100));
  EXPECT_FALSE(ask(0));
}

TEST(ClockOffset, TheExchangeWithTheSmallestDelayIsBelieved) {
  ClockOffset clock;
  constexpr std::int64_t ahead = TestHost::epoch_ns;
  TimeNs now = 0;
  for (const TimeNs extra : {500, 3, 900, 40}) {  // the delay is on one way only: the estimate is off by half of it
    const TimeNs asked = now, received = asked + 10 * microsecond_ns + extra * microsecond_ns,
                 arrived = received + 11 * microsecond_ns;
    EXPECT_TRUE(clock.add({asked, arrived, received + ahead, received + ahead + microsecond_ns}));
    now += 10 * millisecond_ns;
  }
  EXPECT_LE(std::abs(clock.offset_ns(now) - ahead), 2 * microsecond_ns);
  EXPECT_LE(std::abs(clock.offset_ns(now) - ahead), clock.bound_ns(now));
  EXPECT_EQ(clock.jumps(), 0u);
}

TEST(ClockOffset, AClockThatWasSetByAnHourIsRecoveredFrom) {
  for (const std::int64_t jump : {3600 * second_ns, -3600 * second_ns, 20 * millisecond_ns}) {
    ClockOffset clock;
    std::int64_t ahead = TestHost::epoch_ns;
    for (TimeNs now = 0; now < 60 * second_ns; now += second_ns) {
      if (now == 30 * second_ns) ahead += jump;
      const TimeNs received = now + 100 * microsecond_ns;
      EXPECT_TRUE(clock.add({now, now + 200 * microsecond_ns, received + ahead, received + ahead}));
      EXPECT_LE(std::abs(clock.offset_ns(now) - ahead), clock.bound_ns(now)) << now;
    }
    EXPECT_EQ(clock.jumps(), 1u);
  }
}

TEST(ClockOffset, AnExchangeThatContradictsItselfIsLeftOut) {
  ClockOffset clock;
  constexpr std::int64_t ahead = TestHost::epoch_ns;
  EXPECT_FALSE(clock.add({0, 100 * microsecond_ns, ahead, ahead + second_ns})) << "held for longer than it took";
  EXPECT_FALSE(clock.add({0, 100, ahead + 50, ahead}));
  EXPECT_FALSE(clock.add({0, 100, -1, ahead}));
  EXPECT_FALSE(clock.add({0, 100, ahead, std::numeric_limits<std::int64_t>::max()}));
  EXPECT_FALSE(clock.known());
}

}  // namespace
}  // namespace offpath::exchange
