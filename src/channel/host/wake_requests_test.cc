#include "channel/host/wake_requests.h"

#include <gtest/gtest.h>

#include "testing/channel/host_parts.h"

namespace offpath::channel {
namespace {

using wire::WakeWord;

class WakeRequestsTest : public testing::Test, protected HostParts {
 protected:
  // "word of stream: value" of each wake that was asked for since the last call.
  std::vector<std::string> asked() {
    std::vector<std::string> all;
    for (const wire::WakeAt& wake : take_wake_requests())
      all.push_back(fmt::format("{} of {}: {}", static_cast<int>(wake.word), wake.stream, wake.value));
    return all;
  }
  static std::string pulled(std::uint32_t stream, std::uint64_t value) {
    return fmt::format("{} of {}: {}", static_cast<int>(WakeWord::pulled), stream, value);
  }
  static std::string room() { return fmt::format("{} of 0: 0", static_cast<int>(WakeWord::now)); }
  static std::string replies_after(std::uint64_t position) {
    return fmt::format("{} of 0: {}", static_cast<int>(WakeWord::replies), position);
  }
  using Asked = std::vector<std::string>;
};

TEST_F(WakeRequestsTest, StandUntilTheirValueIsReached) {
  wakes.ask(1, WakeWord::pulled, 10);
  wakes.ask(1, WakeWord::pulled, 10);
  wakes.ask(1, WakeWord::pulled, 12);
  EXPECT_EQ(asked(), Asked{pulled(1, 10)}) << "the thread for 12 looks at 10, and asks again";
  wakes.ask(1, WakeWord::pulled, 9);
  EXPECT_EQ(asked(), Asked{pulled(1, 9)});
  set_pulled(1, 9);
  wakes.ask(1, WakeWord::pulled, 12);
  EXPECT_EQ(asked(), Asked{pulled(1, 12)}) << "the agent owes no more";
}

TEST_F(WakeRequestsTest, OfOneWordDoNotCountForAnother) {
  wakes.ask(1, WakeWord::pulled, 10);
  wakes.ask(2, WakeWord::pulled, 10);
  wakes.ask(1, WakeWord::stored, 10);
  wakes.ask(1, WakeWord::credit, 10);
  EXPECT_EQ(asked().size(), 4u);
}

TEST_F(WakeRequestsTest, ForRepliesStandUntilTheNextOne) {
  wakes.ask_replies();
  wakes.ask_replies();
  EXPECT_EQ(asked(), Asked{replies_after(0)});
  reply_done(1);
  wakes.ask_replies();
  EXPECT_EQ(asked(), Asked{replies_after(0)}) << "the wake for the reply that arrived is no longer owed";
  ASSERT_TRUE(replies.take_in(1));
  wakes.ask_replies();
  EXPECT_EQ(asked(), Asked{replies_after(1)});
}

TEST_F(WakeRequestsTest, ForRoomStandUntilTheAgentHasTakenThem) {
  publish();
  wakes.ask_room();
  wakes.ask_room();
  set_head(1);
  wakes.ask_room();
  EXPECT_EQ(asked(), Asked{room()});
  wakes.ask_room();
  EXPECT_EQ(asked(), Asked{room()});
}

TEST_F(WakeRequestsTest, ThatFindNoRoomAskForThatAlone) {
  while (requests.fits(8, 1)) publish();
  wakes.ask(1, WakeWord::pulled, 100);
  wakes.ask(1, WakeWord::stored, 100);
  EXPECT_FALSE(requests.fits(8, 0));
  EXPECT_EQ(asked(), Asked{room()}) << "in the last slot";
  wakes.ask(1, WakeWord::pulled, 100);
  EXPECT_EQ(asked(), Asked{pulled(1, 100)});
}

TEST_F(WakeRequestsTest, ThatWereArmedAreAskedForOneAfterAnother) {
  for (const std::uint64_t value : {20, 10, 30}) wakes.arm(1, WakeWord::pulled, value);
  EXPECT_EQ(asked(), (Asked{pulled(1, 20), pulled(1, 10)}));
  EXPECT_TRUE(wakes.any_armed());
  set_pulled(1, 10);
  wakes.ask_armed();
  EXPECT_EQ(asked(), Asked{pulled(1, 20)});
  set_pulled(1, 20);
  wakes.ask_armed();
  EXPECT_EQ(asked(), Asked{pulled(1, 30)});
  set_pulled(1, 30);
  wakes.ask_armed();
  EXPECT_EQ(asked(), Asked{});
  EXPECT_FALSE(wakes.any_armed());
}

TEST_F(WakeRequestsTest, OfAClosedStreamAreForgottenAndNoOthers) {
  wakes.arm(1, WakeWord::stored, 10);
  wakes.arm(2, WakeWord::pulled, 10);
  wakes.ask(1, WakeWord::pulled, 10);
  EXPECT_EQ(asked().size(), 3u);
  wakes.forget(1);
  wakes.ask(1, WakeWord::pulled, 10);
  EXPECT_EQ(asked(), Asked{pulled(1, 10)}) << "the agent may owe it to the stream of before";
  set_pulled(2, 10);
  wakes.ask_armed();
  EXPECT_EQ(asked(), Asked{});
  EXPECT_FALSE(wakes.any_armed());
}

}  // namespace
}  // namespace offpath::channel
