// Routers' messages about the size of a path (RFC 1191, 8201, 5927), segment by segment.
#include "testing/tcp/packet_scripts.h"

#include <gtest/gtest.h>

#include "testing/tcp/family.h"

namespace offpath::tcp {
namespace {

const std::string served(accepted);

// Of IPv4: no path of IPv6 is as narrow as these.
class PathMtu : public testing::Test {
 protected:
  void SetUp() override {
    if (tests_ipv6()) GTEST_SKIP() << "paths of less than 1280 bytes";
  }
};

// RFC 8201; in packets of 1520 bytes, so that segments are as large as those of IPv4.
class PathMtuOfIpv6 : public testing::Test {
 protected:
  void SetUp() override {
    if (!tests_ipv6()) GTEST_SKIP() << "paths of IPv6";
  }
};

TEST_F(PathMtuOfIpv6, IsBelievedOfWhatIsOnItsWay) {
  expect_script(served + R"(
    offer 2920
    out A 1:1461 ack 1
    out A 1461:2921 ack 1
    icmp 1300 2921                # of what was never sent
    none
    icmp 1300 1
    out A 1:1241 ack 1
    out A 1241:2481 ack 1
    out A 2481:2921 ack 1
    in  A 1 ack 2921
    icmp 1280 1                   # of what was acknowledged
    offer 4160
    out A 2921:4161 ack 1
  )");
}

TEST_F(PathMtuOfIpv6, IsNotBelievedToBeLessThanEveryLinkHas) {
  expect_script(served + R"(
    offer 1460
    out A 1:1461 ack 1
    icmp 68 1
    out A 1:1221 ack 1
    out A 1221:1461 ack 1
  )");
}

TEST_F(PathMtuOfIpv6, IsFoundWhereNobodySaysIt) {
  expect_script(served + R"(
    offer 1460
    out A 1:1461
    wait 1100ms
    out A 1:1461
    wait 2100ms
    out A 1:1461
    wait 4100ms
    out A 1:1221                  # 1280 bytes of datagram
    out A 1221:1461
  )");
}

TEST_F(PathMtu, IsBelievedOfWhatIsOnItsWay) {
  expect_script(served + R"(
    offer 2920
    out A 1:1461 ack 1
    out A 1461:2921 ack 1
    icmp 1000 2921                # of what was never sent
    none
    icmp 1000 1
    out A 1:961 ack 1
    out A 961:1921 ack 1
    out A 1921:2881 ack 1
    out A 2881:2921 ack 1
    in  A 1 ack 2921
    icmp 600 1                    # of what was acknowledged
    offer 3880
    out A 2921:3881 ack 1
  )");
}

TEST_F(PathMtu, IsNotBelievedToBeLessThanEveryoneHas) {
  expect_script(served + R"(
    offer 1460
    out A 1:1461 ack 1
    icmp 68 1
    out A 1:537 ack 1
    out A 537:1073 ack 1
    out A 1073:1461 ack 1
  )");
}

// RFC 1191, 6.3: the path may have changed by then, and the message may have been forged.
TEST_F(PathMtu, IsForgottenAfterTenMinutes) {
  expect_script(served + R"(
    offer 1460
    out A 1:1461 ack 1
    icmp 1000 1
    out A 1:961 ack 1
    out A 961:1461 ack 1
    in  A 1 ack 1461
    wait 590s
    offer 3380
    out A 1461:2421 ack 1
    out A 2421:3381 ack 1
    in  A 1 ack 3381
    wait 11s
    offer 7720                    # others follow it, and show whether it arrives
    out A 3381:4841 ack 1
    out A 4841:5801 ack 1
    out A 5801:6761 ack 1
    out A 6761:7721 ack 1
    in  A 1 ack 7721
    offer 9180
    out A 7721:9181 ack 1
  )");
}

// RFC 4821: routers may drop large segments and say nothing.
TEST_F(PathMtu, IsFoundWhereNobodySaysIt) {
  expect_script(served + R"(
    offer 1460
    out A 1:1461
    wait 1100ms
    out A 1:1461
    wait 2100ms
    out A 1:1461
    wait 4100ms
    out A 1:985                   # 1024 bytes of datagram
    out A 985:1461
    in  A 1 ack 1461
    offer 40000
    out A 1461:2445
    out A 2445:3429
    none
    in  A 1 ack 3429
    any
    in  A 1 ack 6381
    any
    in  A 1 ack 10317
    out A 10317:11777             # a probe, as large as before, amid others
    out A 11777:12761
    out A 12761:13745
    out A 13745:14729
    none
    in  A 1 ack 10317 sack 11777:14729
    out A 10317:11301             # it alone is lost, which is no congestion
    out A 11301:11777
    out A 14729:15713
    out A 15713:16697
    out A 16697:17681
    none
    in  A 1 ack 17681
    out A 17681:18903             # half way
    out A 18903:19887
    out A 19887:20871
    out A 20871:21855
    out A 21855:22839
    none
    in  A 1 ack 22839
    out A 22839:24180             # that has arrived: half of the rest
    out A 24180:25402
    any
  )");
}

// A router has said 1000 bytes, and ten minutes have passed since: a larger segment is due.
const std::string searching = served + R"(
  offer 1460
  out A 1:1461
  icmp 1000 1
  out A 1:961
  out A 961:1461
  in  A 1 ack 1461
  wait 601s
)";

// It is lost in the course of a recovery, and its bytes arrive in smaller segments.
TEST_F(PathMtu, IsNotFoundByAProbeThatWasSentAgain) {
  expect_script(searching + R"(
    offer 3380
    out A 1461:2421               # lost
    out A 2421:3381
    offer 7720
    out A 3381:4841               # a probe: lost
    out A 4841:5801
    out A 5801:6761
    out A 6761:7721
    none
    in  A 1 ack 1461 sack 4841:6761,2421:3381
    out A 1461:2421
    none
    in  A 1 ack 1461 sack 4841:7721,2421:3381
    out A 3381:4341
    out A 4341:4841
    none
    in  A 1 ack 7721
    offer 20000
    out A 7721:8681
    any
  )");
}

TEST_F(PathMtu, CongestionIsSeenBesideALostProbe) {
  expect_script(searching + R"(
    offer 10600
    out A 1461:2921               # a probe: lost
    out A 2921:3881
    out A 3881:4841
    out A 4841:5801
    out A 5801:6761               # lost
    out A 6761:7721               # lost
    out A 7721:8681
    out A 8681:9641
    out A 9641:10601
    none
    in  A 1 ack 1461 sack 2921:5801
    out A 1461:2421
    out A 2421:2921
    none
    in  A 1 ack 5801 sack 7721:10601
    any
    in  A 1 ack 10601
    offer 30000
    out A 10601:11561             # the window has halved
    out A 11561:12521
    none
  )");
}

// Without SACK there are no probes.
TEST_F(PathMtu, IsForgottenAfterTenMinutesWithoutSack) {
  expect_script(R"(
    listen 80
    in  S 0 win 65535 mss 1460 scale 0
    out SA 0 ack 1
    in  A 1 ack 1
    offer 1460
    out A 1:1461
    icmp 1000 1
    out A 1:961
    out A 961:1461
    in  A 1 ack 1461
    wait 601s
    offer 2920
    out A 1461:2921
  )");
}

// Little at a time is sent, so no probe can be amid others.
TEST_F(PathMtu, IsForgottenAfterTenMinutesWithoutAProbe) {
  expect_script(searching + R"(
    offer 3380
    out A 1461:2421
    out A 2421:3381
    in  A 1 ack 3381
    wait 601s
    offer 4840
    out A 3381:4841
  )");
}

}  // namespace
}  // namespace offpath::tcp
