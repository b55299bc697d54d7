// The parts of flows, each against a plain model: reassembly, scoreboard, timers, table, round-trip times,
// hashes.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tcp/flow/flow_table.h"
#include "tcp/flow/reassembly.h"
#include "tcp/flow/rtt.h"
#include "tcp/flow/scoreboard.h"
#include "tcp/flow/timer_wheel.h"
#include "tcp/segment/keyed_hash.h"

namespace offpath::tcp {
namespace {

SequenceRange range(std::uint32_t begin, std::uint32_t end) { return {Sequence(begin), Sequence(end)}; }

TEST(Reassembly, MergesWhatTouchesAndNamesTheNewestFirst) {
  Reassembly reassembly;
  ASSERT_TRUE(reassembly.add(range(10, 20)) && reassembly.add(range(30, 40)) && reassembly.add(range(50, 60)));
  EXPECT_EQ(reassembly.ranges().front(), range(50, 60));
  ASSERT_TRUE(reassembly.add(range(20, 30)));
  ASSERT_EQ(reassembly.ranges().size(), 2u);
  EXPECT_EQ(reassembly.ranges()[0], range(10, 40));
  EXPECT_EQ(reassembly.advance(Sequence(9)), Sequence(9));
  EXPECT_EQ(reassembly.advance(Sequence(10)), Sequence(40));
  EXPECT_EQ(reassembly.advance(Sequence(55)), Sequence(60));
  EXPECT_TRUE(reassembly.empty());
}

TEST(Reassembly, HoldsARingOfWhichEverySecondSegmentIsLost) {
  constexpr std::uint32_t ring = 1 << 20, segment = 1448;
  Reassembly reassembly;
  for (std::uint32_t at = segment; at + segment <= ring; at += 2 * segment)
    ASSERT_TRUE(reassembly.add(range(at, at + segment))) << at;
}

TEST(Reassembly, RefusesMoreRangesThanItHolds) {
  Reassembly reassembly;
  for (std::uint32_t i = 0; i < Reassembly::ranges_max; ++i)
    ASSERT_TRUE(reassembly.add(range(10 + 10 * i, 15 + 10 * i)));
  EXPECT_FALSE(reassembly.add(range(5000, 5001)));
  EXPECT_TRUE(reassembly.add(range(15, 20)));  // joins two
  EXPECT_TRUE(reassembly.add(range(5000, 5001)));
}

TEST(Reassembly, KnowsWhatAPlainModelKnows) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t start = static_cast<std::uint32_t>(random());
    Reassembly reassembly;
    std::set<std::uint32_t> there;  // offsets from start
    std::uint32_t next = 0;
    for (int step = 0; step < 400; ++step) {
      const std::uint32_t begin = next + random() % 300, end = begin + random() % 60;
      if (begin > next) {
        if (reassembly.add({Sequence(start + begin), Sequence(start + end)}))
          for (std::uint32_t i = begin; i < end; ++i) there.insert(i);
      } else {
        next = bytes_between(Sequence(start), reassembly.advance(Sequence(start + end)));
        std::uint32_t expected = end;
        while (there.count(expected) != 0) ++expected;
        ASSERT_EQ(next, expected) << seed;
        there.erase(there.begin(), there.lower_bound(next));
      }
      std::size_t bytes = 0;
      for (const auto& r : reassembly.ranges()) bytes += r.bytes();
      ASSERT_EQ(bytes, there.size()) << seed;
    }
  }
}

constexpr std::uint32_t mss = 100;

TEST(Scoreboard, DeclaresLostWhatThreeSegmentsBehindItHaveArrived) {
  Scoreboard board(Sequence(0));
  const Sequence una(0), next(1000);
  EXPECT_EQ(board.select(range(100, 200), una, next), 100u);
  board.judge(mss, 0, 0);
  EXPECT_FALSE(board.lost());
  EXPECT_EQ(board.in_flight(next), 900u);
  EXPECT_EQ(board.select(range(100, 400), una, next), 200u);
  board.judge(mss, 0, 0);
  ASSERT_TRUE(board.lost());
  EXPECT_EQ(*board.lost(), range(0, 100));
  EXPECT_EQ(board.in_flight(next), 600u);
  board.resent(range(0, 100), next, 0);
  EXPECT_FALSE(board.lost());
  EXPECT_EQ(board.in_flight(next), 700u);
  board.acknowledge(Sequence(400));
  EXPECT_TRUE(board.empty());
  EXPECT_EQ(board.in_flight(next), 600u);
}

