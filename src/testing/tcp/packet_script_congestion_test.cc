// Congestion control, segment by segment: HyStart++ (RFC 9406), CUBIC's curve over time in which its window was not the
// limit (RFC 9438, 5.8), DCTCP on a path of microseconds (RFC 8257), and the shortest retransmission timeout.
#include "testing/tcp/packet_script.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace offpath::tcp {
namespace {

void expect_script(std::string_view script, const PacketScriptOptions& options) {
  EXPECT_EQ(run_packet_script(script, options), "");
}

// Segments of 1000 bytes that are sent, from the `first`th on, counted from 0.
std::string sent(unsigned first, unsigned end) {
  std::string text;
  for (unsigned i = first; i < end; ++i) text += fmt::format("out A {}:{}\n", 1 + 1000 * i, 1001 + 1000 * i);
  return text + "none\n";
}

// A connection with timestamps whose clock, and the script's, begins at 0 ms.
const std::string served_with_timestamps = R"(
  listen 80
  in  S 0 mss 1012 sack scale 7 ts 1000:0
  out SA 0 ack 1
  in  A 1 ack 1 win 60000 ts 1000:0
  offer 900000
)";

// An acknowledgement of each segment from `first` on, which left at `at_ms`, and how many leave in response to it, from
// `next` on.
std::string rounds(unsigned first, const std::vector<unsigned>& answers, unsigned at_ms, unsigned next) {
  std::string text;
  for (const unsigned count : answers) {
    text += fmt::format("in A 1 ack {} win 60000 ts {}:{}\n", 1001 + 1000 * first++, 1000 + at_ms, at_ms);
    text += sent(next, next + count);
    next += count;
  }
  return text;
}

// Ten segments, whose round trip takes 40 ms, bring twenty.
const std::string first_round =
    served_with_timestamps + sent(0, 10) + "wait 40ms\n" + rounds(0, std::vector(10, 2u), 0, 10);

TEST(SlowStart, GoesOnWhileRoundTripsStayAsTheyAre) {
  for (const char* congestion : {"new_reno", "cubic"})
    expect_script(first_round + "wait 44ms\n" + rounds(10, std::vector(20, 2u), 40, 30), {.congestion = congestion});
}

// The eighth sample of the second round shows a queue: from there on the window grows by a quarter of what is
// acknowledged.
TEST(SlowStart, SlowsDownWhereRoundTripsGrow) {
  for (const char* congestion : {"new_reno", "cubic"})
    expect_script(
        first_round + "wait 46ms\n" + rounds(10, {2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1}, 40, 30),
        {.congestion = congestion});
}

// A shorter round trip in a later round shows that there was no queue.
TEST(SlowStart, GoesOnAfterNoise) {
  const std::vector slow{2u, 2u, 2u, 2u, 2u, 2u, 2u, 1u, 1u, 1u, 2u, 1u, 1u, 1u, 2u, 1u, 1u, 1u, 2u, 1u};
  expect_script(first_round + "wait 46ms\n" + rounds(10, slow, 40, 30) + "wait 40ms\n" +
                    rounds(30, {1, 1, 2, 1, 1, 2, 2, 2, 2, 2, 2, 2}, 86, 60),
                {.congestion = "cubic"});
}

// Of ten segments the first is lost: CUBIC's window is seven, and grows by half a segment in a round trip of 40 ms. Its
// curve is back at ten after two seconds.
const std::string reduced = "listen 80\n in S 0 mss 1000 sack\n out SA 0\n in A 1 ack 1\n offer 10000\n" + sent(0, 10) +
                            "wait 40ms\n in A 1 ack 1 sack 1001:10001\n" + sent(0, 1) +
                            "wait 40ms\n in A 1 ack 10001\n";
const std::string one_round = "offer 17000\n" + sent(10, 17) + "wait 40ms\n in A 1 ack 17001\n";

TEST(Cubic, GrowsWhileItsWindowIsTheLimit) {
  std::string script = reduced;
  for (unsigned round = 0, next = 10; round < 60; ++round) {
    // 7, 7.5, 8.1, … as Reno would; the curve is flatter.
    const auto window = static_cast<unsigned>(7 + 0.53 * round);
    if (round == 4) break;
    script += fmt::format("offer {}\n", 1000 * (next + window)) + sent(next, next + window) +
              fmt::format("wait 40ms\n in A 1 ack {}\n", 1000 * (next + window) + 1);
    next += window;
  }
  expect_script(script, {.congestion = "cubic"});
}

// RFC 9438, 5.8: by the clock its curve would be far above ten, and the window would grow by half in a round trip.
TEST(Cubic, LeavesOutTimeInWhichNothingIsSent) {
  expect_script(reduced + one_round + "wait 5s\n offer 24000\n" + sent(17, 24) +
                    "wait 40ms\n in A 1 ack 24001\n offer 60000\n" + sent(24, 32),
                {.congestion = "cubic"});
}

TEST(Cubic, LeavesOutTimeInWhichItsWindowIsNotTheLimit) {
  std::string script = reduced + one_round;
  for (unsigned i = 17; i < 27; ++i)
    script += fmt::format("offer {}\n", 1000 * i + 1000) + sent(i, i + 1) +
              fmt::format("wait 40ms\n in A 1 ack {}\n wait 460ms\n", 1001 + 1000 * i);
  expect_script(script + "offer 34000\n" + sent(27, 34) + "wait 40ms\n in A 1 ack 34001\n offer 60000\n" + sent(34, 42),
                {.congestion = "cubic"});
}

// RFC 8257 on a path of 30 us. Timestamps tick each millisecond: the acknowledgement of 10001 comes after a tick, so
// its echo looks like a round trip of a millisecond. It must not count: each 30 us, marks halve the rate again.
TEST(Dctcp, GoesByRoundTripsOfMicroseconds) {
  if (std::getenv("OFFPATH_TEST_LINK") != nullptr) GTEST_SKIP() << "the link to the program takes 20 us";
  expect_script(R"(
    listen 80
    in  SEW 0 mss 1012 sack scale 7 ts 1000:0
    out SAE 0 ack 1
    wait 30us
    in  A 1 ack 1 win 60000 ts 1000:0
    wait 940us
    offer 60000
    out A 1:1001
    any
    wait 30us
    in  AE 1 ack 1001 win 60000 ts 1001:0
    in  AE 1 ack 10001 win 60000 ts 1001:0
    out AW 10001:11001
    none
    wait 31us
    any
    in  AE 1 ack 11001 win 60000 ts 1001:1
    wait 400us                    # whatever the rate, the window is four segments
    out AW 13001:14001
    out A 14001:15001
    none
  )",
                {.congestion = "dctcp"});
}

// Less than peers delay their acknowledgements, for networks in which none does. A second timeout in a row is twice as
// long; from the third on they are as long as usual, so that a silent peer is not given up within a second.
TEST(Timeout, IsAsShortAsItIsConfigured) {
  expect_script(R"(
    listen 80
    in  S 0 mss 1000 sack
    out SA 0
    in  A 1 ack 1
    offer 1000
    out A 1:1001
    wait 1ms
    in  A 1 ack 1001
    offer 1900
    out A 1001:1901
    wait 4ms
    none
    wait 2ms
    out A 1001:1901
    wait 8ms
    none
    wait 3ms
    out A 1001:1901
    wait 750ms
    none
    wait 60ms
    out A 1001:1901
  )",
                {.rto_min_ns = 5 * millisecond_ns});
}

}  // namespace
}  // namespace offpath::tcp
