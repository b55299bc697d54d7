// Recovery, segment by segment: reordering and DSACK (RFC 8985, RFC 2883), undone repairs (RFC 3522, RFC 5682),
// proportional rate reduction (RFC 9937), and the window after a pause (RFC 5681).
#include "testing/tcp/packet_scripts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

namespace offpath::tcp {
namespace {

const std::string served = R"(
  listen 80
  in  S 0 mss 1000 sack
  out SA 0 ack 1 sack
  in  A 1 ack 1
)";
const std::string served_with_timestamps = R"(
  listen 80
  in  S 0 mss 1012 sack ts 1000:0
  out SA 0 ack 1 sack
  in  A 1 ack 1 ts 1001:0
)";

// Segments of 1000 bytes that are sent, from the `first`th on, counted from 0.
std::string sent(unsigned first, unsigned end) {
  std::string text;
  for (unsigned i = first; i < end; ++i) text += fmt::format("out A {}:{}\n", 1 + 1000 * i, 1001 + 1000 * i);
  return text + "none\n";
}

TEST(Duplicates, AreReportedBeforeWhatIsOutOfOrder) {
  expect_script(served + R"(
    in  A 1:1001 ack 1
    out A 1 ack 1001
    in  A 1:1001 ack 1
    out A 1 ack 1001 sack 1:1001
    in  A 501:1501 ack 1          # in part
    out A 1 ack 1501 sack 501:1001
    in  A 3001:4001 ack 1
    out A 1 ack 1501 sack 3001:4001
    in  A 5001:6001 ack 1
    out A 1 ack 1501 sack 5001:6001,3001:4001
    in  A 3201:3401 ack 1         # the range that contains it is second
    out A 1 ack 1501 sack 3201:3401,3001:4001,5001:6001
    in  A 7001:8001 ack 1
    out A 1 ack 1501 sack 7001:8001,3001:4001,5001:6001
  )");
}

// Should one of them be lost, the peer need not wait for its timeout.
TEST(Acknowledgements, OfABurstThatShowsALossAreTwo) {
  expect_script(served + R"(
    in  A 1001:2001 ack 1
    in  A 2001:3001 ack 1
    in  A 3001:4001 ack 1
    out A 1 ack 1 sack 1001:4001
    out A 1 ack 1 sack 1001:4001
    none
    in  A 5001:6001 ack 1         # alone
    out A 1 ack 1 sack 5001:6001,1001:4001
    none
    in  A 1:1001 ack 1            # the retransmission, and more
    in  A 6001:7001 ack 1
    out A 1 ack 4001 sack 5001:7001
    out A 1 ack 4001 sack 5001:7001
    none
    in  A 4001:5001 ack 1
    in  A 7001:8001 ack 1
    out A 1 ack 8001
    out A 1 ack 8001
    none
    in  A 8001:9001 ack 1         # nothing is missing any more
    in  A 9001:10001 ack 1
    out A 1 ack 10001
    none
  )");
}

// A round trip of 40 ms is known.
const std::string with_round_trip = served + "offer 1000\n" + sent(0, 1) + "wait 40ms\n in A 1 ack 1001\n";

TEST(Reordering, ASingleSegmentThatIsLateIsLostAfterAQuarterOfARoundTrip) {
  expect_script(with_round_trip + "offer 3000\n" + sent(1, 3) + R"(
    wait 40ms
    in  A 1 ack 1001 sack 2001:3001
    none
    wait 9ms
    none
    wait 2ms
    out A 1001:2001
  )");
}

TEST(Reordering, WidensWhatIsWaitedForWithEachNeedlessRetransmission) {
  expect_script(with_round_trip + "offer 5000\n" + sent(1, 5) + R"(
    wait 40ms
    in  A 1 ack 1001 sack 2001:3001
    wait 9ms
    in  A 1 ack 3001              # it was late
    offer 10000
  )" + sent(5, 10) +
                R"(
    wait 40ms
    in  A 1 ack 5001
    in  A 1 ack 5001 sack 6001:9001
    none                          # three segments behind it tell nothing any more
    wait 9ms
    none
    wait 2ms
    out A 5001:6001
    in  A 1 ack 9001 sack 5001:6001
    offer 15000                   # it has arrived twice
  )" + sent(10, 15) +
                R"(
    wait 40ms
    in  A 1 ack 10001
    in  A 1 ack 10001 sack 11001:14001
    wait 19ms
    none
    wait 2ms
    out A 10001:11001
  )");
}

