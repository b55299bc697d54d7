// ARP and half-open connections: requests, answers, expiry and bounds.
#include "tcp/flow/neighbours.h"

#include <gtest/gtest.h>

#include "tcp/stack/half_open.h"
#include "testing/tcp/family.h"

namespace offpath::tcp {
namespace {

const IpAddress self = test_address(0x0a000001), other = test_address(0x0a000002);
const IpAddress self4 = tests_ipv6() ? IpAddress{} : self, self6 = tests_ipv6() ? self : IpAddress{};
constexpr std::uint64_t user = 1000;
constexpr MacAddress own_mac{2, 0, 0, 0, 0, 1}, other_mac{2, 0, 0, 0, 0, 2};

NeighbourMessage reply_of(const IpAddress& address, const MacAddress& mac) {
  return {true, mac, address, own_mac, self};
}

TEST(Neighbours, AreAskedForAndWakeWhoeverWaits) {
  Neighbours neighbours(self4, self6, own_mac, {});
  EXPECT_EQ(neighbours.find(other, 7, user, 0), nullptr);
  EXPECT_EQ(neighbours.find(other, 8, user, 0), nullptr);
  const auto asked = neighbours.next_message();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->to, group_mac(other));
  EXPECT_EQ(asked->message, (NeighbourMessage{false, own_mac, self, {}, other}));
  EXPECT_FALSE(neighbours.next_message());  // once
  neighbours.on_message(reply_of(other, other_mac), millisecond_ns);
  for (const std::uint32_t flow : {7u, 8u}) {
    const auto woken = neighbours.next_woken();
    ASSERT_TRUE(woken);
    EXPECT_EQ(woken->flow, flow);
    EXPECT_TRUE(woken->found);
  }
  ASSERT_NE(neighbours.find(other, 7, user, second_ns), nullptr);
  EXPECT_EQ(*neighbours.find(other, 7, user, second_ns), other_mac);
}

// A flow keeps the place of its next hop, which may be another neighbour's when it is asked for next.
TEST(Neighbours, AreFoundByTheirPlaceAsLongAsItIsTheirs) {
  NeighbourLimits limits;
  limits.neighbours_max = 1;
  Neighbours neighbours(self4, self6, own_mac, limits);
  std::uint16_t place = Neighbours::no_place;
  EXPECT_EQ(neighbours.find(other, place, 7, user, 0), nullptr);
  EXPECT_EQ(place, 0u);
  neighbours.on_message(reply_of(other, other_mac), 0);
  ASSERT_NE(neighbours.find(other, place, 7, user, 0), nullptr);
  EXPECT_EQ(*neighbours.find(other, place, 7, user, 0), other_mac);
  // It grows old, and another neighbour takes its place.
  const IpAddress third = test_address(0x0a000003);
  constexpr MacAddress third_mac{2, 0, 0, 0, 0, 3};
  std::uint16_t others_place = 17;  // of nobody
  EXPECT_EQ(neighbours.find(third, others_place, 8, user, 100 * second_ns), nullptr);
  EXPECT_EQ(others_place, place);
  neighbours.on_message(reply_of(third, third_mac), 100 * second_ns);
  EXPECT_EQ(*neighbours.find(third, others_place, 8, user, 100 * second_ns), third_mac);
  EXPECT_EQ(neighbours.find(other, place, 7, user, 101 * second_ns), nullptr);  // no room: and not the other's
  EXPECT_EQ(neighbours.known(other), nullptr);
}

TEST(Neighbours, AreGivenUpAfterThreeTries) {
  Neighbours neighbours(self4, self6, own_mac, {});
  EXPECT_EQ(neighbours.find(other, 7, user, 0), nullptr);
  int asked = 0;
  for (TimeNs now = 0; now < 10 * second_ns; now += 100 * millisecond_ns) {
    neighbours.on_time(now);
    while (neighbours.next_message()) ++asked;
  }
  EXPECT_EQ(asked, 3);
  const auto woken = neighbours.next_woken();
  ASSERT_TRUE(woken);
  EXPECT_FALSE(woken->found);
  EXPECT_EQ(neighbours.size(), 0u);
  EXPECT_EQ(neighbours.next_due(), never);
}

TEST(Neighbours, AreAskedAgainThemselvesWhenTheyAreOldAndUsed) {
  Neighbours neighbours(self4, self6, own_mac, {});
  EXPECT_EQ(neighbours.find(other, 7, user, 0), nullptr);
  static_cast<void>(neighbours.next_message());
  neighbours.on_message(reply_of(other, other_mac), 0);
  EXPECT_EQ(neighbours.next_due(), second_ns);  // of the request: nothing is to be done then
  neighbours.on_time(2 * second_ns);
  EXPECT_EQ(neighbours.next_due(), never);  // one that is not used is not asked
  ASSERT_NE(neighbours.find(other, 7, user, 61 * second_ns), nullptr);
  const auto asked = neighbours.next_message();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->to, other_mac);
  // It does not answer: known until the last try, then not.
  for (TimeNs now = 61 * second_ns; now < 70 * second_ns; now += second_ns) neighbours.on_time(now);
  EXPECT_EQ(neighbours.find(other, 7, user, 70 * second_ns), nullptr);
}

