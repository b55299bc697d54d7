// The exchange on the wire, segment by segment: handshake, retransmission, SACK, window, close.
#include "testing/tcp/packet_scripts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace offpath::tcp {
namespace {

const std::string served(accepted);

TEST(PacketScript, SaysWhatIsWrong) {
  EXPECT_NE(run_packet_script("listen 80\nin S 0\nout A 0").find("line 3"), std::string::npos);
  EXPECT_NE(run_packet_script(served + "out A 1").find("nothing was sent"), std::string::npos);
  EXPECT_NE(run_packet_script("listen 80\nin S 0").find("after the last line: sent SA"), std::string::npos);
  EXPECT_EQ(run_packet_script("listen 80\nin S 0\nany"), "");
  EXPECT_NE(run_packet_script(served + "dance").find("no such command"), std::string::npos);
}

TEST(Handshake, RepeatsItsSynWithBackoffAndGivesUp) {
  expect_script(R"(
    connect 80
    out S 0 mss 1460 sack scale 7
    none
    wait 1100ms
    out S 0
    wait 2100ms
    out S 0
    none
    wait 200s
    out S 0
    out S 0
    out S 0
    out S 0
    none
    closed timed_out
  )");
}

TEST(Handshake, RepeatsItsAnswerWithBackoffAndForgets) {
  expect_script(R"(
    listen 80
    in  S 0 mss 1000 ts 7:0
    out SA 0 ack 1 ts 0:7
    in  S 0 mss 1000 ts 7:0
    out SA 0 ack 1
    wait 1100ms
    out SA 0 ack 1
    wait 2100ms
    out SA 0 ack 1
    none
    wait 4100ms
    out SA 0 ack 1
    none
    wait 8100ms
    out SA 0 ack 1
    none
    wait 16100ms
    out SA 0 ack 1
    none
    wait 200s
    none
    in  A 1 ack 1
    out R
    none
  )");
}

TEST(Handshake, TakesOnlyWhatThePeerHas) {
  expect_script(R"(
    listen 80
    in  S 0 mss 700
    out SA 0 ack 1 scale 0
    in  A 1 ack 1 win 10000
    offer 1400
    out A 1:701 ack 1
    out A 701:1401 ack 1
  )");
}

TEST(Handshake, IsRefused) {
  expect_script("connect 80\n out S 0\n in RA 0 ack 1\n closed refused");
  // Of a number that was never sent: refused in turn, and the own SYN stands.
  expect_script("connect 80\n out S 0\n in SA 0 ack 77\n out R 77\n none\n in SA 0 ack 1 mss 1460\n out A 1 ack 1");
  // Nobody listens: RFC 9293, 3.10.7.1.
  expect_script("listen 81\n in S 0\n out SA 0\n in R 1\n in A 1 ack 1\n out R");
}

TEST(Handshake, OfBothAtOnce) {
  expect_script(R"(
    connect 80
    out S 0
    in  S 0 mss 1460 sack scale 7
    out SA 0 ack 1
    in  SA 0 ack 1
    received 0
    offer 10
    out A 1:11 ack 1
  )");
}

TEST(Receive, AcknowledgesEverySecondSegmentAndOthersLater) {
  std::string script = served;
  // The first sixteen at once, while the peer is in slow start.
  for (int i = 0; i < 16; ++i)
    script += fmt::format("in A {}:{} ack 1\n out A 1 ack {}\n", 1 + 100 * i, 101 + 100 * i, 101 + 100 * i);
  script += R"(
    in  A 1601:1701 ack 1
    none
    wait 50ms
    out A 1 ack 1701
    in  A 1701:3161 ack 1
    none
    in  A 3161:4621 ack 1
    out A 1 ack 4621
    received 4620
  )";
  expect_script(script);
}

TEST(Receive, ReportsWhatIsOutOfOrderTheNewestFirst) {
  expect_script(served + R"(
    in  A 1001:2001 ack 1
    out A 1 ack 1 sack 1001:2001
    in  A 3001:4001 ack 1
    out A 1 ack 1 sack 3001:4001,1001:2001
    in  A 5001:6001 ack 1
    out A 1 ack 1 sack 5001:6001,3001:4001,1001:2001
    in  A 2001:3001 ack 1
    out A 1 ack 1 sack 1001:4001,5001:6001
    received 0
    in  A 1:1001 ack 1
    out A 1 ack 4001 sack 5001:6001
    received 4000
    in  A 4001:5001 ack 1
    out A 1 ack 6001
    received 6000
  )");
}

TEST(Receive, TakesTheNewPartOfWhatOverlaps) {
  expect_script(served + R"(
    in  A 1:1001 ack 1
    out A 1 ack 1001
    in  A 501:1501 ack 1
    out A 1 ack 1501
    in  A 1:1001 ack 1
    out A 1 ack 1501
    received 1500
  )");
}

