#include "sift/pools/flush_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "testing/sift/one_sift_agent.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

using wire::EntryKind;

// Agent a of a pool of three, with a program's channel.
struct OneOfThree : OneSiftAgent {
  OneOfThree() : OneSiftAgent("a") {
    sifts.on_members({"a", "b", "c"}, {}, now, effects);
    EXPECT_TRUE(sifts.admit("sift:/t?key=id&members=a,b,c", user, effects));
    full = sifts.pools().front().text;
    sifts.on_opened({.number = program, .client = {.program = "p", .user = user}});
    ask(member, EntryKind::peer_flush, 1, wire::PeerFlush{user, 0, 1, full});  // a member that asks has agreed
    effects.clear();
  }
  template <class Message>
  void ask(service::ChannelNumber channel, EntryKind kind, std::uint64_t ticket, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    sifts.on_request({.channel = channel,
                      .entry = {ticket, static_cast<std::uint8_t>(kind), payload},
                      .program = "p",
                      .is_member = channel == member},
                     now, effects);
  }
  // Tokens of the requests since the last call, by member.
  std::map<std::string, std::uint64_t> asked() {
    std::map<std::string, std::uint64_t> tokens;
    for (const service::Effect& effect : effects)
      if (const auto* ask = std::get_if<service::AskEffect>(&effect);
          ask != nullptr && ask->kind == EntryKind::peer_flush)
        tokens.emplace(ask->member, ask->token);
    std::erase_if(effects, [](const auto& each) { return std::holds_alternative<service::AskEffect>(each); });
    return tokens;
  }
  // By ticket.
  std::map<std::uint64_t, Failure> failed() const {
    std::map<std::uint64_t, Failure> failures;
    for (const service::Effect& effect : effects)
      if (const auto* each = std::get_if<service::FailEffect>(&effect)) failures.emplace(each->ticket, each->failure);
    return failures;
  }

  static constexpr service::ChannelNumber program = 1, member = 2;
  std::string full;
};

TEST(FlushRequests, AFlushEndsWhenAMemberDiesThoughItHasAnswered) {
  for (const bool restarts : {false, true}) {
    OneOfThree agent;
    agent.ask(agent.program, EntryKind::sift_flush, 7, wire::SiftFlush{-1, "sift:/t"});
    const auto tokens = agent.asked();
    ASSERT_EQ(tokens.size(), 2u);
    service::Answer done{wire::ReplyKind::done, {}, {}};
    wire::encode(wire::Done{0}, done.payload);
    agent.sifts.on_answer(tokens.at("c"), done, agent.now, agent.effects);  // b waits for a mark of c, which has all
                                                                            // rows
    agent.ask(agent.member, EntryKind::peer_flush, 8, wire::PeerFlush{user, 100, never, agent.full});
    EXPECT_TRUE(agent.failed().empty());
    if (restarts)
      agent.sifts.on_members({"a", "b", "c"}, {"c"}, agent.now, agent.effects);
    else
      agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
    const auto failed = agent.failed();
    for (const std::uint64_t ticket : {7, 8}) {
      ASSERT_TRUE(failed.contains(ticket)) << ticket;
      EXPECT_EQ(failed.at(ticket).code, Error::peer_lost);
      EXPECT_THAT(failed.at(ticket).message, HasSubstr(restarts ? "member c was restarted" : "member c was lost"));
    }
  }
}

TEST(FlushRequests, AFlushWithoutAMemberIsRefusedBeforeOthersWaitForIt) {
  OneOfThree agent;
  agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
  agent.effects.clear();
  agent.ask(agent.program, EntryKind::sift_flush, 7, wire::SiftFlush{-1, "sift:/t"});
  EXPECT_TRUE(agent.asked().empty());
  ASSERT_TRUE(agent.failed().contains(7));
  EXPECT_EQ(agent.failed().at(7).code, Error::peer_lost);
  EXPECT_THAT(agent.failed().at(7).message, HasSubstr("member c is away"));
  agent.sifts.on_members({"a", "b", "c"}, {}, agent.now, agent.effects);
  agent.effects.clear();
  agent.ask(agent.program, EntryKind::sift_flush, 9, wire::SiftFlush{-1, "sift:/t"});
  EXPECT_EQ(agent.asked().size(), 2u);
  EXPECT_TRUE(agent.failed().empty());
}

}  // namespace
}  // namespace offpath::sift
