// Memory announced to a card: a key ends after the agent's answer, and is_gone() reports it.
#include "link/card/announced_memory.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace offpath::link {
namespace {

using wire::ControlType;

// Counts the keys that have ended.
class Key {
 public:
  explicit Key(int& ended) : ended_(&ended) {}
  Key(Key&& other) noexcept : ended_(std::exchange(other.ended_, nullptr)) {}
  Key& operator=(Key&& other) noexcept {
    std::swap(ended_, other.ended_);
    return *this;
  }
  ~Key() {
    if (ended_ != nullptr) ++*ended_;
  }
  int* release() noexcept { return std::exchange(ended_, nullptr); }

 private:
  int* ended_;
};

class Announced : public testing::Test, public HostControl::Owner {
 protected:
  static constexpr wire::RegionId range = 7;
  static constexpr std::uint32_t generation = 3;

  Announced() {
    int fds[2];
    OFP_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    ControlSocket here(Fd(fds[0]), ControlSocket::Kind::unix_socket);
    agent_ = ControlSocket(Fd(fds[1]), ControlSocket::Kind::unix_socket);
    auto events = HostControl::watch(here, {});
    OFP_ASSERT(events);
    control_.emplace(std::move(here), Peer{}, std::move(*events), *this);
  }
  void announce(wire::RegionId region, std::uint32_t of) { memory_.keep(region, of, Key(ended_)); }
  // Checks the withdrawal that the agent receives.
  void expect_withdrawal(wire::RegionId region, std::uint32_t of) {
    ControlSocket::Frame frame;
    const auto there = agent_.next(frame);
    ASSERT_TRUE(there && *there);
    ASSERT_EQ(frame.type, ControlType::withdraw);
    const auto told = wire::decode_withdrawal(frame.payload);
    ASSERT_TRUE(told);
    EXPECT_EQ(std::pair(told->region, told->generation), std::pair(region, of));
  }
  void answer(wire::RegionId region, std::uint32_t of) {
    std::vector<std::byte> payload;
    wire::encode(wire::Withdrawal{region, of}, payload);
    ASSERT_TRUE(agent_.send(ControlType::withdrawn, payload));
    ASSERT_TRUE(control_->look());
  }

  AnnouncedMemory<Key> memory_;
  ControlSocket agent_;
  std::optional<HostControl> control_;
  int ended_ = 0;

 private:
  Status take_frame(const ControlSocket::Frame& frame) override { return memory_.take_withdrawn(frame.payload); }
  void on_lost() noexcept override { memory_.clear(); }
};

TEST_F(Announced, IsGoneWhenTheAgentHasAnsweredAndNotBefore) {
  announce(range, generation);
  ASSERT_TRUE(memory_.withdraw(*control_, range, generation));
  EXPECT_FALSE(memory_.is_gone(range, generation));
  EXPECT_EQ(memory_.generation_of(range), std::nullopt);
  expect_withdrawal(range, generation);
  answer(range + 1, generation);
  answer(range, generation + 1);
  EXPECT_FALSE(memory_.is_gone(range, generation)) << "these are others";
  EXPECT_EQ(ended_, 0);
  answer(range, generation);
  EXPECT_TRUE(memory_.is_gone(range, generation));
  EXPECT_EQ(ended_, 1);
}

TEST_F(Announced, WhatWasNotAnnouncedIsNotWaitedFor) {
  announce(range, generation);
  EXPECT_EQ(memory_.withdraw(*control_, range, generation + 1).error().code, Error::stale);
  EXPECT_TRUE(memory_.is_gone(range, generation + 1));
  EXPECT_EQ(memory_.generation_of(range), generation) << "the other generation stays";
  EXPECT_EQ(ended_, 0);
}

// A segment's generation is always 0.
TEST_F(Announced, OneThatIsAnnouncedAnewIsAnotherThanTheOneThatLeaves) {
  announce(range, 0);
  ASSERT_TRUE(memory_.withdraw(*control_, range, 0));
  announce(range, 0);
  ASSERT_TRUE(memory_.withdraw(*control_, range, 0));
  answer(range, 0);
  EXPECT_EQ(ended_, 1);
  EXPECT_FALSE(memory_.is_gone(range, 0)) << "the second of that name still leaves";
  answer(range, 0);
  EXPECT_TRUE(memory_.is_gone(range, 0));
  EXPECT_EQ(ended_, 2);
}

TEST_F(Announced, AnAgentThatIsLostHoldsNothing) {
  announce(range, generation);
  announce(range + 1, generation);
  ASSERT_TRUE(memory_.withdraw(*control_, range, generation));
  agent_ = ControlSocket();
  EXPECT_FALSE(control_->look());
  EXPECT_TRUE(memory_.is_gone(range, generation));
  EXPECT_EQ(ended_, 2);
  EXPECT_FALSE(memory_.withdraw(*control_, range + 1, generation)) << "there is nobody to tell";
}

// Registrations belong to the parent, which still uses them.
TEST_F(Announced, AForkedChildEndsNoKey) {
  announce(range, generation);
  announce(range + 1, generation);
  ASSERT_TRUE(memory_.withdraw(*control_, range, generation));
  memory_.abandon();
  EXPECT_TRUE(memory_.is_gone(range, generation));
  EXPECT_EQ(ended_, 0);
}

}  // namespace
}  // namespace offpath::link
