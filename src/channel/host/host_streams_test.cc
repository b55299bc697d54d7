#include "channel/host/host_streams.h"

#include <gtest/gtest.h>

#include "testing/channel/host_parts.h"

namespace offpath::channel {
namespace {

class HostStreamsTest : public testing::Test, protected HostParts {
 protected:
  // The sums of credit that were asked for since the last call.
  std::vector<std::uint64_t> needed() {
    std::vector<std::uint64_t> sums;
    for (const Request& request : take_requests()) {
      wire::NeedCredit need{};
      OFP_ASSERT(request.kind == wire::EntryKind::need_credit && wire::decode(request.payload, need));
      EXPECT_EQ(need.stream, 1u);
      sums.push_back(need.total);
    }
    return sums;
  }
  using Sums = std::vector<std::uint64_t>;
};

TEST_F(HostStreamsTest, TakeTheSmallestFreeNumber) {
  for (std::uint32_t number = 0; number < layout.streams_max; ++number) EXPECT_EQ(streams.open().value(), number);
  EXPECT_EQ(streams.open().error().code, Error::too_large);
  streams[2].note(100, 7);
  streams.close(2);
  EXPECT_EQ(streams.open().value(), 2u);
  EXPECT_EQ(streams[2].last_ticket, 0u);
  EXPECT_TRUE(streams[2].covers(0));
  EXPECT_EQ(streams[2].charged, 0u);
}

TEST_F(HostStreamsTest, AreCoveredByTheCreditOfTheLastLook) {
  set_credit(1, 100);
  EXPECT_FALSE(streams[1].covers(1));
  streams.look_at_credit(1);
  EXPECT_TRUE(streams[1].covers(100));
  streams[1].note(60, 1);
  EXPECT_FALSE(streams[1].covers(41));
  EXPECT_TRUE(streams[1].covers(40));
  EXPECT_EQ(streams.credit_left(1), 40u);
  set_credit(1, 10);
  EXPECT_EQ(streams.credit_left(1), 0u) << "an agent that takes credit back gives none";
}

TEST_F(HostStreamsTest, AskForASumOfCreditOnce) {
  streams.ask_credit(1, 100);
  streams.ask_credit(1, 100);
  streams.ask_credit(1, 50);
  EXPECT_EQ(needed(), Sums{100});
  streams.ask_credit(1, 101);
  EXPECT_EQ(needed(), Sums{101});
  while (requests.fits(8)) streams.ask_credit(1, streams[1].credit_asked + 1);
  const std::uint64_t asked = streams[1].credit_asked;
  streams.ask_credit(1, asked + 1);
  EXPECT_EQ(streams[1].credit_asked, asked) << "there was no room";
  (void)take_requests();
  streams.ask_credit(1, asked + 1);
  EXPECT_EQ(needed(), Sums{asked + 1});
}

TEST_F(HostStreamsTest, GiveUpCreditForWhichNoThreadWaits) {
  streams[1].open = true;
  streams[1].note(30, 1);
  streams.give_up_credit(1);
  EXPECT_EQ(needed(), Sums{}) << "none was asked for";
  streams.ask_credit(1, 100);
  streams[1].credit_waiters = 1;
  streams.give_up_credit(1);
  EXPECT_EQ(needed(), Sums{100});
  streams[1].credit_waiters = 0;
  streams.give_up_credit(1);
  streams.give_up_credit(1);
  EXPECT_EQ(needed(), Sums{30}) << "no more than it was charged";
  streams.ask_credit(1, 100);
  EXPECT_EQ(needed(), Sums{100});
}

TEST_F(HostStreamsTest, CountTheNewestTicketOfThoseThatAreOpen) {
  set_pulled(0, 5);
  set_pulled(1, 9);
  set_pulled(2, 7);
  EXPECT_EQ(streams.newest_pulled(), 0u);
  streams[0].open = streams[2].open = true;
  EXPECT_EQ(streams.newest_pulled(), 7u);
}

}  // namespace
}  // namespace offpath::channel
