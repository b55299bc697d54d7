// Accurate ECN (RFC 9768), segment by segment: agreement by SYNs, arriving marks, and the peer's feedback.
#include "testing/tcp/packet_script.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace offpath::tcp {
namespace {

constexpr PacketScriptOptions accurate{.ecn = EcnUse::accurate};

void expect_script(std::string_view script, const PacketScriptOptions& options = accurate) {
  EXPECT_EQ(run_packet_script(script, options), "");
}

const std::string served = R"(
  listen 80
  in  SEWX 0 mss 1008 sack
  out SA 0 ack 1 ace 2 bytes 1,0 noect
  in  A 1 ack 1 ace 2 bytes 1,0
)";
const std::string connected = R"(
  connect 80
  out SEWX 0 bytes none noect
  in  SA 0 ack 1 mss 1008 sack ace 2 bytes 1,0
  out A 1 ack 1 ace 2 bytes 1,0 noect
)";

// The first answer to a SYN was lost, and so is the second.
const std::string answers_lost = R"(
  wait 1100ms
  out SA 0 ack 1 ace 2 bytes none
  wait 2100ms
  out SA 0 ack 1 ace 0 bytes none
)";

// Segments of 1008 bytes that are sent.
std::string sent(unsigned first, unsigned end, std::string_view words = "ect", unsigned begin = 1) {
  std::string text;
  for (unsigned i = first; i < end; ++i)
    text += fmt::format("out A {}:{} ace 5 {}\n", begin + 1008 * i, begin + 1008 * (i + 1), words);
  return text + "none\n";
}
unsigned after(unsigned segments) { return 1 + 1008 * segments; }

TEST(AccurateEcnNegotiation, TellsHowASynHasArrived) {
  for (const auto& [arrives, ace] : {std::pair{"", 2}, {"ect1", 3}, {"ect0", 4}, {"ce", 6}})
    expect_script(fmt::format("listen 80\n in SEWX 0 mss 1000 {}\n out SA 0 ack 1 ace {} bytes 1,0", arrives, ace));
  // Undefined combinations of flags ask for it as well.
  for (const int ace : {1, 2, 4, 5, 6})
    expect_script(fmt::format("listen 80\n in S 0 mss 1000 ace {}\n out SA 0 ack 1 ace 2", ace));
}

TEST(AccurateEcnNegotiation, FallsBackToWhatAPeerKnows) {
  expect_script(
      "listen 80\n in SEW 0 mss 1000\n out SAE 0 ack 1 bytes none\n in A 1 ack 1\n offer 100\n"
      "out A 1:101 ect bytes none\n in A 1:101 ack 1 ce\n out AE 101 ack 101");
  expect_script("listen 80\n in S 0 mss 1000\n out SA 0 ack 1\n in A 1 ack 1\n offer 100\n out A 1:101 noect");
  expect_script("connect 80\n out SEWX 0\n in SAE 0 ack 1 mss 1000\n out A 1 ack 1\n offer 100\n out A 1:101 ect");
  for (const int ace : {0, 7})  // the latter by a peer that reflects flags
    expect_script(
        fmt::format("connect 80\n out SEWX 0\n in SA 0 ack 1 mss 1000 ace {}\n out A 1 ack 1 ace 0\n"
                    "offer 100\n out A 1:101 noect bytes none",
                    ace));
  // Reserved: as if the SYN had arrived unchanged.
  expect_script(
      "connect 80\n out SEWX 0\n in SA 0 ack 1 mss 1000 ace 5\n out A 1 ack 1 ace 2\n offer 100\n"
      "out A 1:101 ect ace 5");
}

TEST(AccurateEcnNegotiation, IsOffByDefault) {
  expect_script("connect 80\n out S 0 noect", {});
  expect_script("listen 80\n in SEWX 0 mss 1000\n out SAE 0 ack 1 bytes none", {});
}

