#include "sift/pools/pool_making.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "testing/sift/one_sift_agent.h"
#include "testing/sift/sift_agents.h"
#include "wire/cursor.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

// A forged object of a program that claims to be the pool's identity.
void put_identity(pool::MemoryStore& store, const std::string& pool, uid_t pool_user, uid_t said_user,
                  const std::string& text) {
  std::vector<std::byte> bytes;
  wire::Writer writer(bytes);
  writer.put(std::uint64_t{7});
  writer.put(std::uint64_t{said_user});
  writer.put_text(text);
  pool::ObjectRecord record;
  record.number = store.files.size() + 1;
  record.bytes = bytes.size();
  record.pool_user = record.user = pool_user;
  record.pool = pool + "?spill=durable";
  record.row = "a";
  record.column = "pool";
  ASSERT_TRUE(store.write(std::move(record), bytes, true));
}

constexpr const char* usual_pool = "sift:/t?key=id&threshold=64KiB&budget=1MiB";

TEST(PoolMaking, AForgedRecordDefinesNoPoolAtRestart) {
  const auto store = std::make_shared<pool::MemoryStore>();
  put_identity(*store, "local:/t.kept-0badcafe", user, 0, "sift:/t?key=id&spill=durable&members=a");
  put_identity(*store, "local:/u.kept-0badcafe", user, user, "sift:/u?key=id&spill=durable&members=a");
  OneSiftAgent agent("a", store);
  agent.recover();
  EXPECT_TRUE(agent.names().empty()) << agent.names().front() << " of user " << agent.sifts.pools().front().user;
}

constexpr const char* kept = "sift:/t?key=id&spill=durable&members=a";

// Its record is the only file that an agent leaves in the store.
void keep_a_pool(const std::shared_ptr<pool::MemoryStore>& store) {
  OneSiftAgent before("a", store);
  ASSERT_TRUE(before.sifts.admit(kept, user, before.effects));
  before.run_for(second_ns);
  ASSERT_EQ(store->files.size(), 1u);
}

TEST(PoolMaking, APoolWhoseRecordCannotBeReadForSecondsIsTakenUpAndNoOtherOfItsNameIsMade) {
  const auto store = std::make_shared<pool::MemoryStore>();
  ASSERT_NO_FATAL_FAILURE(keep_a_pool(store));
  OneSiftAgent agent("a", store);
  bool fails = true;
  store->fails_reading = [&] { return fails; };
  agent.recover();
  agent.run_for(5 * second_ns);
  EXPECT_TRUE(agent.names().empty());
  for (const char* const no_name : {"", "x", "sift", "tag:/t"})  // programs may ask for any
    EXPECT_EQ(agent.sifts.track_source(no_name, user, agent.effects).error().code, Error::not_found);
  constexpr const char* other = "sift:/t?key=other&spill=durable";
  EXPECT_TRUE(agent.sifts.admit(other, user, agent.effects)) << "it waits";
  EXPECT_TRUE(agent.names().empty());
  const std::uint64_t ids[] = {1, 2, 3};
  const FramePtr frame = particle_frame(*RowForm::make(particle_schema(), "id").value(), ids, 1, {agent.buffers, user});
  EXPECT_TRUE(agent.sifts.put({other, "step1", "", user, 0, false}, frame, 9, agent.now, agent.effects));
  agent.run_for(second_ns);
  EXPECT_TRUE(agent.outcomes.empty());
  fails = false;
  agent.run_for(5 * second_ns);
  ASSERT_EQ(agent.names(), std::vector<std::string>{"sift:/t"});
  EXPECT_EQ(agent.sifts.pools().front().text, kept);
  ASSERT_EQ(agent.outcomes.size(), 1u);
  ASSERT_FALSE(agent.outcomes.front());
  EXPECT_EQ(agent.outcomes.front().error().code, Error::exists) << agent.outcomes.front().error().message;
}

TEST(PoolMaking, AReferenceMakesNoPool) {
  OneSiftAgent agent("a");
  const std::string reference = reference_to("sift:/t?key=id&members=a");
  for (int time = 0; time < 2; ++time) {
    const auto admitted = agent.sifts.admit(reference, user, agent.effects);
    ASSERT_FALSE(admitted);
    EXPECT_EQ(admitted.error().code, Error::not_found);
    EXPECT_THAT(admitted.error().message, HasSubstr("name it with its options"));
  }
  EXPECT_TRUE(agent.sifts.known().empty());
  ASSERT_TRUE(agent.sifts.admit("sift:/t?key=id", user, agent.effects));
  EXPECT_TRUE(agent.sifts.admit(reference, user, agent.effects)) << "it names the pool that is here";
}

