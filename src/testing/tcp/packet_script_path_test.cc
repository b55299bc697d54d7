// Routers' messages about the size of a path (RFC 1191, RFC 5927), segment by segment.
#include "testing/tcp/packet_script.h"

#include <gtest/gtest.h>

namespace offpath::tcp {
namespace {

void expect_script(std::string_view script) { EXPECT_EQ(run_packet_script(script), ""); }

const std::string served = R"(
  listen 80
  in  S 0 win 65535 mss 1460 sack scale 0
  out SA 0 ack 1 mss 1460 sack scale 7
  in  A 1 ack 1
  none
)";

TEST(PathMtu, IsBelievedOfWhatIsOnItsWay) {
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

TEST(PathMtu, IsNotBelievedToBeLessThanEveryoneHas) {
  expect_script(served + R"(
    offer 1460
    out A 1:1461 ack 1
    icmp 68 1
    out A 1:537 ack 1
    out A 537:1073 ack 1
    out A 1073:1461 ack 1
  )");
}

// RFC 1191, 6.3: the path may be another one by then, and whoever said it may have lied.
TEST(PathMtu, IsForgottenAfterTenMinutes) {
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
    offer 4840
    out A 3381:4841 ack 1
  )");
}

}  // namespace
}  // namespace offpath::tcp