// Segments that one acknowledgement reports have no order of arrival: other acknowledgements may be lost or merged.
TEST(Reordering, IsNotSeenWithinOneAcknowledgement) {
  const std::string ten = served + "offer 10000\n" + sent(0, 10);
  expect_script(ten + "in A 1 ack 1001 sack 2001:5001\n" + sent(1, 2));
  expect_script(ten + "in A 1 ack 1 sack 5001:7001,1001:4001\n" + sent(0, 1));
}

// RFC 3522: the answer echoes a timestamp that is older than the retransmission.
TEST(Undo, OfATimeoutByTimestamps) {
  const std::string timed_out =
      served_with_timestamps + "offer 4000\n" + sent(0, 4) + "wait 1100ms\n" + sent(0, 1) + "offer 30000\n";
  expect_script(timed_out + "in A 1 ack 2001 ts 1500:0\n" + sent(4, 12));  // ten are on their way, as before
  // It answers the retransmission: the data in flight is lost.
  expect_script(timed_out + "in A 1 ack 1001 ts 2500:1100\n" + sent(1, 3));
}

TEST(Undo, OfATimeoutByTwoNewSegmentsWithoutTimestamps) {
  const std::string tried = served + "offer 4000\n" + sent(0, 4) + "wait 1100ms\n" + sent(0, 1) +
                            "offer 30000\n in A 1 ack 1001\n" + sent(4, 6);
  expect_script(tried + "in A 1 ack 2001\n" + sent(6, 12));
  expect_script(tried + "in A 1 ack 1001 sack 4001:5001\n" + sent(1, 2));
  // Nothing new is there to try it with.
  expect_script(served + "offer 4000\n" + sent(0, 4) + "wait 1100ms\n" + sent(0, 1) + "in A 1 ack 1001\n" + sent(1, 3));
}

TEST(Undo, OfARetransmissionByDsack) {
  const std::string retransmitted =
      served + "offer 8000\n" + sent(0, 8) + "in A 1 ack 1 sack 1001:4001\n" + sent(0, 1) + "in A 1 ack 8001\n";
  expect_script(retransmitted + "in A 1 ack 8001 sack 1:1001\n offer 40000\n" + sent(8, 18));
  expect_script(retransmitted + "offer 40000\n" + sent(8, 12));
  // Of data that was sent once.
  expect_script(retransmitted + "in A 1 ack 8001 sack 8001:8501\n offer 40000\n" + sent(8, 12));
}

TEST(Undo, OfARetransmissionByTimestamps) {
  expect_script(served_with_timestamps + "offer 8000\n" + sent(0, 8) +
                "wait 3ms\n in A 1 ack 1 sack 1001:4001 ts 1003:0\n" + sent(0, 1) +
                "in A 1 ack 4001 ts 1004:0\n offer 40000\n" + sent(8, 14));
}

// Of twenty segments the first is lost: while the window halves, data leaves for every second segment that arrives.
TEST(Reduction, IsInProportionToWhatArrives) {
  std::string script = served + "offer 60000\n" + sent(0, 10) + "in A 1 ack 10001\n" + sent(10, 30);
  script += "in A 1 ack 10001 sack 11001:14001\n" + sent(10, 11);
  unsigned next = 30;
  // Until ten are on their way, as many as the window will have.
  for (unsigned arrived = 4; arrived <= 15; ++arrived) {
    script += fmt::format("in A 1 ack 10001 sack 11001:{}\n", 1000 * (arrived + 11) + 1);
    const unsigned before = std::exchange(next, 30 + arrived / 2 - 1);  // less the retransmission
    script += sent(before, next);
  }
  expect_script(script);
}

TEST(Pause, LongerThanATimeoutLeadsBackToTheInitialWindow) {
  const std::string grown = served + "offer 10000\n" + sent(0, 10) + "wait 10ms\n in A 1 ack 10001\n";
  expect_script(grown + "wait 190ms\n offer 60000\n" + sent(10, 30));
  expect_script(grown + "wait 210ms\n offer 60000\n" + sent(10, 20));
}

// The peer's window stays closed meanwhile: data waits, and nothing is on its way.
TEST(Pause, OfAClosedWindowCounts) {
  const std::string grown = served + "offer 10000\n" + sent(0, 10) + "wait 10ms\n";
  const std::string opened = "wait 2s\n any\n in A 1 ack 10001\n" + sent(10, 20);
  expect_script(grown + "offer 60000\n in A 1 ack 10001 win 0\n" + opened);
  expect_script(grown + "in A 1 ack 10001 win 0\n offer 60000\n" + opened);
}