// As the status and the directory name it.
TEST(PoolMaking, AReferenceToAKeptPoolWaitsUntilItIsRead) {
  for (const bool forged : {false, true}) {
    const auto store = std::make_shared<pool::MemoryStore>();
    if (forged) {
      put_identity(*store, "local:/t.kept-0badcafe", user, 0, kept);
    } else {
      ASSERT_NO_FATAL_FAILURE(keep_a_pool(store));
    }
    OneSiftAgent agent("a", store);
    bool fails = true;
    store->fails_reading = [&] { return fails; };
    agent.recover();
    const std::string reference = reference_to(kept);
    ASSERT_TRUE(agent.sifts.admit(reference, user, agent.effects)) << "it waits";
    const std::uint64_t ids[] = {1, 2, 3};
    const FramePtr frame =
        particle_frame(*RowForm::make(particle_schema(), "id").value(), ids, 1, {agent.buffers, user});
    ASSERT_TRUE(agent.sifts.put({reference, "step1", "", user, 0, false}, frame, 9, agent.now, agent.effects));
    agent.run_for(second_ns);
    EXPECT_TRUE(agent.outcomes.empty());
    fails = false;
    agent.run_for(5 * second_ns);
    if (forged) {
      ASSERT_EQ(agent.outcomes.size(), 1u);
      ASSERT_FALSE(agent.outcomes.front());
      EXPECT_EQ(agent.outcomes.front().error().code, Error::not_found);
      EXPECT_TRUE(agent.sifts.known().empty());
    } else {
      EXPECT_TRUE(agent.outcomes.empty()) << "no job runs here";
      ASSERT_EQ(agent.names(), std::vector<std::string>{"sift:/t"});
      EXPECT_GT(agent.sifts.pools().front().stages.front().used_bytes, 0u) << "it has the rows";
    }
  }
}

TEST(PoolMaking, CopiesAmongMoreMembersThanANameHoldsAreRefusedByTheirCause) {
  std::vector<std::string> names;
  for (char each = 'a'; each <= 'z'; ++each) names.push_back(each + std::string(62, 'x'));
  OneSiftAgent agent(names[3], std::make_shared<pool::MemoryStore>());
  agent.sifts.on_members(names, {}, agent.now, agent.effects);
  const auto copies = agent.sifts.admit("sift:/t?key=id&replicas=2", user, agent.effects);
  ASSERT_FALSE(copies);
  EXPECT_EQ(copies.error().code, Error::too_large);
  EXPECT_THAT(copies.error().message, HasSubstr("its copies are placed by the names of its 26 members"));
  EXPECT_TRUE(agent.sifts.admit("sift:/t?key=id&spill=durable", user, agent.effects)) << "that has no copies";
}

TEST(PoolMaking, AThousandMembersAreNamedAsRanges) {
  SiftAgents agents(1);
  std::vector<std::string> names{"a"};
  for (int node = 1; node <= 500; ++node)
    for (int card = 0; card < 2; ++card) names.push_back(fmt::format("glinda{:03}-{}", node, card));
  agents.see(0, names);
  static_cast<void>(agents.put(0, usual_pool));
  EXPECT_THAT(agents.pool(0).text, HasSubstr("members=a,glinda{001..500}-{0..1}"));
}

TEST(PoolMaking, APoolThatWaitsForMembersIsMadeWhenTheyLive) {
  SiftAgents agents(3);
  const std::string waits = std::string(usual_pool) + "&wait=3";
  const std::uint64_t put = agents.put(0, waits), other = agents.put(0, "sift:/t", other_user),
                      differs = agents.put(0, "sift:/t?key=other&wait=3");
  EXPECT_EQ(agents.outcomes.at(other).error().code, Error::denied);
  EXPECT_EQ(agents.outcomes.at(differs).error().code, Error::exists);
  agents.see(0, {"a", "b"});
  agents.run_for(5 * second_ns);
  EXPECT_FALSE(agents.outcomes.contains(put));
  EXPECT_TRUE(agents[0].names().empty());
  agents.all_see_all();
  agents.run_for(second_ns);
  ASSERT_TRUE(agents.outcomes.contains(put));
  EXPECT_TRUE(agents.outcomes.at(put)) << agents.outcomes.at(put).error().message;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_THAT(agents.pool(i).text, HasSubstr("members=a,b,c"));
  const std::uint64_t again = agents.put(1, waits);
  agents.run_for(second_ns);
  EXPECT_TRUE(agents.outcomes.at(again)) << "the same name, once it is made";
}