TEST(Receive, TellsItsWindowAndKeepsToIt) {
  // 65,536 bytes of room, announced in units of 128.
  expect_script(served + R"(
    in  A 1:1461 ack 1
    out A 1 ack 1461 win 500
    in  A 64000:68000 ack 1      # the last 2464 bytes are beyond the window
    out A 1 ack 1461 sack 64000:65536
    in  A 70000:71000 ack 1
    out A 1 ack 1461
    received 1460
  )");
}

TEST(Receive, DropsWhatIsOlderThanItsTimestamps) {
  expect_script(R"(
    listen 80
    in  S 0 mss 1460 ts 1000:0
    out SA 0 ack 1
    in  A 1 ack 1 ts 1001:0
    in  A 1:101 ack 1 ts 1002:0
    out A 1 ack 101 ts 0:1002
    in  A 101:201 ack 1 ts 900:0
    out A 1 ack 101 ts 0:1002
    in  A 101:201 ack 1          # without any
    none
    in  A 101:201 ack 1 ts 1002:0
    out A 1 ack 201
  )");
}

// A clock of milliseconds goes round in 50 days: after half of them nothing is older or newer (RFC 7323, 5.5).
TEST(Receive, ForgetsTimestampsOfAPeerThatWasSilentForWeeks) {
  const std::string begun = R"(
    listen 80
    in  S 0 mss 1460 ts 1000:0
    out SA 0 ack 1
    in  A 1 ack 1 ts 1001:0
  )";
  expect_script(begun + "wait 1900000s\n in A 1:101 ack 1 ts 900:0\n out A 1 ack 1\n received 0");
  expect_script(begun + "wait 2100000s\n in A 1:101 ack 1 ts 900:0\n received 100\n out A 1 ack 101");
}

TEST(Send, RepeatsWhatIsNotAcknowledgedWithBackoff) {
  expect_script(served + R"(
    offer 1000
    out A 1:1001 ack 1
    wait 900ms
    none
    wait 200ms
    out A 1:1001 ack 1
    wait 1900ms
    none
    wait 200ms
    out A 1:1001 ack 1
    in  A 1 ack 1001
    acknowledged 1000
    wait 100s
    none
  )");
}

TEST(Send, RepairsByThreeDuplicatesWithoutSack) {
  expect_script(R"(
    listen 80
    in  S 0 mss 1000
    out SA 0 ack 1
    in  A 1 ack 1
    offer 6000
    out A 1:1001
    out A 1001:2001
    out A 2001:3001
    out A 3001:4001
    out A 4001:5001
    out A 5001:6001
    in  A 1 ack 1
    in  A 1 ack 1
    none
    in  A 1 ack 1
    out A 1:1001
    none
    in  A 1 ack 2001             # a partial one: the next is lost as well
    out A 2001:3001
    in  A 1 ack 6001
    acknowledged 6000
    none
  )");
}

TEST(Send, RepairsWhatSackSaysIsMissingAndNothingElse) {
  expect_script(R"(
    listen 80
    in  S 0 mss 1000 sack
    out SA 0 ack 1 sack
    in  A 1 ack 1
    offer 8000
    out A 1:1001
    out A 1001:2001
    out A 2001:3001
    out A 3001:4001
    out A 4001:5001
    out A 5001:6001
    out A 6001:7001
    out A 7001:8001
    in  A 1 ack 1 sack 1001:2001
    in  A 1 ack 1 sack 3001:4001,1001:2001
    none
    in  A 1 ack 1 sack 3001:5001,1001:2001
    out A 1:1001
    in  A 1 ack 1 sack 3001:6001,1001:2001
    out A 2001:3001
    in  A 1 ack 6001
    none
    in  A 1 ack 8001
    acknowledged 8000
    wait 10s
    none
  )");
}

// A round trip of 10 ms is known; four segments are on their way.
const std::string with_a_tail = R"(
    listen 80
    in  S 0 mss 1000 sack
    out SA 0 ack 1 sack
    in  A 1 ack 1
    offer 1000
    out A 1:1001
    wait 10ms
    in  A 1 ack 1001
    offer 5000
    out A 1001:2001
    out A 2001:3001
    out A 3001:4001
    out A 4001:5001
    wait 20ms
    none
    wait 10ms
    out A 4001:5001              # after two round trips
    wait 100ms
    none
)";

TEST(Send, ProbesTheTailAndRepairsWhatThatShows) {
  expect_script(with_a_tail + R"(
    in  A 1 ack 1001 sack 4001:5001
    out A 1001:2001
    none                         # as much as has arrived
    in  A 1 ack 2001 sack 4001:5001
    out A 2001:3001              # and one more, as nothing else is lost (PRR-SSRB)
    out A 3001:4001
    none
    in  A 1 ack 5001
    acknowledged 5000
    wait 10s
    none
  )");
}

