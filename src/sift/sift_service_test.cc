#include "sift/sift_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/cpu_time.h"
#include "testing/sift/one_sift_agent.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TEST(SiftService, ARoundDoesNotLookAtPoolsThatHaveNothingToDo) {
  OneSiftAgent agent("a");
  std::size_t pools = 0;
  std::vector<TimeNs> took;
  const auto rounds_take = [&](std::size_t count) {
    while (pools < count)
      ASSERT_TRUE(agent.sifts.admit("sift:/" + std::to_string(pools++) + "?key=id", user, agent.effects));
    agent.sifts.on_time(agent.now, agent.effects);
    EXPECT_GT(agent.sifts.next_deadline(), agent.now);
    took.push_back(least_cpu_ns([&] {
      for (int i = 0; i < 1000; ++i) {
        agent.sifts.on_time(agent.now, agent.effects);
        EXPECT_GT(agent.sifts.next_deadline(), agent.now);
      }
    }));
  };
  rounds_take(10);
  rounds_take(2000);
  EXPECT_LT(took[1], 20 * took[0]) << "of 1000 rounds, with 2000 pools and with 10";
}

class SiftRequests : public testing::Test {
 protected:
  SiftRequests() {
    agent.sifts.on_opened({.number = 1, .client = {.program = "p", .user = user}});
    EXPECT_TRUE(agent.sifts.admit("sift:/t?key=id&stages=2&fanout=4&members=a", user, agent.effects));
    agent.run_for(second_ns);
  }
  // The failure, or the number in the answer.
  template <class Message>
  Result<std::uint64_t> ask(wire::EntryKind kind, const Message& message, bool is_member = false) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    agent.effects.clear();
    agent.sifts.on_request(
        {.channel = 1, .entry = {7, static_cast<std::uint8_t>(kind), payload}, .program = "p", .is_member = is_member},
        agent.now, agent.effects);
    for (service::Effect& effect : agent.effects) {
      if (auto* failed = std::get_if<service::FailEffect>(&effect)) return tl::unexpected(failed->failure);
      if (auto* reply = std::get_if<service::ReplyEffect>(&effect)) return std::get<wire::Done>(reply->message).value;
    }
    return fail(Error::would_block, "no answer");
  }

  OneSiftAgent agent{"a"};
};

TEST_F(SiftRequests, RequestsOfMembersAreRefusedToPrograms) {
  const wire::PeerDrop drop{user, "sift:/t", "*", "*"};
  EXPECT_EQ(ask(wire::EntryKind::peer_drop, drop).error().code, Error::denied);
  EXPECT_EQ(agent.names().size(), 1u);
  EXPECT_TRUE(ask(wire::EntryKind::peer_drop, drop, true));
  EXPECT_TRUE(agent.names().empty());
}

TEST_F(SiftRequests, InfoSaysHowManyElementsKeepTracks) {
  EXPECT_EQ(ask(wire::EntryKind::sift_info, wire::SiftInfo{"sift:/t"}).value(), 16u);
  EXPECT_EQ(ask(wire::EntryKind::sift_info, wire::SiftInfo{"sift:/u"}).error().code, Error::not_found);
  EXPECT_EQ(ask(wire::EntryKind::sift_info, wire::SiftInfo{"sift:/u?key=id&wait=2"}).value(), 0u) << "it waits";
  EXPECT_EQ(ask(wire::EntryKind::sift_info, wire::SiftInfo{"sift:/v?key=id&fanout=8"}).value(), 8u) << "it is made";
}

TEST_F(SiftRequests, TracksAreDroppedAsAWhole) {
  const auto part = ask(wire::EntryKind::pool_drop, wire::PoolDrop{"sift:/t", "step*", "*"});
  ASSERT_FALSE(part);
  EXPECT_THAT(part.error().message, HasSubstr("tracks are dropped as a whole"));
  EXPECT_EQ(ask(wire::EntryKind::pool_drop, wire::PoolDrop{"sift:/t", "*", "*"}).value(), 1u);
  EXPECT_TRUE(agent.names().empty());
}

}  // namespace
}  // namespace offpath::sift
