// The parts of flows, each against a plain model: reassembly, scoreboard, timers, table, round-trip times,
// hashes.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tcp/flow/flow_table.h"
#include "tcp/flow/path_search.h"
#include "tcp/flow/reassembly.h"
#include "tcp/flow/reorder_window.h"
#include "tcp/flow/repair.h"
#include "tcp/flow/rtt.h"
#include "tcp/flow/scoreboard.h"
#include "tcp/flow/sent_packets.h"
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

TEST(SentPackets, KnowsWhatAPlainModelKnows) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto begin = static_cast<std::uint32_t>(random());
    SentPackets sent;
    std::set<std::uint32_t> ends;  // of packets in flight, from `begin`
    std::uint32_t next = 0, una = 0, sizes = 0;
    for (int step = 0; step < 300; ++step) {
      if (sizes < SentPackets::entries_max / 2) {  // each super-segment takes two entries at most
        const std::uint32_t size = 1 + static_cast<std::uint32_t>(random() % 1500),
                            bytes = 1 + static_cast<std::uint32_t>(random() % 20'000);
        sent.sent({Sequence(begin + next), Sequence(begin + next + bytes)}, size);
        for (std::uint32_t at = size; at < bytes; at += size) ends.insert(next + at);
        ends.insert(next += bytes);
        ++sizes;
      }
      if (const std::uint32_t a = una + static_cast<std::uint32_t>(random() % (next - una + 1)),
          b = a + static_cast<std::uint32_t>(random() % (next - a + 1));
          random() % 2 == 0) {
        const auto within = static_cast<std::uint32_t>(std::distance(ends.upper_bound(a), ends.upper_bound(b)));
        ASSERT_EQ(sent.within({Sequence(begin + a), Sequence(begin + b)}), within) << seed;
      }
      if (random() % 2 != 0) continue;
      una += static_cast<std::uint32_t>(random() % (next - una + 1));
      const auto gone = ends.upper_bound(una);
      const auto arrived = static_cast<std::uint32_t>(std::distance(ends.begin(), gone));
      ASSERT_EQ(sent.arrived(Sequence(begin + una), 0), arrived) << seed;
      ends.erase(ends.begin(), gone);
      if (una == next) sizes = 0;
    }
  }
}

TEST(SentPackets, TellsEachOnceAndRemembersFewSizes) {
  SentPackets sent;
  sent.sent(range(0, 5000), 1000);
  EXPECT_EQ(sent.arrived(Sequence(1000), 2), 3u);
  EXPECT_EQ(sent.arrived(Sequence(1000), 2), 0u);
  EXPECT_EQ(sent.arrived(Sequence(4000), 0), 1u);
  std::uint32_t at = 5000, packets = 1;
  for (std::uint32_t i = 0; i < 4 * SentPackets::entries_max; ++i, ++packets) {
    sent.sent(range(at, at + 10 + i), 10 + i);
    at += 10 + i;
  }
  EXPECT_EQ(sent.arrived(Sequence(at), 0), packets) << "as many, wherever they end";
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
  board.judge({.mss = mss}, 0);
  EXPECT_FALSE(board.lost());
  EXPECT_EQ(board.in_flight(next), 900u);
  EXPECT_EQ(board.select(range(100, 400), una, next), 200u);
  board.judge({.mss = mss}, 0);
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
  board.judge({.mss = mss}, 0);
  board.resent(*board.lost(), Sequence(500), 0);
  // The later data arrives.
  board.select(range(500, 700), una, Sequence(1000));
  board.judge({.mss = mss}, 0);
  EXPECT_FALSE(board.lost());
  board.select(range(700, 800), una, Sequence(1000));
  board.judge({.mss = mss}, 0);
  EXPECT_EQ(board.lost(), range(0, 100));
}

