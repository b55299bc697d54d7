#include "channel/host/event_descriptor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace offpath::channel {
namespace {

class EventDescriptorTest : public testing::Test {
 protected:
  [[nodiscard]] bool readable() const {
    pollfd event{.fd = events.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&event, 1, 0) == 1;
  }

  Fd link{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  EventDescriptor events{link.get()};
};

TEST_F(EventDescriptorTest, IsReadableWhileTheLinksIs) {
  EXPECT_FALSE(readable());
  ASSERT_EQ(eventfd_write(link.get(), 1), 0);
  EXPECT_TRUE(readable());
  events.clear();
  EXPECT_TRUE(readable());
  eventfd_t count = 0;
  ASSERT_EQ(eventfd_read(link.get(), &count), 0);
  EXPECT_FALSE(readable());
}

TEST_F(EventDescriptorTest, IsReadableFromATellToAClear) {
  events.tell();
  events.tell();
  EXPECT_TRUE(readable());
  events.clear();
  EXPECT_FALSE(readable());
  events.tell();
  EXPECT_TRUE(readable());
}

TEST_F(EventDescriptorTest, TellsAWatcherAlone) {
  events.tell_watcher();
  EXPECT_FALSE(readable());
  events.watch(true);
  events.tell_watcher();
  EXPECT_TRUE(readable());
  events.clear();
  events.watch(false);
  events.tell_watcher();
  EXPECT_FALSE(readable());
}

TEST(EventDescriptorOfNoLink, IsNone) { EXPECT_EQ(EventDescriptor(-1).fd(), -1); }

}  // namespace
}  // namespace offpath::channel
