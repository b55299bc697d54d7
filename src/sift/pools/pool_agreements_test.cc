#include "sift/pools/pool_agreements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/hash/mix.h"
#include "testing/sanitized.h"
#include "testing/sift/sift_agents.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;
using wire::EntryKind;

constexpr const char* text = "sift:/t?key=id&threshold=64KiB&budget=1MiB";

TEST(PoolAgreements, AgentsThatSeeDifferentMembersMakeOnePool) {
  SiftAgents agents(3);
  agents.see(0, {"a", "b"});
  agents.see(1, {"a", "b", "c"});
  agents.see(2, {"b", "c"});
  std::vector<std::uint64_t> puts;
  for (std::size_t i = 0; i < 3; ++i) puts.push_back(agents.put(i, text));
  agents.run_for(second_ns);
  agents.all_see_all();
  agents.run_for(20 * second_ns);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(agents.pool(i).text, HasSubstr("members=a,b,c")) << i;
    EXPECT_TRUE(agents.pool(i).agreed) << i;
    ASSERT_TRUE(agents.outcomes.contains(puts[i])) << i;
    EXPECT_TRUE(agents.outcomes.at(puts[i])) << agents.outcomes.at(puts[i]).error().message;
  }
}

// The definition is longer than a name may be; it is sent once to each member that needs it.
TEST(PoolAgreements, DefinitionsLongerThanANameAreSentOnceToEachMember) {
  SiftAgents::suffix = std::string(62, 'x');
  SiftAgents agents(26);
  agents.all_see_all();
  const std::uint64_t put = agents.put(3, text);
  agents.run_for(5 * second_ns);
  ASSERT_TRUE(agents.outcomes.contains(put));
  EXPECT_TRUE(agents.outcomes.at(put)) << agents.outcomes.at(put).error().message;
  for (std::size_t i = 0; i < agents.size(); ++i) {
    EXPECT_TRUE(agents.pool(i).agreed) << i;
    EXPECT_EQ(agents.pool(i).text, agents.pool(3).text);
    EXPECT_EQ(agents.definitions_sent[SiftAgents::name_of(i)], i == 3 ? 0 : 1) << i;
  }
  EXPECT_GT(agents.pool(3).text.size(), wire::pool_bytes_max);
  const std::size_t largest = std::exchange(agents.largest_message, 0);
  EXPECT_GT(largest, agents.pool(3).text.size());
  std::vector<std::uint64_t> puts;
  for (std::size_t i = 0; i < agents.size(); ++i)
    if (i != 3) puts.push_back(agents.put(i, "sift:/t"));  // the first rows occupy its memory: no job runs here
  agents.run_for(5 * second_ns);
  for (const std::uint64_t each : puts) EXPECT_TRUE(agents.outcomes.at(each));
  EXPECT_LT(agents.largest_message, 512u) << "nobody sends it again";
}

// One real agent of a thousand with irregular names; it gets the messages of all others as of real ones.
TEST(PoolAgreements, AThousandMembersWithNamesOfAnyKindMakeAPool) {
  const std::uint64_t members = fewer_if_sanitized(1000);
  for (const std::size_t bytes : {std::size_t{20}, std::size_t{63}}) {
    std::vector<std::string> names;
    for (std::uint64_t i = 0; i < members; ++i)
      names.push_back(fmt::format("{:016x}", mix(i)) + std::string(bytes - 16, 'x'));
    std::ranges::sort(names);
    OneSiftAgent agent(names[members / 2]);
    agent.sifts.on_members(names, {}, agent.now, agent.effects);
    ASSERT_TRUE(agent.sifts.admit("sift:/t?key=id&stages=2&fanout=32", user, agent.effects));
    std::map<std::string, int> sent;
    std::size_t largest_without = 0;
    for (int round = 0; round < 10; ++round, agent.now += 100 * millisecond_ns) {
      if (agent.sifts.next_deadline() <= agent.now) agent.sifts.on_time(agent.now, agent.effects);
      for (service::Effect& effect : std::exchange(agent.effects, {})) {
        auto* ask = std::get_if<service::AskEffect>(&effect);
        if (ask == nullptr || ask->kind != EntryKind::peer_define) continue;
        std::vector<std::byte> payload;
        ask->compose({}, payload);
        wire::PeerDefine said{};
        ASSERT_TRUE(wire::decode(payload, said));
        std::uint64_t answer = Agreement::promised;
        if (said.definition.empty()) {
          largest_without = std::max(largest_without, payload.size());
          if (sent[ask->member] == 0) answer = Agreement::wants_definition;
        } else {
          ++sent[ask->member];
          const auto definition = decode_definition(said.definition);
          ASSERT_TRUE(definition) << definition.error().message;
          EXPECT_EQ(reference_to(*definition), said.pool);
        }
        pool::Answer reply{wire::ReplyKind::done, {}, {}};
        wire::encode(wire::Done{answer}, reply.payload);
        agent.sifts.on_answer(ask->token, reply, agent.now, agent.effects);
      }
    }
    ASSERT_EQ(agent.sifts.pools().size(), 1u);
    const SiftService::PoolStatus pool = agent.sifts.pools().front();
    EXPECT_TRUE(pool.agreed);
    EXPECT_GT(pool.text.size(), members * bytes);
    EXPECT_EQ(sent.size(), members - 1);
    for (const auto& [member, times] : sent) EXPECT_EQ(times, 1) << member;
    EXPECT_LT(largest_without, 100u);
    EXPECT_LE(agent.sifts.known().front().text.size(), wire::pool_bytes_max);
  }
}

