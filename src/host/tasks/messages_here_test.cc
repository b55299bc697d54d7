// Without an agent a lane has itself to talk to, under the same rules as with one.
#include "host/tasks/messages_here.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "wire/messages/lane_messages.h"

namespace offpath::host {
namespace {

constexpr std::uint32_t own = 1, lanes = 3;

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct Lane {
  MessagesHere messages{true};
  Status send(std::string_view text, std::uint32_t tag = 0) {
    return messages.send(own, lanes, own, tag, bytes_of(text));
  }
  // The message, or the name of the error.
  std::string receive(std::uint32_t tag = 0, std::size_t room = 64, TimeNs wait = millisecond_ns) {
    std::vector<std::byte> into(room);
    const Status done =
        messages.receive(own, lanes, own, tag, into, wait == never ? never : monotonic_ns() + wait, bytes);
    if (!done) return std::string(error_name(done.error().code));
    return {reinterpret_cast<const char*>(into.data()), bytes};
  }
  std::uint64_t bytes = 0;
};

TEST(MessagesHere, ComeInTheirOrderUnderEachTag) {
  Lane lane;
  ASSERT_TRUE(lane.send("a1", 1));
  ASSERT_TRUE(lane.send("b1", 2));
  ASSERT_TRUE(lane.send("a2", 1));
  ASSERT_TRUE(lane.send("", 1));
  EXPECT_EQ(lane.receive(2), "b1");
  EXPECT_EQ(lane.receive(1), "a1");
  EXPECT_EQ(lane.receive(1), "a2");
  EXPECT_EQ(lane.receive(1), "");
  EXPECT_EQ(lane.bytes, 0u);
  EXPECT_EQ(lane.receive(1), "timeout");
}

TEST(MessagesHere, WhatThereIsNoRoomForStaysAndSaysHowLargeItIs) {
  Lane lane;
  ASSERT_TRUE(lane.send("eleven bytes"));
  EXPECT_EQ(lane.receive(0, 4), "too_large");
  EXPECT_EQ(lane.bytes, 12u);
  EXPECT_EQ(lane.receive(0, 12), "eleven bytes");
}

TEST(MessagesHere, AnotherThreadMayStillSend) {
  Lane lane;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(lane.send("late"));
  });
  EXPECT_EQ(lane.receive(0, 64, 20 * second_ns), "late");
  late.join();
}

TEST(MessagesHere, AWaitThatNobodyWouldEndIsRefused) {
  Lane lane;
  EXPECT_EQ(lane.receive(0, 64, never), "unsupported");
  ASSERT_TRUE(lane.send("there"));
  EXPECT_EQ(lane.receive(0, 64, never), "there");
}

TEST(MessagesHere, OtherLanesAreNamedAsWhatTheyAre) {
  Lane lane;
  std::uint64_t bytes = 0;
  EXPECT_EQ(lane.messages.send(own, lanes, 2, 0, bytes_of("x")).error().code,
            Error::unsupported);  // there, but out of reach
  EXPECT_EQ(lane.messages.send(own, lanes, 3, 0, bytes_of("x")).error().code, Error::invalid);  // not there
  EXPECT_EQ(lane.messages.receive(own, lanes, 0, 0, {}, never, bytes).error().code, Error::unsupported);
  MessagesHere alone(false);
  EXPECT_EQ(alone.send(own, lanes, own, 0, bytes_of("x")).error().code, Error::unsupported);  // in no team
}

TEST(MessagesHere, AMessageBeyondTheLimitIsNotTaken) {
  Lane lane;
  // The bytes are not looked at: it is refused by its size.
  const Bytes large(reinterpret_cast<const std::byte*>(&lane), wire::message_bytes_max + 1);
  EXPECT_EQ(lane.messages.send(own, lanes, own, 0, large).error().code, Error::too_large);
  EXPECT_EQ(lane.receive(), "timeout");
}

}  // namespace
}  // namespace offpath::host