// Two members put rows at the same time, and learn different ranges.
TEST(PoolMaking, RangesOfASampleAreThoseOfOneMemberForAll) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SiftAgents agents(3);
    agents.delay = [&random] { return static_cast<TimeNs>(1 + random() % (300 * millisecond_ns)); };
    agents.all_see_all();
    const std::string samples = "sift:/t?key=id&by=range&ranges=sample&fanout=4&wait=3";
    std::vector<std::uint64_t> puts{agents.put(0, samples, user, {})};
    agents.run_for(second_ns);
    EXPECT_TRUE(agents.pool(0).text.empty()) << "without rows there is nothing to learn";
    puts.push_back(agents.put(0, samples, user, {10, 20, 30, 40}));
    if (seed % 2 == 0) agents.run_for(static_cast<TimeNs>(random() % second_ns));
    puts.push_back(agents.put(1, samples, user, {11, 21, 31, 41}));
    agents.run_for(30 * second_ns);
    puts.push_back(agents.put(2, samples));
    puts.push_back(agents.put(1, "sift:/t"));
    const std::uint64_t differs = agents.put(2, "sift:/t?key=id&by=range&ranges=1,2,3&fanout=4");
    agents.run_for(second_ns);
    const std::string made = agents.pool(0).text;
    EXPECT_TRUE(made == "sift:/t?key=id&by=range&ranges=20,30,40&fanout=4&members=a,b,c" ||
                made == "sift:/t?key=id&by=range&ranges=21,31,41&fanout=4&members=a,b,c")
        << made;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(agents.pool(i).text, made);
      EXPECT_TRUE(agents.pool(i).agreed);
    }
    for (const std::uint64_t put : puts) {
      ASSERT_TRUE(agents.outcomes.contains(put)) << put;
      EXPECT_TRUE(agents.outcomes.at(put)) << agents.outcomes.at(put).error().message;
    }
    ASSERT_TRUE(agents.outcomes.contains(differs));
    EXPECT_EQ(agents.outcomes.at(differs).error().code, Error::exists);
  }
}

TEST(PoolMaking, RangesOfASampleWaitForMembersToo) {
  SiftAgents agents(2);
  const std::string samples = "sift:/t?key=id&by=range&ranges=sample&fanout=2&wait=2";
  const std::uint64_t first = agents.put(0, samples, user, {5, 6}), second = agents.put(0, samples, user, {50, 60});
  const std::uint64_t wrong = agents.put(1, "sift:/t?key=none&by=range&ranges=sample");
  agents.run_for(second_ns);
  EXPECT_TRUE(agents.pool(0).text.empty());
  ASSERT_TRUE(agents.outcomes.contains(wrong));
  EXPECT_THAT(agents.outcomes.at(wrong).error().message, HasSubstr("no column 'none'"));
  agents.all_see_all();
  agents.run_for(5 * second_ns);
  EXPECT_EQ(agents.pool(0).text, "sift:/t?key=id&by=range&ranges=6&fanout=2&members=a,b");
  EXPECT_EQ(agents.pool(1).text, agents.pool(0).text);
  for (const std::uint64_t put : {first, second}) {
    ASSERT_TRUE(agents.outcomes.contains(put));
    EXPECT_TRUE(agents.outcomes.at(put)) << agents.outcomes.at(put).error().message;
  }
}

TEST(PoolMaking, AMemberThatTakesNoRowsMakesThePool) {
  OneSiftAgent agent("a");
  agent.sifts.set_places([](const std::string& member) { return MemberPlace{"", member == "a"}; });
  agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
  const Status made = agent.sifts.make("sift:/t?key=id&stage1=hosts", user, agent.effects);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_THAT(agent.names(), ::testing::ElementsAre("sift:/t"));
  EXPECT_TRUE(agent.sifts.make("sift:/waits?key=id&stage1=hosts&wait=3", user, agent.effects)) << "later";
  const auto rows = agent.sifts.admit("sift:/t", user, agent.effects);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, Error::unsupported);
}

TEST(PoolMaking, SiftPoolsOfAUserAreBounded) {
  OneSiftAgent agent("a", nullptr, {.user_pools_max = 1});
  ASSERT_TRUE(agent.sifts.admit("sift:/1?key=id", user, agent.effects));
  const auto second = agent.sifts.admit("sift:/2?key=id", user, agent.effects);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Error::too_large);
  EXPECT_THAT(second.error().message, HasSubstr("limits.user_pools_max"));
  EXPECT_TRUE(agent.sifts.admit("sift:/1", user, agent.effects));
  EXPECT_TRUE(agent.sifts.admit("sift:/3?key=id", other_user, agent.effects));
}

// Another core joins before the pool's record can be read.
TEST(PoolMaking, AKeptPoolOfBeforeThereWereMoreCoresIsTakenUpAsItWas) {
  const auto store = std::make_shared<pool::MemoryStore>();
  ASSERT_NO_FATAL_FAILURE(keep_a_pool(store));
  OneSiftAgent agent("a", store);
  agent.sifts.set_cores({"a", "a+1"});
  bool fails = true;
  store->fails_reading = [&] { return fails; };
  agent.recover();
  agent.sifts.on_members({"a", "a+1"}, {}, agent.now, agent.effects);
  fails = false;
  agent.run_for(5 * second_ns);
  ASSERT_EQ(agent.names(), std::vector<std::string>{"sift:/t"});
  EXPECT_EQ(agent.sifts.pools().front().text, kept);
}

}  // namespace
}  // namespace offpath::sift