TEST(AccurateEcnNegotiation, IsAskedForTwiceAndThenNotAnyMore) {
  expect_script(R"(
    connect 80
    out SEWX 0
    wait 1100ms
    out SEWX 0
    wait 2100ms
    out S 0
    in  SA 0 ack 1 mss 1000 ace 2       # to the first one, after all
    out A 1 ack 1 ace 2
    offer 100
    out A 1:101 ect ace 5
    in  A 1 ack 101 ace 5
  )");
}

// The peer's SYN comes again while the own timer fires: both say that one answer was lost, not two.
TEST(AccurateEcnNegotiation, TriesLessOnlyWhereAnAnswerWasInVain) {
  expect_script(R"(
    listen 80
    in  SEWX 0 mss 1000
    out SA 0 ack 1 ace 2 bytes 1,0
    wait 990ms
    in  SEWX 0 mss 1000
    out SA 0 ack 1 ace 2 bytes none
    wait 100ms
    out SA 0 ack 1 ace 2 bytes none
    in  A 1 ack 1 ace 2
    offer 100
    out A 1:101 ack 1 ace 5 ect
  )");
}

// Something may drop segments with the option, or with the flags.
TEST(AccurateEcnNegotiation, TriesLessWithEachAnswer) {
  expect_script("listen 80\n in SEWX 0 mss 1000\n out SA 0 ack 1 ace 2 bytes 1,0\n" + answers_lost + R"(
    in  A 1 ack 1 ace 2
    offer 100
    out A 1:101 ack 1 ace 5 noect       # it is not certain that the peer knows of it
    in  A 1 ack 101 ace 5
    in  A 1:101 ack 101 ace 5 ce
    out A 101 ack 101 ace 6
  )");
  // A SYN that asks for nothing comes from a peer that gives up asking.
  expect_script(R"(
    listen 80
    in  SEWX 0 mss 1000
    out SA 0 ack 1 ace 2
    in  S 0 mss 1000 ect0
    out SA 0 ack 1 ace 4
    in  A 1 ack 1 ace 2
    offer 100
    out A 1:101 ack 1 ace 5 noect
  )");
  // Nobody asks for both kinds.
  expect_script("listen 80\n in SEWX 0 mss 1000\n out SA 0 ack 1 ace 2\n in SEW 0 mss 1000\n out RA ack 1");
  expect_script("listen 80\n in SEW 0 mss 1000\n out SAE 0 ack 1\n in SEWX 0 mss 1000\n out RA ack 1");
}

// Each end behaves as if it had only answered.
TEST(AccurateEcnNegotiation, OfBothAtOnceGoesByThePeersSyn) {
  const std::string both = "connect 80\n out SEWX 0\n in SEWX 0 mss 1000 sack ect0\n out SA 0 ack 1 ace 4 bytes 1,0\n";
  expect_script(both + "in SA 0 ack 1 ace 2 bytes 1,0\n offer 100\n out A 1:101 ack 1 ace 5 ect\n" +
                "in A 1 ack 101 ace 5\n in A 1:11 ack 101 ace 5 ce\n out A 101 ack 11 ace 6");
  // The flags of a SYN-ACK are not a count: they show that the own SYN was changed, or that there is no agreement.
  for (const int ace : {0, 1, 4, 6})
    expect_script(both + fmt::format("in SA 0 ack 1 ace {}\n offer 100\n out A 1:101 ack 1 ace 5 noect\n", ace));
  expect_script(
      "connect 80\n out SEWX 0\n in SEW 0 mss 1000\n out SAE 0 ack 1 bytes none\n in SAE 0 ack 1\n offer 100\n"
      "out A 1:101 ack 1 ect\n in A 1:11 ack 101 ce\n out AE 101 ack 11");
  expect_script(
      "connect 80\n out SEWX 0\n in S 0 mss 1000\n out SA 0 ack 1 ace 0\n in SA 0 ack 1\n offer 100\n"
      "out A 1:101 ack 1 ace 0 noect");
}