TEST(Scoreboard, SeesThatWhatWasSentAgainIsLostAgain) {
  Scoreboard board(Sequence(0));
  const Sequence una(0);
  board.select(range(100, 500), una, Sequence(500));
  board.judge(mss, 0, 0);
  board.resent(*board.lost(), Sequence(500), 0);
  // The later data arrives.
  board.select(range(500, 700), una, Sequence(1000));
  board.judge(mss, 0, 0);
  EXPECT_FALSE(board.lost());
  board.select(range(700, 800), una, Sequence(1000));
  board.judge(mss, 0, 0);
  EXPECT_EQ(board.lost(), range(0, 100));
}

TEST(Scoreboard, WhatWasSentAgainAndOvertakenHasARoundTripAndAQuarter) {
  constexpr TimeNs round_trip = 8 * millisecond_ns, sent_at = 100 * millisecond_ns, due = sent_at + 10 * millisecond_ns;
  Scoreboard board(Sequence(0));
  const Sequence una(0);
  board.select(range(100, 500), una, Sequence(500));
  board.judge(mss, sent_at, round_trip);
  board.resent(*board.lost(), Sequence(500), sent_at);
  board.judge(mss, due + round_trip, round_trip);
  EXPECT_FALSE(board.lost()) << "nothing that was sent later has arrived";
  board.select(range(500, 600), una, Sequence(1000));
  board.judge(mss, due - 1, round_trip);
  EXPECT_FALSE(board.lost());
  board.judge(mss, due, round_trip);
  EXPECT_EQ(board.lost(), range(0, 100));
}

TEST(Scoreboard, TakesNothingThatCannotBe) {
  Scoreboard board(Sequence(1000));
  const Sequence una(1000), next(2000);
  EXPECT_EQ(board.select(range(500, 1500), una, next), 0u);   // acknowledged in part
  EXPECT_EQ(board.select(range(1500, 2500), una, next), 0u);  // never sent
  EXPECT_EQ(board.select(range(1500, 1400), una, next), 0u);
  EXPECT_EQ(board.select(range(1500, 1500), una, next), 0u);
  EXPECT_TRUE(board.empty());
  // A receiver that has everything and says it lacks everything: all is sent again after a timeout.
  EXPECT_EQ(board.select(range(1000, 2000), una, next), 1000u);
  board.lose_all(una, next);
  EXPECT_EQ(board.lost(), range(1000, 2000));
}

// Whatever is reported, in whatever order, with however many holes: a sender that sends what is lost gets everything
// across.
TEST(Scoreboard, SendsUntilEverythingHasArrived) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t total = 1 + random() % 40'000, start = static_cast<std::uint32_t>(random());
    const Sequence next = Sequence(start) + total;
    std::vector<bool> there(total);
    for (std::uint32_t i = 0; i < total; i += mss)
      if (random() % 2)
        for (std::uint32_t j = i; j < std::min(i + mss, total); ++j) there[j] = true;
    Scoreboard board{Sequence(start)};
    std::uint32_t una = 0;
    for (int round = 0;; ++round) {
      ASSERT_LT(round, 20'000) << seed;
      while (una < total && there[una]) ++una;
      board.acknowledge(Sequence(start) + una);
      if (una == total) break;
      for (int blocks = 0; blocks < 3; ++blocks) {
        std::uint32_t begin = una + random() % (total - una);
        if (!there[begin]) continue;
        std::uint32_t end = begin;
        while (begin > una && there[begin - 1]) --begin;
        while (end < total && there[end]) ++end;
        board.select({Sequence(start) + begin, Sequence(start) + end}, Sequence(start) + una, next);
      }
      board.judge(mss, 0, 0);
      ASSERT_LE(board.size(), Scoreboard::holes_max);
      ASSERT_LE(board.in_flight(next), total - una);
      auto lost = board.lost();
      if (!lost) {
        if (random() % 4 == 0) board.lose_all(Sequence(start) + una, next);
        continue;
      }
      const std::uint32_t begin = bytes_between(Sequence(start), lost->begin);
      const std::uint32_t bytes = std::min<std::uint32_t>(lost->bytes(), mss * (1 + random() % 4));
      board.resent({lost->begin, lost->begin + bytes}, next, 0);
      if (random() % 3 != 0)
        for (std::uint32_t i = 0; i < bytes; ++i) there[begin + i] = true;
    }
    EXPECT_TRUE(board.empty());
  }
}

