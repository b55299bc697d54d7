#include "channel/host/channel_words.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.h"

namespace offpath::channel {
namespace {

using wire::ChannelLayout;

constexpr ChannelLayout layout{.request_slots = 64, .reply_slots = 128, .streams_max = 4};

class ChannelWordsTest : public testing::Test {
 protected:
  void set(std::uint64_t offset, std::uint64_t value) { store(memory.data() + offset, value); }
  [[nodiscard]] std::uint64_t get(std::uint64_t offset) const { return load<std::uint64_t>(memory.data() + offset); }

  std::vector<std::byte> memory = std::vector<std::byte>(layout.total_bytes());
  ChannelWords words{memory.data(), layout};
};

TEST_F(ChannelWordsTest, OfTheAgentAreReadWhereTheLayoutHasThem) {
  set(ChannelLayout::agent_line, 5);
  set(ChannelLayout::reply_tail_line, 6);
  EXPECT_EQ(words.request_head(), 5u);
  EXPECT_EQ(words.reply_tail(), 6u);
  EXPECT_FALSE(words.agent_sleeps());
  set(ChannelLayout::agent_line + 8, 1);
  EXPECT_TRUE(words.agent_sleeps());
}

TEST_F(ChannelWordsTest, OfEachStreamAreItsOwn) {
  for (std::uint32_t stream = 0; stream < layout.streams_max; ++stream)
    for (std::uint64_t word = 0; word < 3; ++word) set(layout.completion_line(stream) + 8 * word, 10 * stream + word);
  for (std::uint32_t stream = 0; stream < layout.streams_max; ++stream) {
    EXPECT_EQ(words.pulled(stream), 10 * stream);
    EXPECT_EQ(words.stored(stream), 10 * stream + 1);
    EXPECT_EQ(words.credit(stream), 10 * stream + 2);
    EXPECT_EQ(words.progress(stream, Progress::pulled), 10 * stream);
    EXPECT_EQ(words.progress(stream, Progress::stored), 10 * stream + 1);
  }
}

TEST_F(ChannelWordsTest, OfTheProgramAreWrittenWhereTheLayoutHasThem) {
  words.set_request_tail(7);
  words.set_reply_head(8);
  EXPECT_EQ(get(ChannelLayout::tail_line), 7u);
  EXPECT_EQ(get(ChannelLayout::tail_line + 8), 8u);
  EXPECT_EQ(words.reply_head(), 8u);
}

}  // namespace
}  // namespace offpath::channel