TEST(PoolAgreements, AReferenceToAnUnknownDefinitionIsAnsweredOnceByAWish) {
  OneSiftAgent agent("b");
  agent.sifts.on_members({"a", "b", "c"}, {}, agent.now, agent.effects);
  const std::string definition = "sift:/t?key=id&members=a,b,c", reference = reference_to(definition);
  const auto ask = [&](std::uint64_t channel, const std::string& name, std::vector<std::byte> object) {
    agent.effects.clear();
    std::vector<std::byte> payload;
    wire::encode(wire::PeerDefine{user, name, object}, payload);
    const channel::Entry entry{1, static_cast<std::uint8_t>(EntryKind::peer_define), payload};
    agent.sifts.on_request({.channel = channel, .entry = entry, .program = "a", .is_member = true}, agent.now,
                           agent.effects);
    Result<std::uint64_t> answer = fail(Error::peer_lost, "none");
    for (const service::Effect& effect : agent.effects) {
      if (const auto* failed = std::get_if<service::FailEffect>(&effect)) answer = tl::unexpected(failed->failure);
      if (const auto* reply = std::get_if<service::ReplyEffect>(&effect))
        answer = std::get<wire::Done>(reply->message).value;
    }
    return answer;
  };
  EXPECT_EQ(ask(1, reference, {}), Agreement::wants_definition);
  EXPECT_EQ(ask(2, reference, {}).error().code, Error::would_block) << "the other one is to send it";
  agent.now += ForeignDefinitions::sent_within_ns;
  EXPECT_EQ(ask(2, reference, {}), Agreement::wants_definition) << "it did not";
  EXPECT_EQ(ask(2, reference, encode_definition("sift:/t?key=id&members=a,b")).error().code, Error::protocol);
  EXPECT_TRUE(agent.names().empty());
  EXPECT_EQ(ask(2, reference, encode_definition(definition)), Agreement::promised);
  EXPECT_EQ(agent.sifts.pools().front().text, definition);
  EXPECT_EQ(ask(1, reference, {}), Agreement::promised);
}

// Members meet while pools are named and messages are late: they agree on one definition, and agents outside of it get
// an error.
TEST(PoolAgreements, WhoeverNamesAPoolWhileMembersMeetOneDefinitionWins) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&random](std::uint64_t end) { return random() % end; };
    SiftAgents agents(2 + below(4));
    agents.delay = [&below] {
      return static_cast<TimeNs>(1 + below(below(5) == 0 ? 2 * second_ns : 20 * millisecond_ns));
    };
    std::map<std::size_t, std::uint64_t> puts;
    std::vector<std::set<std::string>> seen(agents.size());
    for (std::size_t i = 0; i < agents.size(); ++i) seen[i] = {SiftAgents::name_of(i)};
    for (int step = 0; step < 12; ++step) {
      const std::size_t i = below(agents.size());
      seen[i].insert(SiftAgents::name_of(below(agents.size())));
      agents.see(i, {seen[i].begin(), seen[i].end()});
      const std::size_t who = below(agents.size());
      if (seen[who].size() > 1 && !puts.contains(who) && below(5) < 2) puts[who] = agents.put(who, text);
      agents.run_for(static_cast<TimeNs>(below(300 * millisecond_ns)));
    }
    agents.all_see_all();
    agents.run_for(60 * second_ns);
    std::set<std::string> agreed;
    std::vector<std::string> rivals;
    for (std::size_t i = 0; i < agents.size(); ++i)
      if (const auto pool = agents.pool(i); pool.agreed && !pool.text.empty()) {
        if (pool.rival.empty())
          agreed.insert(pool.text);
        else
          rivals.push_back(pool.rival);
      }
    EXPECT_LE(agreed.size(), 1u) << *agreed.begin() << " and " << *agreed.rbegin();
    for (const std::string& rival : rivals) EXPECT_TRUE(agreed.contains(rival)) << rival;
    for (const auto& [who, token] : puts) {
      ASSERT_TRUE(agents.outcomes.contains(token)) << "the put of " << who << " waits: " << agents.pool(who).text;
      const Status& outcome = agents.outcomes.at(token);
      EXPECT_TRUE(outcome || outcome.error().code == Error::exists) << outcome.error().message;
    }
  }
}