// The handshake has measured 40 ms, and no data has yet.
TEST(Reordering, IsWaitedForInAConnectionsFirstFlight) {
  expect_script("connect 80\n out S 0\n wait 40ms\n in SA 0 ack 1 mss 1000 sack\n out A 1 ack 1\n offer 3000\n" +
                sent(0, 3) + R"(
    wait 40ms
    in  A 1 ack 1 sack 1001:3001
    none
    wait 9ms
    none
    wait 2ms
    out A 1:1001
  )");
}

// However short it is.
TEST(Handshake, MeasuresARoundTripOfAPeersConnection) {
  const std::string data = "offer 3000\n" + sent(0, 3) + "wait 3ms\n" + sent(2, 3);
  expect_script("listen 80\n in S 0 mss 1000 sack\n out SA 0\n wait 300us\n in A 1 ack 1\n" + data);
  expect_script("listen 80\n in S 0 mss 1012 sack ts 1000:0\n out SA 0\n wait 300us\n in A 1 ack 1 ts 1000:0\n" + data);
  // Which of two was answered is not known.
  expect_script("listen 80\n in S 0 mss 1000 sack\n out SA 0\n in S 0 mss 1000 sack\n out SA 0\n wait 300us\n" +
                ("in A 1 ack 1\n offer 3000\n" + sent(0, 3)) + "wait 900ms\n none\n");
}

// Two segments were sent again; acknowledgements, and their reports, may be duplicated.
TEST(Undo, CountsEachReportOnce) {
  const std::string retransmitted =
      served + "offer 8000\n" + sent(0, 8) + "in A 1 ack 1 sack 2001:6001\n" + sent(0, 2) + "in A 1 ack 8001\n";
  const std::string first = "in A 1 ack 8001 sack 1:1001\n";
  expect_script(retransmitted + first + first + "offer 40000\n" + sent(8, 12));
  expect_script(retransmitted + first + "in A 1 ack 8001 sack 1001:2001\n offer 40000\n" + sent(8, 18));
}

TEST(Undo, ComesTooLateAWindowAfterTheRecovery) {
  expect_script(served + "offer 8000\n" + sent(0, 8) + "in A 1 ack 1 sack 1001:4001\n" + sent(0, 1) +
                "in A 1 ack 8001\n offer 60000\n" + sent(8, 12) + "in A 1 ack 12001\n" + sent(12, 17) +
                "in A 1 ack 17001\n" + sent(17, 23) + "in A 1 ack 23001\n" + sent(23, 30) +
                "in A 1 ack 23001 sack 1:1001\n none\n");
}

// A router's mark came after the recovery; its effect is not undone with the recovery.
TEST(Undo, LeavesALaterReduction) {
  expect_script("listen 80\n in SEW 0 mss 1000 sack\n out SAE 0\n in A 1 ack 1\n offer 8000\n" + sent(0, 8) +
                "in A 1 ack 1 sack 1001:4001\n" + sent(0, 1) + R"(
    in  A 1 ack 8001
    offer 40000
    out AW 8001:9001
    out A 9001:10001
    out A 10001:11001
    out A 11001:12001
    none
    in  AE 1 ack 9001             # another window, another mark
    in  A 1 ack 9001 sack 1:1001
    none
  )");
}

// The fast retransmission was late, and is answered after a timeout; other data was lost.
TEST(Undo, NotOfATimeoutAmidARecovery) {
  expect_script(served_with_timestamps + "offer 10000\n" + sent(0, 10) +
                "wait 50ms\n in A 1 ack 1 sack 1001:4001 ts 1040:0\n" + sent(0, 1) + "wait 1100ms\n" + sent(0, 1) +
                "in A 1 ack 4001 ts 1041:60\n out A 4001:5001\n any\n");
}

// While one retransmission is tried, the rest waits: its acknowledgement would look like that of the original.
TEST(Undo, OfATimeoutTriesOneSegmentOnly) {
  expect_script(served + R"(
    offer 600
    out A 1:601
    offer 1600
    out A 601:1601
    offer 2600
    out A 1601:2601
    in  A 1 ack 1 sack 601:1601
    wait 1100ms
    out A 1:601
    none
  )");
  // Half of it: the acknowledgement of the other half proves nothing.
  expect_script(served + "offer 4000\n" + sent(0, 4) + "wait 1100ms\n" + sent(0, 1) +
                "offer 30000\n in A 1 ack 501\n out A 1001:2001\n none\n");
}

}  // namespace
}  // namespace offpath::tcp