TEST(AccurateEcnNegotiation, OfBothAtOnceTriesLessWithEachAnswer) {
  const std::string both = "connect 80\n out SEWX 0\n in SEWX 0 mss 1000\n out SA 0 ack 1 ace 2 bytes 1,0\n";
  expect_script(both + answers_lost + R"(
    in  SA 0 ack 1 ace 2
    offer 100
    out A 1:101 ack 1 ace 5 noect
  )");
  expect_script(both + "in S 0 mss 1000 ect0\n out SA 0 ack 1 ace 4\n in SA 0 ack 1 ace 2\n" +
                "offer 100\n out A 1:101 ack 1 ace 5 noect");
  expect_script(both + "in SEW 0 mss 1000\n out RA 1 ack 1\n closed reset");
}

// The answer to a SYN-ACK only reports its mark; other segments count.
TEST(AccurateEcnNegotiation, TellsHowASynAckHasArrived) {
  for (const auto& [arrives, ace, counted] : {std::tuple{"ect0", 4, 5}, {"ect1", 3, 5}, {"ce", 6, 6}})
    expect_script(
        fmt::format("connect 80\n out SEWX 0\n in SA 0 ack 1 mss 1000 ace 2 {}\n offer 100\n"
                    "out A 1 ack 1 ace {}\n out A 1:101 ack 1 ace {}",
                    arrives, ace, counted));
  // It comes again, as its answer was lost.
  expect_script(connected +
                "in SA 0 ack 1 ace 2 ce\n out A 1 ack 1 ace 6\n in SA 0 ack 1 ace 2 ce\n none\n"
                "offer 10\n out A 1:11 ack 1 ace 6");
  // One that confirms nothing is answered with the count.
  expect_script(connected + "in SA 0 ack 1 ace 0 ect0\n out A 1 ack 1 ace 5");
  // Its mark counts once, regardless of other marks.
  expect_script(connected + "in A 1 ack 1 ace 5 ce\n none\n in SA 0 ack 1 ace 2 ce\n out A 1 ack 1 ace 6\n" +
                "offer 10\n out A 1:11 ack 1 ace 7");
}

// Where marks slow down by their share, too: the SYN-ACK has no share.
TEST(AccurateEcnNegotiation, SlowsDownForAMarkedSynAck) {
  for (const std::string_view congestion : {"new_reno", "dctcp"})
    expect_script(R"(
      listen 80
      in  SEWX 0 mss 1008
      out SA 0 ack 1 ace 2
      in  A 1 ack 1 ace 6
      offer 200000
    )" + sent(0, 5, "noect"),
                  {.congestion = congestion, .ecn = EcnUse::accurate});
}

TEST(AccurateEcnNegotiation, NoticesAPathThatChangesMarks) {
  // Sent as not capable; it says that it arrived capable.
  expect_script(
      "connect 80\n out SEWX 0\n in SA 0 ack 1 mss 1000 ace 4\n out A 1 ack 1 ace 2\n offer 100\n"
      "out A 1:101 noect ace 5");
  for (const int ace : {3, 4, 6})
    expect_script(
        fmt::format("listen 80\n in SEWX 0 mss 1000\n out SA 0 ack 1 ace 2\n in A 1 ack 1 ace {}\n"
                    "offer 100\n out A 1:101 noect ace 5",
                    ace));
  // Clears the flags: of the first acknowledgement, or of what follows.
  expect_script(
      "listen 80\n in SEWX 0 mss 1000\n out SA 0 ack 1 ace 2\n in A 1 ack 1 ace 0\n offer 100\n"
      "out A 1:101 noect ace 5");
  expect_script(connected +
                "offer 100\n out A 1:101 ect ace 5\n in A 1 ack 101 ace 0\n offer 200\n"
                "out A 101:201 noect ace 5");
  // After three marks zero is a count.
  expect_script(served + "offer 200000\n" + sent(0, 10) +
                fmt::format("in A 1 ack {} ace 0 bytes 1,3024\n none\n", after(3)) +
                fmt::format("in A 1 ack {} ace 0 bytes 7057,3024\n out A {}:{} ace 5 ect\n any\n", after(10), after(10),
                            after(11)));
}

