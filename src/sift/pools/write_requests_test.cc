#include "sift/pools/write_requests.h"

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

TEST(WriteRequests, AnAgentWritesTracksForItsOwnUserAlone) {
  OneSiftAgent agent("a", nullptr, {.agent_user = user});
  const auto write = [&](uid_t who, uid_t asker, EntryKind kind) {
    const std::string pool = fmt::format("sift:/{}?key=id&members=a", who);
    if (auto made = agent.sifts.admit(pool, who, agent.effects); !made) return made.error().message;
    agent.run_for(second_ns);
    agent.sifts.on_opened({.number = 1, .client = {.program = "p", .user = asker}});
    std::vector<std::byte> payload;
    if (kind == EntryKind::peer_write)
      wire::encode(wire::PeerWrite{wire::PeerWrite::What::begin, who, asker, 1, 1, second_ns, pool, "/none/d"},
                   payload);
    else
      wire::encode(wire::SiftWrite{second_ns, pool, "/none/d"}, payload);
    agent.effects.clear();
    const auto ask = [&](EntryKind asked, std::uint64_t ticket) {
      const channel::Entry entry{ticket, static_cast<std::uint8_t>(asked), payload};
      agent.sifts.on_request({.channel = 1, .entry = entry, .program = "p", .is_member = true}, agent.now,
                             agent.effects);
    };
    ask(kind, 1);
    if (kind == EntryKind::sift_write)
      if (const auto* begun = std::get_if<service::ReplyEffect>(&agent.effects.back())) {
        payload.clear();
        wire::encode(wire::SiftWritten{std::get<wire::Done>(begun->message).value, 0, false}, payload);
        ask(EntryKind::sift_written, 2);
      }
    for (const service::Effect& effect : agent.effects)
      if (const auto* failed = std::get_if<service::FailEffect>(&effect)) return failed->failure.message;
    return std::string();
  };
  for (const EntryKind kind : {EntryKind::peer_write, EntryKind::sift_write}) {
    EXPECT_THAT(write(other_user, other_user, kind),
                HasSubstr("agent a runs as user 1000 and writes files for that user alone, not for user 1001"));
    EXPECT_THAT(write(user, 0, kind), HasSubstr("not for user 0"));
    EXPECT_EQ(write(user, user, kind), "");
  }
}

TEST(WriteRequests, AWriteThatWaitsForThePoolIsDroppedWhenNobodyWaitsForIt) {
  OneSiftAgent agent("a", nullptr, {.agent_user = user});
  agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
  ASSERT_TRUE(agent.sifts.admit("sift:/t?key=id&members=a,b", user, agent.effects));
  const std::string full = agent.sifts.pools().front().text;
  agent.sifts.on_opened({.number = 1, .client = {.program = "p", .user = user}});
  const auto ask = [&](EntryKind kind, std::uint64_t ticket, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    agent.sifts.on_request(
        {.channel = 1, .entry = {ticket, static_cast<std::uint8_t>(kind), payload}, .program = "p", .is_member = true},
        agent.now, agent.effects);
  };
  agent.effects.clear();
  ask(EntryKind::sift_write, 1, wire::SiftWrite{second_ns, full, "/none/d"});
  ask(EntryKind::sift_write, 2, wire::SiftWrite{10 * second_ns, full, "/none/d"});
  agent.now += 2 * second_ns;
  ask(EntryKind::peer_flush, 3, wire::PeerFlush{user, 0, 1, full});  // a member that asks has agreed
  std::vector<std::uint64_t> begun;
  std::map<std::uint64_t, std::string> failures;
  for (const service::Effect& effect : agent.effects) {
    if (const auto* reply = std::get_if<service::ReplyEffect>(&effect)) begun.push_back(reply->ticket);
    if (const auto* failed = std::get_if<service::FailEffect>(&effect))
      failures[failed->ticket] = failed->failure.message;
  }
  EXPECT_THAT(failures[1], HasSubstr("was not ready to be written in time"));
  EXPECT_THAT(begun, testing::Contains(2u));
  EXPECT_THAT(begun, testing::Not(testing::Contains(1u)));
}

}  // namespace
}  // namespace offpath::sift
