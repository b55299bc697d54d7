#include "wire/channel_layout.h"

#include <gtest/gtest.h>

namespace offpath::wire {
namespace {

TEST(ChannelLayout, PartsFollowEachOtherWithoutOverlap) {
  for (const ChannelLayout layout : {ChannelLayout{}, ChannelLayout{64, 64, 1}, ChannelLayout{1u << 16, 128, 5000}}) {
    ASSERT_TRUE(check_layout(layout));
    EXPECT_GE(ChannelLayout::request_ring, ChannelLayout::witness_line + sizeof(WitnessLine));
    EXPECT_GE(ChannelLayout::witness_line, ChannelLayout::reply_tail_line + sizeof(ReplyTailLine));
    EXPECT_EQ(layout.reply_ring(), ChannelLayout::request_ring + layout.request_slots * slot_bytes);
    EXPECT_EQ(layout.completion_lines(), layout.reply_ring() + layout.reply_slots * slot_bytes);
    EXPECT_EQ(layout.completion_line(0), layout.completion_lines());
    EXPECT_LE(layout.completion_line(layout.streams_max - 1) + sizeof(CompletionLine), layout.total_bytes());
    EXPECT_EQ(layout.total_bytes() % page_bytes, 0u);
  }
}

TEST(ChannelLayout, SizesOutOfBoundsAreNamed) {
  struct Case {
    ChannelLayout layout;
    const char* message;
  };
  for (const Case& each : {Case{{100, 64, 1}, "request_slots is 100"}, Case{{32, 64, 1}, "request_slots is 32"},
                           Case{{64, 1u << 21, 1}, "reply_slots is 2097152"}, Case{{64, 64, 0}, "streams_max is 0"},
                           Case{{64, 64, 70000}, "streams_max is 70000"}}) {
    const auto status = check_layout(each.layout);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Error::invalid);
    EXPECT_NE(status.error().message.find(each.message), std::string::npos) << status.error().message;
  }
}

}  // namespace
}  // namespace offpath::wire