TEST(TimerWheel, FiresInOrderNeitherEarlyNorLate) {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    TimeNs now = static_cast<TimeNs>(random() % (1000 * second_ns));
    TimerWheel wheel(now);
    std::map<std::uint32_t, TimeNs> set;
    for (int step = 0; step < 2000; ++step) {
      const auto timer = static_cast<std::uint32_t>(random() % 64);
      if (random() % 4 == 0) {
        wheel.cancel(timer);
        set.erase(timer);
      } else {
        const TimeNs due = now + static_cast<TimeNs>(random() % (1ull << (random() % 42)));
        wheel.set(timer, due);
        set[timer] = due;
      }
      if (random() % 8 != 0) continue;
      TimeNs earliest = never;
      for (const auto& [number, due] : set) earliest = std::min(earliest, due);
      ASSERT_LE(wheel.next_due(), earliest == never ? never : earliest + TimerWheel::tick_ns);
      now += static_cast<TimeNs>(random() % (1ull << (random() % 40)));
      for (std::uint32_t fired; (fired = wheel.fire(now)) != TimerWheel::nobody;) {
        ASSERT_TRUE(set.count(fired)) << seed;
        ASSERT_LE(set[fired], now);
        set.erase(fired);
      }
      for (const auto& [number, due] : set) ASSERT_GT(due, now - TimerWheel::tick_ns) << seed << " timer " << number;
    }
  }
}

TEST(TimerWheel, WhatIsNotSetIsNeverDue) {
  TimerWheel wheel(0);
  EXPECT_EQ(wheel.next_due(), never);
  wheel.set(3, second_ns);
  EXPECT_GE(wheel.due(3), second_ns);
  wheel.set(3, never);
  EXPECT_EQ(wheel.next_due(), never);
  EXPECT_EQ(wheel.fire(1000 * second_ns), TimerWheel::nobody);
}

TEST(FlowTable, FindsWhatAMapFinds) {
  std::mt19937 random(3);
  FlowTable table({1, 2});
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> map;
  for (std::uint32_t step = 0; step < 50'000; ++step) {
    const std::uint32_t address = random() % 50, port = 1 + random() % 40;
    const FlowKey key{{{1}, 80}, {{address}, static_cast<std::uint16_t>(port)}};
    const auto known = map.find({address, port});
    ASSERT_EQ(table.find(key), known == map.end() ? FlowTable::nobody : known->second);
    if (random() % 2) {
      ASSERT_EQ(table.erase(key), known != map.end());
      if (known != map.end()) map.erase(known);
    } else if (known == map.end()) {
      table.insert(key, step);
      map[{address, port}] = step;
    }
    ASSERT_EQ(table.size(), map.size());
  }
}

TEST(RttEstimator, FollowsTheStandard) {
  const RtoLimits limits{1 * millisecond_ns, 60 * second_ns, second_ns};
  RttEstimator rtt;
  EXPECT_EQ(rtt.timeout_ns(limits), second_ns);
  rtt.add(100 * millisecond_ns, limits);
  EXPECT_EQ(rtt.smoothed_ns(), 100 * millisecond_ns);
  EXPECT_EQ(rtt.timeout_ns(limits), 300 * millisecond_ns);  // SRTT + 4 * RTTVAR, RTTVAR = R / 2
  rtt.add(200 * millisecond_ns, limits);
  EXPECT_EQ(rtt.smoothed_ns(), 112'500 * microsecond_ns);
  EXPECT_EQ(rtt.timeout_ns(limits), (112'500 + 4 * 62'500) * microsecond_ns);
  EXPECT_EQ(rtt.timeout_ns(limits, 2), 4 * rtt.timeout_ns(limits));
  EXPECT_EQ(rtt.timeout_ns(limits, 200), 60 * second_ns);
}

TEST(KeyedHash, IsThatOfItsAuthors) {
  const HashKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::vector<std::byte> bytes;
  EXPECT_EQ(keyed_hash(key, bytes), 0x726fdb47dd0e0e31u);
  for (int i = 0; i < 15; ++i) bytes.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(keyed_hash(key, bytes), 0xa129ca6149be45e5u);
  const FlowKey flow{{{1}, 2}, {{3}, 4}};
  std::vector<std::byte> same(24);
  store(same.data(), std::uint64_t{1} << 32 | 3);
  store(same.data() + 8, std::uint64_t{2} << 16 | 4);
  store(same.data() + 16, std::uint64_t{9});
  EXPECT_EQ(keyed_hash(key, flow, 9), keyed_hash(key, same));
}

}  // namespace
}  // namespace offpath::tcp