TEST(Neighbours, AnswerWhoeverAsksForUsAndBelieveNobodyElse) {
  Neighbours neighbours(self4, self6, own_mac, {});
  neighbours.on_message({false, other_mac, other, {}, self}, 0);
  const auto answer = neighbours.next_message();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->to, other_mac);
  EXPECT_EQ(answer->message, (NeighbourMessage{true, own_mac, self, other_mac, other}));
  EXPECT_NE(neighbours.known(other), nullptr);
  neighbours.on_message(reply_of(test_address(0x0a000009), other_mac), 0);            // nobody had asked
  neighbours.on_message({false, other_mac, test_address(0x0a00000a), {}, other}, 0);  // for somebody else
  neighbours.on_message({false, other_mac, self, {}, self}, 0);                       // in our name
  EXPECT_EQ(neighbours.size(), 1u);
  EXPECT_FALSE(neighbours.next_message());
}

constexpr MacAddress no_stations[] = {broadcast_mac, {1, 0, 0, 0, 0, 2}, {0x33, 0x33, 0, 0, 0, 1}, {}};

TEST(Neighbours, AreNoGroupsAndNotNobody) {
  for (const MacAddress& mac : no_stations) {
    Neighbours neighbours(self4, self6, own_mac, {});
    EXPECT_EQ(neighbours.find(other, 7, user, 0), nullptr);
    ASSERT_TRUE(neighbours.next_message());
    neighbours.on_message(reply_of(other, mac), 0);
    neighbours.on_message({false, mac, other, {}, self}, 0);
    neighbours.overhear({false, mac, other, {}, self}, 0);
    EXPECT_EQ(neighbours.known(other), nullptr);
    EXPECT_FALSE(neighbours.next_message()) << "an answer to nobody";
    EXPECT_FALSE(neighbours.next_woken());
    neighbours.on_message(reply_of(other, other_mac), 0);
    neighbours.on_message(reply_of(other, mac), 0);
    ASSERT_NE(neighbours.known(other), nullptr);
    EXPECT_EQ(*neighbours.known(other), other_mac);
  }
}