TEST(Scoreboard, WhatWasSentAgainAndOvertakenHasARoundTripAndAQuarter) {
  constexpr TimeNs round_trip = 8 * millisecond_ns, sent_at = 100 * millisecond_ns, due = sent_at + 10 * millisecond_ns;
  constexpr Scoreboard::Rules rules{mss, round_trip, round_trip / 4};
  Scoreboard board(Sequence(0));
  const Sequence una(0);
  board.select(range(100, 500), una, Sequence(500));
  board.judge(rules, sent_at);
  board.resent(*board.lost(), Sequence(500), sent_at);
  board.judge(rules, due + round_trip);
  EXPECT_FALSE(board.lost()) << "nothing that was sent later has arrived";
  board.select(range(500, 600), una, Sequence(1000));
  board.judge(rules, due - 1);
  EXPECT_FALSE(board.lost());
  board.judge(rules, due);
  EXPECT_EQ(board.lost(), range(0, 100));
}

// A queue that overflows in slow start drops every second segment.
TEST(Scoreboard, TakesWhatFillsHolesHoweverManyThereAre) {
  Scoreboard board(Sequence(0));
  const Sequence una(0), next(100'000);
  std::uint32_t at = mss, selected = 0;
  for (; board.size() < Scoreboard::islands_max; at += 2 * mss)
    selected += board.select(range(at, at + mss), una, next);
  EXPECT_EQ(board.select(range(at, at + mss), una, next), 0u) << "one more hole";
  EXPECT_EQ(board.select(range(10, 20), una, next), 0u) << "one more, too";
  board.judge({.mss = mss}, 0);
  board.resent(range(0, mss), next, 0);
  EXPECT_EQ(board.select(range(2 * mss, 3 * mss), una, next), mss);
  EXPECT_EQ(board.selected(una), selected + mss);
  EXPECT_LE(board.size(), Scoreboard::holes_max);
}

TEST(Scoreboard, SaysWhenALateSegmentWillBeLost) {
  constexpr Scoreboard::Rules rules{.mss = mss, .round_trip_ns = 40, .window_ns = 10, .counts = false};
  Scoreboard board(Sequence(0));
  const Sequence una(0), next(1000);
  board.select(range(100, 200), una, next, 1000);
  board.select(range(300, 900), una, next, 1005);
  EXPECT_EQ(board.judge(rules, 1005), 1010);
  EXPECT_FALSE(board.lost());
  EXPECT_EQ(board.judge(rules, 1010), 1015);
  EXPECT_EQ(board.lost(), range(0, 100));
  board.resent(range(0, 100), next, 1010);
  EXPECT_FALSE(board.saw_reordering());
  board.select(range(200, 300), una, next, 1011);  // sent once, and late
  EXPECT_TRUE(board.saw_reordering());
  board.select(range(900, 1000), una, Sequence(1200), 1012);
  EXPECT_EQ(board.judge(rules, 1012), never) << "nothing that left after the retransmission has arrived";
  board.select(range(1000, 1100), una, Sequence(1200), 1013);
  EXPECT_EQ(board.judge(rules, 1013), 1060);
  EXPECT_EQ(board.selected(una), 1000u);
}

TEST(Scoreboard, ForgivesWhatATimeoutHadDeclaredLost) {
  Scoreboard board(Sequence(0));
  const Sequence una(0), next(1000);
  board.select(range(100, 300), una, next, 7);
  board.lose_all(una, next);
  EXPECT_EQ(board.in_flight(next), 0u);
  board.resent(range(0, 100), next, 8);
  board.forgive(una, 9);
  EXPECT_FALSE(board.lost());
  EXPECT_EQ(board.highest(), Sequence(300));
  EXPECT_EQ(board.in_flight(next), 800u);
  board.acknowledge(Sequence(300));
  EXPECT_TRUE(board.empty());
}

TEST(ReorderWindow, GrowsWithNeedlessRetransmissionsAndForgetsThem) {
  constexpr TimeNs rtt = 40 * millisecond_ns, quarter = rtt / 4;
  ReorderWindow window;
  EXPECT_EQ(window.window_ns(0), never);
  window.add(rtt, second_ns);
  window.add(3 * rtt, 2 * second_ns);
  EXPECT_EQ(window.window_ns(rtt), quarter);
  EXPECT_FALSE(window.seen());
  window.widen(Sequence(100), Sequence(500));
  EXPECT_TRUE(window.seen());
  window.widen(Sequence(400), Sequence(900));  // in the same round trip
  EXPECT_EQ(window.window_ns(rtt), 2 * quarter);
  window.widen(Sequence(500), Sequence(900));
  EXPECT_EQ(window.window_ns(rtt), 3 * quarter);
  window.widen(Sequence(900), Sequence(901));
  window.widen(Sequence(901), Sequence(902));
  EXPECT_EQ(window.window_ns(rtt), rtt) << "not more than a round trip";
  for (int i = 0; i < ReorderWindow::recoveries_kept - 1; ++i) window.recovered();
  EXPECT_EQ(window.window_ns(rtt), rtt);
  window.recovered();
  EXPECT_EQ(window.window_ns(rtt), quarter);
  // The path has changed: a longer round trip counts when the shorter one is old.
  window.add(2 * rtt, 302 * second_ns);
  EXPECT_EQ(window.window_ns(2 * rtt), 2 * quarter);
}

// For any losses, a recovery never sends more than has arrived, plus one segment, and ends at its target.
TEST(ProportionalRate, SendsNoMoreThanArrivesAndEndsAtItsTarget) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t segments = 10 + random() % 200, lost = 1 + random() % (segments - 4),
                        target = std::max(segments / 2, 2u) * mss;
    ProportionalRate rate;
    rate.begin(segments * mss, target);
    std::uint32_t flight = (segments - lost) * mss, arrived = 0, sent = 0;
    for (std::uint32_t i = 0; i < 4 * segments && flight >= mss; ++i) {
      flight -= mss;
      arrived += mss;
      const bool safe = random() % 2 != 0;
      const std::uint32_t window = rate.window(flight, mss, safe, mss);
      ASSERT_LE(window, std::max(flight + 2 * mss, target)) << seed;
      for (; flight + mss <= window; flight += mss, sent += mss) rate.sent(mss);
      ASSERT_LE(sent, 2 * arrived + mss) << seed;
      ASSERT_TRUE(flight >= mss || arrived == segments * mss) << seed << ": nothing is on its way any more";
    }
    EXPECT_LE(flight, std::max(target, (segments - lost) * mss)) << seed;
    EXPECT_GE(flight + mss, std::min(target, segments * mss)) << seed;
  }
}