// A path that marks everything from the beginning is faulty, not congested.
TEST(AccurateEcnNegotiation, NoticesAPathThatMarksEverything) {
  std::string script = served + "offer 200000\n" + sent(0, 10);
  unsigned acknowledged = 0, next = 10;
  for (const unsigned sends : {5u, 2u, 2u, 2u, 2u}) {
    acknowledged = next;
    script += fmt::format("in A 1 ack {} ace {} bytes 1,{}\n", after(acknowledged), (5 + acknowledged) % 8,
                          1008 * acknowledged);
    next += sends;
    script += sent(acknowledged, next, next < 23 ? "ect" : "noect");
  }
  script += fmt::format("in A 1 ack {} ace {} bytes 1,{}\n", after(next), (5 + next) % 8, 1008 * next);
  for (unsigned i = 0; i < 2; ++i)
    script += fmt::format("out A {}:{} ace 5 noect\n", after(next + i), after(next + i + 1));
  expect_script(script + "any");
}

TEST(AccurateEcnReceiver, CountsPacketsAndBytes) {
  expect_script(served + R"(
    in  A 1:101 ack 1 ace 5 ect0
    out A 1 ack 101 ace 5 bytes 101,0
    in  A 101:301 ack 1 ace 5 ce
    out A 1 ack 301 ace 6 bytes 101,200
    in  A 301:401 ack 1 ace 5 ect1
    out A 1 ack 401 ace 6 bytes 101,200,101
    in  A 401:501 ack 1 ace 5
    out A 1 ack 501 ace 6 bytes none         # nothing has changed
    in  A 501:601 ack 1 ace 5 ce
    out A 1 ack 601 ace 7 bytes 101,300,101
    in  A 501:601 ack 1 ace 5 ce             # once more
    out A 1 ack 601 ace 0 bytes 101,400,101 sack 501:601
    in  A 601:701 ack 1 ace 5 ce
    out A 1 ack 701 ace 1 bytes 101,500,101
    in  AWX 701:801 ack 1 ect0               # what looks like CWR is a number, and ends nothing
    out A 1 ack 801 ace 1
  )");
  expect_script(served +
                "in A 1:101 ack 1 ace 5 ect1\n out A 1 ack 101 ace 5 bytes ,101,0\n"
                "in A 101:201 ack 1 ace 5 ce\n out A 1 ack 201 ace 6 bytes ,101,100");
}

// A packet is one, however small the packets are that go the other way; a merged one is as many as it was made of.
TEST(AccurateEcnReceiver, CountsPacketsOfAnySize) {
  expect_script(
      "listen 80\n in SEWX 0 mss 536\n out SA 0 ack 1 ace 2\n in A 1 ack 1 ace 2\n"
      "in A 1:1201 ack 1 ace 5 ce\n out A 1 ack 1201 ace 6 bytes 1,1200");
  expect_script(served + "in A 1:801 ack 1 ace 5 ce merged 100\n out A 1 ack 801 ace 5 bytes 1,800");
}

TEST(AccurateEcnReceiver, MakesRoomForTheFirstOptionInData) {
  expect_script(connected + "offer 2008\n out A 1:1001 ace 5 bytes 1,0 ect\n out A 1001:2009 ace 5 bytes none ect");
}