TEST(Neighbours, AreNoMoreThanTheirBound) {
  NeighbourLimits limits;
  limits.neighbours_max = 10;
  limits.waiting_max = 15;
  Neighbours neighbours(self4, self6, own_mac, limits);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    neighbours.on_message({false, other_mac, test_address(0x0a000100 + i), {}, self}, 0);
    static_cast<void>(neighbours.find(test_address(0x0a010000 + i), i, user, 0));
  }
  EXPECT_EQ(neighbours.size(), 10u);
  for (std::uint32_t i = 0; i < 10; ++i) neighbours.on_message(reply_of(test_address(0x0a010000 + i), other_mac), 0);
  EXPECT_EQ(neighbours.find(test_address(0x0a000304), 1, user, second_ns), nullptr);
  EXPECT_NE(neighbours.find(test_address(0x0a010000), 1, user, second_ns), nullptr);
  // Those that have grown old make room.
  for (std::uint32_t i = 0; i < 5; ++i)
    neighbours.on_message({false, other_mac, test_address(0x0a000300 + i), {}, self}, 100 * second_ns);
  EXPECT_EQ(neighbours.size(), 10u);
  EXPECT_NE(neighbours.find(test_address(0x0a000304), 1, user, 100 * second_ns), nullptr);
}

// Nodes can ask under as many names as there are addresses.
TEST(Neighbours, ThatWereNeverUsedMakeRoomForOneThatIs) {
  NeighbourLimits limits;
  limits.neighbours_max = 10;
  Neighbours neighbours(self4, self6, own_mac, limits);
  const IpAddress in_use = test_address(0x0a000099);
  EXPECT_EQ(neighbours.find(in_use, 7, user, 0), nullptr);
  neighbours.on_message(reply_of(in_use, other_mac), 0);
  const auto flood = [&](std::uint32_t from, TimeNs now) {
    for (std::uint32_t i = 0; i < 100; ++i)
      neighbours.on_message({false, other_mac, test_address(from + i), {}, self}, now);
  };
  flood(0x0a000100, second_ns);
  while (neighbours.next_message()) {
  }
  EXPECT_EQ(neighbours.size(), 10u);
  EXPECT_EQ(neighbours.find(other, 8, user, second_ns), nullptr);
  const auto asked = neighbours.next_message();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->message.target, other);
  flood(0x0a000200, second_ns);
  neighbours.on_message(reply_of(other, other_mac), 2 * second_ns);
  EXPECT_NE(neighbours.find(other, 8, user, 2 * second_ns), nullptr);
  EXPECT_NE(neighbours.find(in_use, 7, user, 2 * second_ns), nullptr);
}

// One user asks for absent neighbours, as fast as it can.
TEST(Neighbours, ThatOneUserAsksForInVainLeaveOthersRoom) {
  NeighbourLimits limits;
  limits.neighbours_max = 10;
  limits.unknown_of_user_max = 4;
  Neighbours neighbours(self4, self6, own_mac, limits);
  const auto flood = [&](std::uint64_t of, std::uint32_t from, TimeNs now) {
    for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(neighbours.find(test_address(from + i), i, of, now), nullptr);
  };
  flood(user, 0x0a000100, 0);
  EXPECT_EQ(neighbours.size(), 4u);
  flood(Neighbours::peers, 0x0a000200, 0);  // and peers with forged addresses
  EXPECT_EQ(neighbours.size(), 8u);
  EXPECT_EQ(neighbours.find(other, 8, user + 1, 0), nullptr);
  neighbours.on_message(reply_of(other, other_mac), millisecond_ns);
  EXPECT_NE(neighbours.find(other, 8, user + 1, millisecond_ns), nullptr);
}