TEST(PathSearch, FindsTheLargestSize) {
  for (std::uint16_t path = 984; path <= 1460; path += 7) {
    PathSearch search;
    std::uint16_t size = 984;
    search.begin(1460);
    int probes = 0;
    for (std::uint16_t next; (next = search.next(size)) != 0; ++probes) {
      ASSERT_LT(probes, 8);
      search.sent(Sequence(5), next);
      EXPECT_EQ(search.probe().bytes(), next);
      EXPECT_EQ(search.next(size), 0) << "one at a time";
      if (next <= path)
        size = search.arrived(size);
      else
        search.lost(size);
    }
    EXPECT_LE(size, path);
    EXPECT_GT(size + PathSearch::precision, path);
    EXPECT_FALSE(search.searches());
  }
}

TEST(ReorderWindow, GoesByTheHandshakeUntilDataIsMeasured) {
  ReorderWindow window;
  EXPECT_EQ(window.window_ns(0), never);
  EXPECT_EQ(window.window_ns(40 * millisecond_ns), 10 * millisecond_ns);
  window.add(20 * millisecond_ns, second_ns);
  EXPECT_EQ(window.window_ns(40 * millisecond_ns), 5 * millisecond_ns);
}

TEST(Scoreboard, TakesNothingThatCannotBe) {
  Scoreboard board(Sequence(1000));
  const Sequence una(1000), next(2000);
  EXPECT_EQ(board.select(range(500, 1500), una, next), 0u);   // acknowledged in part
  EXPECT_EQ(board.select(range(1500, 2500), una, next), 0u);  // never sent
  EXPECT_EQ(board.select(range(1500, 1400), una, next), 0u);
  EXPECT_EQ(board.select(range(1500, 1500), una, next), 0u);
  EXPECT_TRUE(board.empty());
  // A receiver that has everything and reports nothing: all is sent again after a timeout.
  EXPECT_EQ(board.select(range(1000, 2000), una, next), 1000u);
  board.lose_all(una, next);
  EXPECT_EQ(board.lost(), range(1000, 2000));
}