// Data that was acknowledged with the option comes again, twice: something may drop such segments.
TEST(AccurateEcnReceiver, GivesUpAnOptionThatDoesNotArrive) {
  const std::string again = served + R"(
    in  A 1:101 ack 1 ace 5 ect0
    out A 1 ack 101 ace 5 bytes 101,0
    in  A 1:101 ack 1 ace 5 ect0
    out A 1 ack 101 ace 5 bytes 201,0
  )";
  expect_script(again + R"(
    in  A 1:101 ack 1 ace 5 ect0
    out A 1 ack 101 ace 5 bytes none
    in  A 101:201 ack 1 ace 5 ce
    out A 1 ack 201 ace 6 bytes none
  )");
  // New data says that it has arrived.
  expect_script(again + R"(
    in  A 101:201 ack 1 ace 5 ect0
    out A 1 ack 201 ace 5 bytes 301,0
    in  A 101:201 ack 1 ace 5 ect0
    out A 1 ack 201 ace 5 bytes 401,0
  )");
}

TEST(AccurateEcnReceiver, TellsAtOnceWhenMarksBegin) {
  std::string script = served;
  for (int i = 0; i < 16; ++i)  // acknowledged at once, as a connection begins
    script += fmt::format("in A {}:{} ack 1 ace 5 ect0\n out A 1 ack {} ace 5\n", 1 + 10 * i, 11 + 10 * i, 11 + 10 * i);
  expect_script(script + R"(
    in  A 161:171 ack 1 ace 5 ect0
    none
    wait 50ms
    out A 1 ack 171 ace 5
    in  A 171:181 ack 1 ace 5 ce
    out A 1 ack 181 ace 6
    in  A 181:191 ack 1 ace 5 ce
    none                                     # the second in a row waits for another one
    in  A 191:201 ack 1 ace 5 ce
    out A 1 ack 201 ace 0
    in  A 201 ack 1 ace 5 ce                 # acknowledgements
    in  A 201 ack 1 ace 5 ce
    none
    in  A 201 ack 1 ace 5 ce
    out A 1 ack 201 ace 3 bytes none
  )");
}

TEST(AccurateEcnReceiver, LeavesRoomForTwoRangesThatAreMissing) {
  const std::string begun = R"(
    listen 80
    in  SEWX 0 mss 1000 sack ts 1:0
    out SA 0 ack 1 ace 2 bytes 1,0
    in  A 1 ack 1 ace 2 ts 1:0
  )";
  expect_script(begun + R"(
    in  A 101:201 ack 1 ace 5 ts 1:0 ect0
    out A 1 ack 1 ace 5 sack 101:201 bytes 101,0
    in  A 301:401 ack 1 ace 5 ts 1:0 ce
    out A 1 ack 1 sack 301:401,101:201 bytes 101,100 ace 6
    in  A 501:601 ack 1 ace 5 ts 1:0 ect0
    out A 1 ack 1 ace 6 sack 501:601,301:401 bytes 201,100
    in  A 701:801 ack 1 ace 5 ts 1:0 ect1
    out A 1 ack 1 ace 6 sack 701:801,501:601,301:401 bytes none
  )");
}

TEST(AccurateEcnSender, SlowsDownOnceInARoundTrip) {
  expect_script(served + "offer 200000\n" + sent(0, 10) +
                fmt::format("in A 1 ack {} ace 6 bytes 1009,1008\n none\n", after(2)) +
                fmt::format("in A 1 ack {} ace 7 bytes 2017,2016\n none\n", after(4)) +          // five are let go
                fmt::format("in A 1 ack {} ace 0 bytes 3025,3024\n", after(6)) + sent(10, 11) +  // marks of that window
                fmt::format("in A 1 ack {} ace 0 bytes 4033,3024\n", after(7)) + sent(11, 12) +
                fmt::format("in A 1 ack {} ace 0 bytes 7057,3024\n", after(10)) + sent(12, 15));
}

// The whole flight is acknowledged at once, and part of it was marked: the report is not repeated.
TEST(AccurateEcnSender, HeedsTheLastAcknowledgement) {
  expect_script(served + "offer 200000\n" + sent(0, 10) +
                fmt::format("in A 1 ack {} ace 6 bytes 9073,1008\n", after(10)) + sent(10, 15));
}