TEST(Neighbours, ThatHaveNotAnsweredTheFirstRequestMakeRoomTheOldestFirst) {
  NeighbourLimits limits;
  limits.neighbours_max = 4;
  limits.unknown_of_user_max = 2;
  Neighbours neighbours(self4, self6, own_mac, limits);
  const auto absent = [](std::uint32_t i) { return test_address(0x0a000100 + i); };
  for (std::uint32_t i = 0; i < 2; ++i) EXPECT_EQ(neighbours.find(absent(i), i, user, i), nullptr);
  while (neighbours.next_message()) {
  }
  // The user's own entries make room, and no others that may still answer.
  EXPECT_EQ(neighbours.find(absent(2), 2, user, limits.retry_ns - 1), nullptr);
  EXPECT_FALSE(neighbours.next_message());
  EXPECT_EQ(neighbours.find(absent(2), 2, user, limits.retry_ns), nullptr);
  ASSERT_TRUE(neighbours.next_message());
  const auto woken = neighbours.next_woken();
  ASSERT_TRUE(woken);
  EXPECT_EQ(woken->flow, 0u);
  EXPECT_FALSE(woken->found);
  EXPECT_FALSE(neighbours.next_woken());
  // Anybody's, where the table is full.
  for (std::uint32_t i = 10; i < 12; ++i) EXPECT_EQ(neighbours.find(absent(i), i, user + 1, limits.retry_ns), nullptr);
  EXPECT_EQ(neighbours.size(), 4u);
  EXPECT_EQ(neighbours.find(other, 8, user + 2, limits.retry_ns + 1), nullptr);
  neighbours.on_message(reply_of(other, other_mac), limits.retry_ns + 2);
  EXPECT_NE(neighbours.find(other, 8, user + 2, limits.retry_ns + 3), nullptr);
  EXPECT_EQ(neighbours.next_woken()->flow, 1u);
}

const FlowKey key{{self, 80}, {other, 1234}};

TEST(SynCookies, TellTheMssForTwoMinutesAndOnlyThePeer) {
  const SynCookies cookies({1, 2});
  const TimeNs now = 1000 * second_ns;
  const Sequence irs(77);
  for (const std::uint16_t mss : {std::uint16_t{216}, std::uint16_t{536}, std::uint16_t{1460}, std::uint16_t{8940}}) {
    const Sequence cookie = cookies.make(key, irs, mss, now);
    EXPECT_EQ(cookies.check(key, irs, cookie, now + 50 * second_ns), mss);
    EXPECT_FALSE(cookies.check(key, irs, cookie, now + SynCookies::valid_ns));
    EXPECT_FALSE(cookies.check(key, irs + 1, cookie, now));
    EXPECT_FALSE(cookies.check({key.local, {other, 1235}}, irs, cookie, now));
    EXPECT_FALSE(SynCookies({1, 3}).check(key, irs, cookie, now));
  }
  EXPECT_EQ(cookies.check(key, irs, cookies.make(key, irs, 1400, now), now), 1360);  // the next smaller one
  EXPECT_EQ(cookies.check(key, irs, cookies.make(key, irs, 9, now), now), 216);
}

TEST(SynCookies, TimestampsTellWhatElseTheSynSaid) {
  for (int scale = -1; scale <= 14; ++scale)
    for (const bool sack : {true, false}) {
      TcpOptions syn, read;
      if (scale >= 0) syn.window_scale = static_cast<std::uint8_t>(scale);
      syn.sack_permitted = sack;
      const std::uint32_t marked = SynCookies::mark_timestamp(0xfffffff0, syn);
      EXPECT_LE(marked, 0xfffffff0u);
      EXPECT_GT(marked, 0xfffffff0u - 128);
      SynCookies::read_timestamp(marked, read);
      EXPECT_EQ(read, syn);
    }
}

TEST(HalfOpen, AreNoMoreThanTheirBoundAndComeInTime) {
  HalfOpenTable table(2, {1, 2}, 0);
  const FlowKey second{key.local, {other, 2}}, third{key.local, {other, 3}};
  ASSERT_NE(table.add(key), nullptr);
  ASSERT_NE(table.add(second), nullptr);
  EXPECT_EQ(table.add(third), nullptr);
  table.set_timer(key, second_ns);
  EXPECT_EQ(table.fire(second_ns / 2), nullptr);
  HalfOpen* due = table.fire(2 * second_ns);
  ASSERT_NE(due, nullptr);
  EXPECT_EQ(due->key, key);
  table.remove(key);
  table.remove(key);
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_NE(table.add(third), nullptr);
  EXPECT_EQ(table.size(), 2u);
}

}  // namespace
}  // namespace offpath::tcp