// With any reports, in any order and with any number of holes, a sender that retransmits lost ranges delivers
// everything.
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
    TimeNs now = 1;
    for (int round = 0;; ++round, now += random() % 4) {
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
        board.select({Sequence(start) + begin, Sequence(start) + end}, Sequence(start) + una, next, now);
      }
      const bool by_time = random() % 2 != 0;
      const TimeNs due = board.judge({.mss = mss,
                                      .round_trip_ns = by_time ? 20 : 0,
                                      .window_ns = by_time ? 5 : never,
                                      .counts = random() % 2 != 0,
                                      .recovers = random() % 2 != 0},
                                     now);
      ASSERT_TRUE(due == never || due > now) << seed;
      if (random() % 16 == 0) {  // a timeout, which is found to be needless
        board.lose_all(Sequence(start) + una, next);
        const std::uint32_t arrived = board.selected(Sequence(start) + una);
        board.forgive(Sequence(start) + una, now);
        ASSERT_FALSE(board.lost()) << seed;
        ASSERT_EQ(board.selected(Sequence(start) + una), arrived) << seed;
      }
      ASSERT_LE(board.size(), Scoreboard::holes_max);
      ASSERT_LE(board.in_flight(next), total - una);
      auto lost = board.lost();
      if (!lost) {
        if (random() % 4 == 0) board.lose_all(Sequence(start) + una, next);
        continue;
      }
      const std::uint32_t begin = bytes_between(Sequence(start), lost->begin);
      const std::uint32_t bytes = std::min<std::uint32_t>(lost->bytes(), mss * (1 + random() % 4));
      board.resent({lost->begin, lost->begin + bytes}, next, now);
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
  std::map<std::uint32_t, FlowKey> keys;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> map;
  for (std::uint32_t step = 0; step < 50'000; ++step) {
    const std::uint32_t address = random() % 50, port = 1 + random() % 40;
    // Of both families, whose last bytes are the same.
    IpAddress remote = ipv4(address);
    if (address % 2 != 0) remote.bytes[0] = 0xfd;
    const FlowKey key{{ipv4(1), 80}, {remote, static_cast<std::uint16_t>(port)}};
    const auto known = map.find({address, port});
    ASSERT_EQ(table.find(key, [&](std::uint32_t flow) { return keys[flow]; }),
              known == map.end() ? FlowTable::nobody : known->second);
    if (random() % 2) {
      ASSERT_EQ(table.erase(key, known == map.end() ? step : known->second), known != map.end());
      if (known != map.end()) map.erase(known);
    } else if (known == map.end()) {
      table.insert(key, step);
      keys[step] = key;
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

TEST(RttEstimator, RepeatsShortTimeoutsOnce) {
  RttEstimator rtt;
  rtt.add(100 * microsecond_ns, {.minimum_ns = millisecond_ns});
  const RtoLimits limits{.minimum_ns = millisecond_ns};
  EXPECT_LT(rtt.timeout_ns(limits, 1), 5 * millisecond_ns);
  EXPECT_EQ(rtt.timeout_ns(limits, 2), 800 * millisecond_ns);
  EXPECT_EQ(RttEstimator().timeout_ns({.minimum_ns = 60 * second_ns}), 60 * second_ns) << "the first flight's, too";
}

TEST(KeyedHash, IsThatOfItsAuthors) {
  const HashKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::vector<std::byte> bytes;
  EXPECT_EQ(keyed_hash(key, bytes), 0x726fdb47dd0e0e31u);
  for (int i = 0; i < 15; ++i) bytes.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(keyed_hash(key, bytes), 0xa129ca6149be45e5u);
  const FlowKey flow{{ipv4(1), 2}, {ipv4(3), 4}};
  std::vector<std::byte> same(24);
  store(same.data(), std::uint64_t{1} << 32 | 3);
  store(same.data() + 8, std::uint64_t{2} << 16 | 4);
  store(same.data() + 16, std::uint64_t{9});
  EXPECT_EQ(keyed_hash(key, flow, 9), keyed_hash(key, same));
}

}  // namespace
}  // namespace offpath::tcp