// A peer that acknowledges nine packets at once may report one mark, or nine.
TEST(AccurateEcnSender, TellsFromBytesWhetherTheNumberWentRound) {
  const std::string ten = served + "offer 200000\n" + sent(0, 10);
  expect_script(ten + fmt::format("in A 1 ack {} ace 5 bytes 9073,0\n", after(9)) + sent(10, 28));
  expect_script(ten + fmt::format("in A 1 ack {} ace 5 bytes 1009,8064\n", after(9)) + sent(10, 14));
  // Counts at the end of the option that have not changed are left out.
  expect_script(ten + fmt::format("in A 1 ack {} ace 5 bytes 9073\n", after(9)) + sent(10, 28));
  // Without the option the most is assumed.
  expect_script(ten + fmt::format("in A 1 ack {} ace 5\n", after(9)) + sent(10, 14));
  // Up to seven are certain.
  expect_script(ten + fmt::format("in A 1 ack {} ace 5\n", after(7)) + sent(10, 24));
}

TEST(AccurateEcnSender, CountsWhatSackReports) {
  expect_script(served + "offer 200000\n" + sent(0, 10) +
                fmt::format("in A 1 ack 1 ace 5 sack {}:{}\n", after(1), after(2)) + sent(10, 11) +
                fmt::format("in A 1 ack 1 ace 6 sack {}:{}\n none\n", after(1), after(3)) +
                fmt::format("in A 1 ack {} ace 6\n none\n", after(5)) + fmt::format("in A 1 ack {} ace 6\n", after(6)) +
                sent(11, 12));
}

// An acknowledgement that reports nothing new is older, or a copy, and so is its number.
TEST(AccurateEcnSender, IgnoresWhatReportsNothingNew) {
  expect_script(served + "offer 200000\n" + sent(0, 10) + fmt::format("in A 1 ack {} ace 5\n", after(2)) +
                sent(10, 14) + fmt::format("in A 1 ack {} ace 2\n", after(2)) + "in A 1 ack 1 ace 3\n none\n" +
                fmt::format("in A 1 ack {} ace 5\n", after(4)) + sent(14, 18));
}

TEST(AccurateEcnSender, IgnoresAnOptionThatIsClearedOnTheWay) {
  const std::string cleared = R"(
    connect 80
    out SEWX 0
    in  SA 0 ack 1 mss 1008 sack ace 2 bytes 0,0
    out A 1 ack 1 ace 2
    offer 100
    out A 1:101 ace 5 bytes 1,0
    in  A 1 ack 101 ace 5
    offer 200000
  )" + sent(0, 10, "ect", 101);
  expect_script(cleared + fmt::format("in A 1 ack {} ace 5 bytes 0,5000\n", 100 + after(2)) + sent(10, 14, "ect", 101));
}

// The option counts modulo 2^24.
TEST(AccurateEcnSender, CountsBytesThatGoRound) {
  expect_script(served + "offer 200000\n" + sent(0, 10) +
                fmt::format("in A 1 ack {} ace 6 bytes 1,16777000\n", after(1)) + "none\n" +
                fmt::format("in A 1 ack {} ace 6 bytes 1009,16777000\n", after(6)) + sent(10, 12) +
                fmt::format("in A 1 ack {} ace 6 bytes 2017,16777000\n", after(10)) + sent(12, 16) +
                fmt::format("in A 1 ack {} ace 7 bytes 3025,792\n", after(12)) + "none\n");
}

// Marked bytes without a marked packet cannot be: something on the way changes either.
TEST(AccurateEcnSender, DoesNotMarkWherePacketsAndBytesDisagree) {
  expect_script(served + "offer 200000\n" + sent(0, 10) +
                fmt::format("in A 1 ack {} ace 5 bytes 1,1008\n any\n", after(2)) +
                fmt::format("in A 1 ack {} ace 5 bytes 8065,1008\n", after(10)) + sent(10, 16, "noect"));
}

}  // namespace
}  // namespace offpath::tcp
