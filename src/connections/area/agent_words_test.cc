#include "connections/area/agent_words.h"

#include <gtest/gtest.h>

#include <vector>

namespace offpath::channel {
namespace {

using wire::TcpCongestion;

class AgentWordsTest : public testing::Test {
 protected:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory_{wire::TcpAreaLayout::commands / sizeof(Line)};
  AgentWords words_{{memory_.front().bytes, memory_.size() * sizeof(Line)}};
  wire::TcpAgentLine& line_ =
      *reinterpret_cast<wire::TcpAgentLine*>(memory_.front().bytes + wire::tcp_word::agent_line);
};

TEST_F(AgentWordsTest, NameTheFamiliesOfWhichTheAgentHasAnAddress) {
  EXPECT_EQ(words_.families(), 0);
  line_.address4 = 0x0a000002;
  EXPECT_EQ(words_.families(), wire::tcp_for_ipv4);
  const wire::IpAddress own{{0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  line_.address6 = own;
  EXPECT_EQ(words_.families(), wire::tcp_families);
  EXPECT_EQ(words_.own_address(wire::IpFamily::v4), wire::ipv4(0x0a000002));
  EXPECT_EQ(words_.own_address(wire::IpFamily::v6), own);
}

// Another process of the program may write anything there.
TEST_F(AgentWordsTest, AnUnknownCongestionControlIsNone) {
  line_.congestion = TcpCongestion::timely;
  EXPECT_EQ(words_.congestion(), TcpCongestion::timely);
  for (const int byte : {5, 8, 255}) {
    line_.congestion = static_cast<TcpCongestion>(byte);
    EXPECT_EQ(words_.congestion(), TcpCongestion::agents) << byte;
  }
}

TEST_F(AgentWordsTest, TheRightsOfTheProgramAreNotThoseOfEverybody) {
  line_.congestions = wire::tcp_congestion_bit(TcpCongestion::dctcp);
  EXPECT_TRUE(words_.may_choose(TcpCongestion::dctcp));
  EXPECT_FALSE(words_.may_choose(TcpCongestion::dctcp, AgentWords::Rights::of_everybody));
  line_.congestions_of_all = line_.congestions;
  EXPECT_TRUE(words_.may_choose(TcpCongestion::dctcp, AgentWords::Rights::of_everybody));
}

}  // namespace
}  // namespace offpath::channel