TEST(Send, ATailThatWasLostIsRepairedByItsProbe) {
  expect_script(with_a_tail + R"(
    in  A 1 ack 5001
    acknowledged 5000
    wait 10s
    none
    offer 11000
    out A 5001:6001
    out A 6001:7001
    none                         # a segment was lost, so the window is smaller
  )");
}

TEST(Send, AProbeThatIsNotAnsweredIsFollowedByATimeout) {
  expect_script(with_a_tail + R"(
    wait 120ms
    out A 1001:2001
    in  A 1 ack 2001
    out A 2001:3001
    out A 3001:4001
  )");
}

TEST(Send, ASingleSegmentWaitsForItsTimeout) {
  expect_script(served + R"(
    offer 1000
    out A 1:1001
    wait 10ms
    in  A 1 ack 1001
    offer 2000
    out A 1001:2001
    wait 150ms
    none
    wait 100ms
    out A 1001:2001
  )");
}

TEST(Send, KeepsToTheWindowAndAsksForIt) {
  expect_script(R"(
    listen 80
    in  S 0 mss 1000
    out SA 0 ack 1
    in  A 1 ack 1 win 1500
    offer 5000
    out A 1:1001
    none                          # 500 bytes of window are no reason for a small segment
    in  A 1 ack 1001 win 0
    none
    wait 1500ms
    out A 1000 ack 1              # a number of the past asks for the window
    in  A 1 ack 1001 win 0
    wait 200s
    any                           # asked again and again
    in  A 1 ack 1001 win 4000
    out A 1001:2001 ack 1
    out A 2001:3001 ack 1
    out A 3001:4001 ack 1
    out A 4001:5001 ack 1
  )");
}

TEST(Send, SendsWhenTheWindowOpens) {
  expect_script(R"(
    listen 80
    in  S 0 mss 1000
    out SA 0 ack 1
    in  A 1 ack 1 win 0
    offer 2000
    none
    in  A 1 ack 1 win 2000
    out A 1:1001
    out A 1001:2001
  )");
}

