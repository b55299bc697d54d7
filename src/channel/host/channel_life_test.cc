#include "channel/host/channel_life.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace offpath::channel {
namespace {

class ChannelLifeTest : public testing::Test {
 protected:
  // Whether those who wait were notified since the last call.
  bool notified() {
    pollfd event{.fd = events.fd(), .events = POLLIN, .revents = 0};
    const bool told = ::poll(&event, 1, 0) == 1 && turns.number() != turn;
    events.clear();
    turn = turns.number();
    return told;
  }

  Fd link{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  EventDescriptor events{link.get()};
  SleepTurns turns;
  std::uint32_t turn = turns.number();
  ChannelLife life{events, turns};
};

TEST_F(ChannelLifeTest, EndsWithTheFirstLoss) {
  EXPECT_TRUE(life.usable());
  EXPECT_FALSE(life.is_lost());
  EXPECT_FALSE(notified());
  EXPECT_EQ(life.lose({Error::peer_lost, "first"}).error().message, "first");
  EXPECT_TRUE(notified());
  EXPECT_EQ(life.lose({Error::protocol, "second"}).error().message, "first");
  EXPECT_TRUE(life.is_lost());
  EXPECT_EQ(life.usable().error().message, "first");
  life.close();
  EXPECT_EQ(life.usable().error().message, "first") << "the reason stays";
}

TEST_F(ChannelLifeTest, EndsWhenItIsClosed) {
  EXPECT_FALSE(life.is_closed());
  life.close();
  EXPECT_TRUE(notified());
  EXPECT_TRUE(life.is_closed());
  EXPECT_FALSE(life.is_lost());
  EXPECT_EQ(life.usable().error().code, Error::closed);
}

TEST_F(ChannelLifeTest, DoesNotReachAForkedChild) {
  EXPECT_FALSE(life.in_child());
  const pid_t child = ::fork();
  if (child == 0) {
    const Status usable = life.usable();
    ::_exit(life.in_child() && !usable && usable.error().code == Error::forked ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(life.usable());
}

}  // namespace
}  // namespace offpath::channel