// Two members have made a pool, and so has a third one that knew of nobody else; then all see each other.
void two_pools_meet(SiftAgents& agents) {
  agents.see(0, {"a", "b"});
  agents.see(1, {"a", "b"});
  const std::uint64_t larger = agents.put(0, text), smaller = agents.put(2, text);
  agents.run_for(second_ns);
  EXPECT_TRUE(agents.outcomes.at(larger));
  EXPECT_TRUE(agents.outcomes.at(smaller));
  agents.all_see_all();
  agents.run_for(10 * second_ns);
}

TEST(PoolAgreements, OfTwoPoolsThatMeetTheOneWithMoreMembersWinsAndTheOtherSaysSo) {
  SiftAgents agents(3);
  two_pools_meet(agents);
  const std::uint64_t refused = agents.put(2, text), taken = agents.put(1, text);
  agents.run_for(second_ns);
  EXPECT_TRUE(agents.outcomes.at(taken));
  ASSERT_FALSE(agents.outcomes.at(refused));
  EXPECT_EQ(agents.outcomes.at(refused).error().code, Error::exists);
  EXPECT_THAT(agents.outcomes.at(refused).error().message, HasSubstr("members=a,b\" on other members, which wins"));
  EXPECT_THAT(agents.pool(2).rival, HasSubstr("members=a,b"));
  EXPECT_EQ(agents.pool(2).stages.front().pieces_taken, 1u) << "what it took, it has";
}

// Many other definitions have come since, and a member has only the newest.
TEST(PoolAgreements, ARivalThatForgotTheOtherDefinitionIsToldOfItAgain) {
  SiftAgents agents(3);
  two_pools_meet(agents);
  EXPECT_THAT(agents.pool(2).rival, HasSubstr("members=a,b"));
  for (std::size_t i = 0; i < ForeignDefinitions::kept_max; ++i) {
    const std::string other = fmt::format("sift:/other{}?key=id&members=x,y", i);
    std::vector<std::byte> payload;
    wire::encode(wire::PeerDefine{user, reference_to(other), encode_definition(other)}, payload);
    const channel::Entry entry{1, static_cast<std::uint8_t>(wire::EntryKind::peer_define), payload};
    agents[2].sifts.on_request({.channel = 100, .entry = entry, .program = "a", .is_member = true}, agents.now(),
                               agents[2].effects);
  }
  for (int i = 0; i < 8; ++i) {
    agents.run_for(5 * second_ns);
    const std::uint64_t refused = agents.put(2, text);
    agents.run_for(second_ns);
    ASSERT_TRUE(agents.outcomes.contains(refused));
    ASSERT_FALSE(agents.outcomes.at(refused)) << "the other pool has won, after " << i;
    EXPECT_EQ(agents.outcomes.at(refused).error().code, Error::exists);
  }
}

// Agent a has two cores. Its second one joins after others have named the pool.
TEST(PoolAgreements, APoolWaitsForTheCoresOfAnAgentThatStillJoin) {
  // For two pieces of each agent: these split nothing.
  constexpr const char* larger = "sift:/t?key=id&threshold=64KiB&budget=4MiB";
  for (const std::size_t who : {std::size_t{0}, std::size_t{2}}) {
    SiftAgents agents({"a", "a+1", "b"});
    for (const std::size_t core : {0, 1}) agents[core].sifts.set_cores({"a", "a+1"});
    agents.see(0, {"a", "b"});
    agents.see(2, {"a", "b"});
    const std::uint64_t early = agents.put(who, larger);
    agents.run_for(5 * second_ns);
    EXPECT_FALSE(agents.outcomes.contains(early)) << "a member would be missing";
    agents.all_see_all();
    agents.run_for(20 * second_ns);
    std::vector<std::uint64_t> puts{early};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_THAT(agents.pool(i).text, HasSubstr("members=a,a+1,b")) << i;
      EXPECT_TRUE(agents.pool(i).agreed) << i;
      puts.push_back(agents.put(i, larger));
    }
    agents.run_for(second_ns);
    for (const std::uint64_t put : puts) {
      ASSERT_TRUE(agents.outcomes.contains(put)) << put;
      EXPECT_TRUE(agents.outcomes.at(put)) << agents.outcomes.at(put).error().message;
    }
  }
}

}  // namespace
}  // namespace offpath::sift