TEST(Congestion, AcknowledgementsThatComeTogetherCountAsIfOneByOne) {
  std::string script = "listen 80\n in S 0 mss 1000 sack\n out SA 0 ack 1\n in A 1 ack 1\n offer 60000\n";
  const auto expect_segments = [&](unsigned from, unsigned to) {
    for (; from < to; from += 1000) script += fmt::format("out A {}:{}\n", from, from + 1000);
    script += "none\n";
  };
  expect_segments(1, 10'001);
  for (unsigned ack = 2001; ack <= 10'001; ack += 2000) script += fmt::format("in A 1 ack {}\n", ack);
  expect_segments(10'001, 30'001);  // slow start: twice as many
  expect_script(script);
}

TEST(Congestion, MarksAreEchoedUntilTheSenderHasAnswered) {
  expect_script(R"(
    listen 80
    in  SEW 0 mss 1000 sack
    out SAE 0 ack 1
    in  A 1 ack 1
    in  A 1:101 ack 1 ce
    out AE 1 ack 101
    in  A 101:201 ack 1
    out AE 1 ack 201
    in  AW 201:301 ack 1
    out A 1 ack 301
    in  AW 301:401 ack 1 ce
    out AE 1 ack 401
  )");
  // A program that did not ask gets no event.
  expect_script("listen 80\n in S 0 mss 1000\n out SA 0\n in A 1 ack 1\n in A 1:101 ack 1 ce\n out A 1 ack 101");
}

TEST(Congestion, AnEchoShrinksTheWindowOnceForWhatIsOnItsWay) {
  expect_script(R"(
    listen 80
    in  SEW 0 mss 1000 sack
    out SAE 0 ack 1
    in  A 1 ack 1
    offer 20000
    out A 1:1001 ect
    out A 1001:2001 ect
    out A 2001:3001 ect
    out A 3001:4001 ect
    out A 4001:5001 ect
    out A 5001:6001 ect
    out A 6001:7001 ect
    out A 7001:8001 ect
    out A 8001:9001 ect
    out A 9001:10001 ect
    in  AE 1 ack 2001            # eight are on their way: four from now on
    none
    in  AE 1 ack 6001
    none
    in  AE 1 ack 7001
    out AW 10001:11001 ect
    none
    in  A 1 ack 8001
    out A 11001:12001 ect
    in  AE 1 ack 10001           # of what was on its way when it shrank: four still
    out A 12001:13001
    out A 13001:14001
    none
    in  AE 1 ack 11001           # of what was sent since
    none
    in  A 1 ack 12001
    none
    in  A 1 ack 13001
    out AW 14001:15001 ect
  )");
}

TEST(Close, InEachOrder) {
  expect_script(served + R"(
    finish
    out FA 1 ack 1
    in  A 1 ack 2
    in  FA 1 ack 2
    out A 2 ack 2
    finished
    closed none
    in  FA 1 ack 2                # our answer was lost
    out A 2 ack 2
    wait 100s
    none
  )");
  expect_script(served + R"(
    in  FA 1 ack 1
    out A 1 ack 2
    finished
    offer 100
    finish
    out FA 1:101 ack 2
    in  A 2 ack 102
    closed none
  )");
  expect_script(served + R"(
    finish
    out FA 1 ack 1
    in  FA 1 ack 1                # both at once
    out A 2 ack 2
    in  A 2 ack 2
    closed none
  )");
}

TEST(Close, AFinThatCameTooEarlyIsRemembered) {
  expect_script(served + R"(
    in  FA 1001:2001 ack 1
    out A 1 ack 1 sack 1001:2001
    in  A 1:1001 ack 1
    out A 1 ack 2002
    received 2000
    finished
  )");
}

TEST(Close, RepeatsItsFin) {
  expect_script(served + R"(
    finish
    out FA 1 ack 1
    wait 1100ms
    out FA 1 ack 1
    in  A 1 ack 2
    wait 100s
    none
  )");
}

// Our last acknowledgement was lost, and is asked for until its peer has it.
TEST(Close, AFinAgainBeginsTimeWaitAnew) {
  std::string script = served + R"(
    finish
    out FA 1 ack 1
    in  A 1 ack 2
    in  FA 1 ack 2
    out A 2 ack 2
  )";
  for (int i = 0; i < 3; ++i) script += "wait 50s\n in FA 1 ack 2\n out A 2 ack 2\n";
  expect_script(script + "wait 61s\n in FA 1 ack 2\n out R 2\n");
}

// A peer that keeps its window closed and answers each probe is alive, but no program here waits for it.
TEST(Close, OfWhatThePeerNeverTakesEndsWhenNobodyIsLeft) {
  expect_script(served + R"(
    in  A 1 ack 1 win 0
    offer 100
    release
    none
    wait 30s
    any                           # asks for the window
    in  A 1 ack 1 win 0
    wait 29s
    any
    wait 2s
    out RA 1 ack 1
    gone
    in  A 1 ack 1 win 0
    out R 1
  )");
}

// A byte now and then would take it days.
TEST(Close, OfWhatThePeerTakesByteByByteEndsToo) {
  expect_script(served + R"(
    in  A 1 ack 1 win 0
    offer 3000
    release
    none
    wait 20s
    any
    in  A 1 ack 1 win 1
    out A 1:2 ack 1
    wait 20s
    any
    in  A 1 ack 2 win 1
    out A 2:3 ack 1
    wait 19s
    any
    wait 2s
    out RA 3 ack 1
    gone
  )");
}

TEST(Reset, OnlyOfTheVeryNextNumber) {
  expect_script(served + R"(
    in  R 2
    out A 1 ack 1
    in  R 70000
    none
    in  R 1
    closed reset
  )");
}

TEST(Reset, ASynInAnEstablishedFlowIsAskedAbout) {
  expect_script(served + R"(
    in  S 1
    out A 1 ack 1
    wait 1s
    in  S 40000
    out A 1 ack 1
    in  S 50000                   # not more than twice a second
    none
  )");
}

TEST(Reset, AcknowledgementsOfWhatWasNeverSentAreAskedAbout) {
  expect_script(served + R"(
    in  A 1:101 ack 5000
    out A 1 ack 1
    received 0
  )");
}

// RFC 5961, 5.2: acknowledgements of the real peer are not older than its largest window.
TEST(Reset, AcknowledgementsOlderThanAnyWindowAreAskedAbout) {
  const std::string begun = R"(
    listen 80
    in  S 0 win 65535 mss 1460 sack scale 7
    out SA 0 ack 1
    in  A 1 ack 1 win 1000        # 128,000 bytes
  )";
  expect_script(begun +
                fmt::format("in A 1:101 ack {} win 900\n out A 1 ack 101\n received 100", (1ull << 32) + 1 - 128'000));
  expect_script(begun +
                fmt::format("in A 1:101 ack {} win 900\n out A 1 ack 1\n received 0", (1ull << 32) + 1 - 128'001));
}

TEST(Reset, IsSaidByAbort) {
  expect_script(served + R"(
    abort
    out RA 1 ack 1
    gone
    in  A 1:101 ack 1
    out R 1
  )");
}

}  // namespace
}  // namespace offpath::tcp
