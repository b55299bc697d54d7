// Requests that are stored outside of the rings: when the host's end offers its link that memory, and takes it back.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "channel/host_end.h"
#include "testing/channel/fake_host_link.h"

namespace offpath::channel {
namespace {

constexpr wire::ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};
constexpr std::size_t large_bytes = 8192;  // more than half of the ring

TimeNs now_of_test = 0;

class OutsidePart : public testing::Test {
 protected:
  OutsidePart() {
    now_of_test = 100 * second_ns;
    auto link = std::make_unique<link::FakeHostLink>(layout);
    link_ = link.get();
    link_->on_offer = [this] {
      EXPECT_EQ(load<std::uint64_t>(link_->memory.data()), posted_) << "offered before the request can be seen";
    };
    host_ = std::make_unique<HostEnd>(std::move(link), layout, [](void*) { return now_of_test; });
  }
  Status post(std::size_t bytes) {
    const std::vector<std::byte> payload(bytes);
    OFP_ASSIGN([[maybe_unused]] const std::uint64_t ticket, host_->ask(wire::EntryKind::probe, payload, 0));
    posted_ = load<std::uint64_t>(link_->memory.data());
    return {};
  }
  // The agent has copied all requests.
  void take_all() { store(link_->memory.data() + wire::ChannelLayout::agent_line, posted_); }
  using Calls = std::vector<std::string>;

  link::FakeHostLink* link_;
  std::uint64_t posted_ = 0;  // slots
  std::unique_ptr<HostEnd> host_;
};

TEST_F(OutsidePart, IsOfferedForLargeRequestsAlone) {
  ASSERT_TRUE(post(100));
  EXPECT_EQ(link_->take_calls(), Calls{});
  ASSERT_TRUE(post(large_bytes));
  EXPECT_EQ(link_->take_calls(), Calls{"offer"});
}

TEST_F(OutsidePart, IsTakenBackWhenItWasNotUsedForAWhile) {
  host_->withdraw_outside(now_of_test);
  EXPECT_EQ(link_->take_calls(), Calls{}) << "it was never offered";
  ASSERT_TRUE(post(large_bytes));
  EXPECT_EQ(link_->take_calls(), Calls{"offer"});
  now_of_test += 10 * second_ns;
  host_->withdraw_outside(now_of_test);
  EXPECT_EQ(link_->take_calls(), Calls{}) << "the agent has still to read it";
  take_all();
  host_->withdraw_outside(now_of_test - 10 * second_ns);
  EXPECT_EQ(link_->take_calls(), Calls{}) << "it was used since";
  host_->withdraw_outside(now_of_test);
  EXPECT_EQ(link_->take_calls(), Calls{"take_back"});
  host_->withdraw_outside(now_of_test);
  EXPECT_EQ(link_->take_calls(), Calls{}) << "once";
  ASSERT_TRUE(post(large_bytes));
  EXPECT_EQ(link_->take_calls(), Calls{"offer"});
}

TEST_F(OutsidePart, ThatCannotBeOfferedFailsTheRequestAndNothingElse) {
  link_->fails = true;
  const Status refused = post(large_bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::no_memory);
  EXPECT_TRUE(post(100));
  link_->fails = false;
  EXPECT_TRUE(post(large_bytes));
}

}  // namespace
}  // namespace offpath::channel
