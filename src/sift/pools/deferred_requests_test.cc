#include "sift/pools/deferred_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace offpath::sift {
namespace {

TEST(DeferredRequests, EachIsServedOnceInItsOrderAndMayWaitAgain) {
  DeferredRequests waiting, others;
  std::vector<int> served;
  const auto wait = [&](DeferredRequests& in, int number) {
    in.add([&served, number](TimeNs, service::Effects&) { served.push_back(number); });
  };
  wait(waiting, 1);
  waiting.add([&](TimeNs, service::Effects&) { wait(waiting, 4); });
  wait(others, 3);
  waiting.add(std::move(others));
  service::Effects effects;
  waiting.serve(0, effects);
  EXPECT_THAT(served, ::testing::ElementsAre(1, 3));
  EXPECT_FALSE(waiting.empty());
  waiting.serve(0, effects);
  EXPECT_THAT(served, ::testing::ElementsAre(1, 3, 4));
  EXPECT_TRUE(waiting.empty());
}

}  // namespace
}  // namespace offpath::sift
