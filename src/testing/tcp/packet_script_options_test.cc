// Options that a program sets for its connections, and their effect on the wire: the traffic class (RFC 2474), and the
// choice of congestion control.
#include "testing/tcp/packet_script.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace offpath::tcp {
namespace {

void expect_script(std::string_view script, const PacketScriptOptions& options = {}) {
  EXPECT_EQ(run_packet_script(script, options), "");
}

// Segments of 1000 bytes that are sent, from the `first`th on, counted from 0.
std::string sent(unsigned first, unsigned end) {
  std::string text;
  for (unsigned i = first; i < end; ++i) text += fmt::format("out A {}:{}\n", 1 + 1000 * i, 1001 + 1000 * i);
  return text + "none\n";
}

TEST(TrafficClass, IsThatOfEveryPacketOfAConnection) {
  expect_script(R"(
    class 184
    connect 80
    out S 0 class 184
    wait 1100ms
    out S 0 class 184
    in  SA 0 ack 1 mss 1000
    out A 1 ack 1 class 184
    offer 1000
    out A 1:1001 class 184
    in  A 1:101 ack 1001
    out A 1001 ack 101 class 184
    class 32                      # from now on
    offer 2000
    out A 1001:2001 class 32
    wait 250ms
    out A 1001:2001 class 32
    abort
    out RA 2001 class 32
  )");
}

TEST(TrafficClass, OfAListenerIsThatOfItsConnections) {
  expect_script(R"(
    class 184
    listen 80
    in  S 0 mss 1000
    out SA 0 class 184
    wait 1100ms
    out SA 0 class 184
    in  A 1 ack 1
    offer 1000
    out A 1:1001 class 184
  )");
}

TEST(TrafficClass, LeavesTheBitsOfEcnToTheStack) {
  expect_script(R"(
    class 187
    listen 80
    in  SEW 0 mss 1000 sack
    out SAE 0 class 184 noect
    in  A 1 ack 1
    offer 1000
    out A 1:1001 class 184 ect
    in  A 1:101 ack 1001
    out A 1001 ack 101 class 184 noect
  )");
}

// One of eight segments is lost: afterwards NewReno has four in flight, CUBIC seven tenths of its window of ten.
const std::string served = "listen 80\n in S 0 mss 1000 sack\n out SA 0\n in A 1 ack 1\n";
const std::string opened = "connect 80\n out S 0\n in SA 0 ack 1 mss 1000 sack\n out A 1 ack 1\n";
const std::string sends_eight = "offer 8000\n" + sent(0, 8);
const std::string loses_one = "in A 1 ack 1 sack 1001:4001\n" + sent(0, 1) + "in A 1 ack 8001\n offer 40000\n";
const std::string as_new_reno = sent(8, 12), as_cubic = sent(8, 15);

TEST(CongestionControl, IsTheStacksWhereNoneIsChosen) {
  expect_script(served + sends_eight + loses_one + as_new_reno, {.congestion = "new_reno"});
  expect_script(served + sends_eight + loses_one + as_cubic, {.congestion = "cubic"});
}

TEST(CongestionControl, IsTheOneChosenBeforeAConnectionBegins) {
  for (const std::string& begun : {served, opened}) {
    expect_script("choose cubic\n" + begun + sends_eight + loses_one + as_cubic, {.congestion = "new_reno"});
    expect_script("choose reno\n" + begun + sends_eight + loses_one + as_new_reno, {.congestion = "cubic"});
  }
}

TEST(CongestionControl, IsTheOneChosenLast) {
  for (const std::string& begun : {served, opened}) {
    expect_script(begun + sends_eight + "choose cubic\n" + loses_one + as_cubic, {.congestion = "new_reno"});
    expect_script(begun + "choose dctcp\n" + sends_eight + "choose reno\n" + loses_one + as_new_reno);
  }
}

// The algorithm that had begun the recovery is another one by now.
TEST(CongestionControl, OfAnotherAlgorithmIsNotUndone) {
  expect_script(served + sends_eight + "in A 1 ack 1 sack 1001:4001\n" + sent(0, 1) +
                    "in A 1 ack 8001\n choose cubic\n in A 1 ack 8001 sack 1:1001\n offer 40000\n" + sent(8, 12),
                {.congestion = "new_reno"});
}

// Each algorithm keeps other state, which begins with the SYN's answer. CUBIC's first slow start goes on while round
// trips stay as they are.
TEST(CongestionControl, ChosenBeforeAConnectionBeginsItsState) {
  std::string script =
      "choose cubic\n connect 80\n out S 0\n wait 40ms\n in SA 0 ack 1 mss 1012 sack scale 7 ts 1000:0\n out A 1 ack "
      "1\n"
      "offer 200000\n" +
      sent(0, 10);
  for (unsigned first = 0, at_ms = 40; first < 30; at_ms += 40) {
    script += "wait 40ms\n";
    for (const unsigned end = 2 * first + 10; first < end; ++first)
      script += fmt::format("in A 1 ack {} win 60000 ts {}:{}\n", 1001 + 1000 * first, 1000 + at_ms, at_ms) +
                sent(10 + 2 * first, 12 + 2 * first);
  }
  expect_script(script, {.congestion = "dctcp"});
}

// DCTCP takes all bytes before the first mark for marked (RFC 8257, 3.3): the first mark halves the rate, to a segment
// each 8 ms.
TEST(CongestionControl, HalvesTheRateOfDctcpAtTheFirstMark) {
  expect_script(
      "choose dctcp\n connect 80\n out SEW 0\n wait 40ms\n in SAE 0 ack 1 mss 1000 sack\n out A 1 ack 1\n"
      "offer 60000\n" +
          sent(0, 10) +
          "wait 40ms\n in AE 1 ack 10001\n out A 10001:11001\n none\n wait 6ms\n none\n wait 3ms\n"
          "out A 11001:12001\n none\n",
      {.congestion = "cubic"});
}

// DCTCP goes by marks, so its SYN asks for them.
TEST(CongestionControl, DecidesWhatASynAsksFor) {
  expect_script("choose dctcp\n connect 80\n out SEW 0\n", {.congestion = "cubic"});
  expect_script("choose cubic\n connect 80\n out S 0\n", {.congestion = "dctcp"});
}

}  // namespace
}  // namespace offpath::tcp
