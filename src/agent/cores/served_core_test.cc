#include "agent/cores/served_core.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace offpath::agent {
namespace {

class ServedCoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    CoreEnds of_core;
    of_core.control = Fd(ends[0]);
    starter_ = Fd(ends[1]);
    core_.emplace(std::move(of_core));
    auto made = loop::Loop::make({});
    ASSERT_TRUE(made);
    loop_ = std::move(*made);
    ASSERT_TRUE(core_->join(
        *loop_, [this] { return all_met_; },
        [this] {
          ++served_;
          return std::string("tcp:host:7000");
        }));
  }

  std::string told() {
    std::array<char, 64> text{};
    const ssize_t size = recv(starter_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }

  Fd starter_;
  std::unique_ptr<loop::Loop> loop_;
  std::optional<ServedCore> core_;
  bool all_met_ = false;
  int served_ = 0;
};

TEST_F(ServedCoreTest, ServesOnceWhenAllHaveMet) {
  core_->members_changed();
  EXPECT_EQ(served_, 0);
  EXPECT_EQ(told(), "");
  all_met_ = true;
  core_->members_changed();
  EXPECT_EQ(served_, 1);
  EXPECT_EQ(told(), std::string(1, core_serves_mark) + "tcp:host:7000");
  core_->members_changed();
  loop_->round(monotonic_ns() + 10 * second_ns);  // when it would serve without the others
  EXPECT_EQ(served_, 1);
  EXPECT_EQ(told(), "");
}

TEST_F(ServedCoreTest, ServesWithoutOthersThatDoNotCome) {
  loop_->round(monotonic_ns() + second_ns);
  EXPECT_EQ(served_, 0);
  loop_->round(monotonic_ns() + 10 * second_ns);
  EXPECT_EQ(served_, 1);
  EXPECT_EQ(told(), std::string(1, core_serves_mark) + "tcp:host:7000");
}

TEST_F(ServedCoreTest, EndsWithTheProcessThatStartedIt) {
  starter_.reset();
  loop_->run();  // until it is stopped
  EXPECT_EQ(served_, 0);
}

}  // namespace
}  // namespace offpath::agent
