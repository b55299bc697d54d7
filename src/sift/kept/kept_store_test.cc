// The kept objects of one sift pool on an agent alone, over a disk in memory, before and after a restart.
#include "sift/kept/kept_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sift/kept/unread_pools.h"
#include "testing/pool/memory_store.h"

namespace offpath::sift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uid_t user = 1000;
constexpr const char* text = "sift:/t?key=id&spill=durable&members=a";
constexpr const char* passing = "sift:/t?key=id&spill=on&members=a";

// An agent with one pool, which is kept on this disk.
class Agent {
 public:
  explicit Agent(const std::shared_ptr<pool::MemoryStore>& disk, std::uint64_t process, const char* name = text,
                 const std::vector<std::string>& cores = {})
      : pools(options(disk), buffers, [](std::uint64_t) { return true; }) {
    pools.set_self("a", process);
    pools.set_cores(cores);
    EXPECT_TRUE(pools.recover(now, effects));
    if (!cores.empty()) pools.on_members(cores, {}, now, effects);
    store = std::make_unique<KeptStore>(
        KeptStore::Options{.name = "sift:/t",
                           .text = name,
                           .user = user,
                           .settings = parse_settings(name).value(),
                           .memory = {buffers, user},
                           .self = "a",
                           .process = process,
                           .moves_ns = second_ns},
        geometry, pools,
        KeptStore::Events{
            .found =
                [this](std::uint64_t source, const std::vector<KeptItem>& items, TimeNs, service::Effects&) {
                  found.emplace_back(source, items.size());
                  EXPECT_FALSE(store->is_idle()) << "while it calls";
                },
            .kept = [this](std::uint64_t token, const Status& status, TimeNs,
                           service::Effects&) { kept.emplace_back(token, status.has_value()); },
            .read = [this](std::uint64_t token, const Result<FramePtr>& object, TimeNs,
                           service::Effects&) { read.emplace_back(token, object ? (*object)->bytes : 0); },
            .spilled = [this](std::uint64_t token, const Result<FramePtr>& unread, TimeNs,
                              service::Effects&) { spilled.emplace_back(token, unread && (*unread)->unread); },
            .changed = [] {}});
  }
  static pool::PoolsOptions options(const std::shared_ptr<pool::MemoryStore>& disk) {
    pool::PoolsOptions options;
    options.store = disk;
    return options;
  }
  void run_for(TimeNs duration) {
    for (const TimeNs end = now + duration; now < end; now += 10 * millisecond_ns) {
      pools.spill(now, effects);
      pools.on_time(now, effects);
      if (store->next_deadline() <= now) store->work(now, effects);
      for (bool any = true; std::exchange(any, false);)
        for (const service::Effect& effect : std::exchange(effects, {}))
          if (const auto* job = std::get_if<service::JobEffect>(&effect)) {
            pools.on_disk_job(job->token, job->run(), now, effects);
            any = true;
          }
    }
  }
  FramePtr object(std::size_t bytes) {
    auto made = std::make_shared<service::Frame>();
    made->buffer = buffers->take(bytes, user).value();
    made->bytes = bytes;
    return made;
  }

  TimeNs now = second_ns;
  std::shared_ptr<service::BufferCache> buffers = service::BufferCache::make({.huge_pages = false});
  pool::Pools pools;
  Geometry geometry = Geometry::make(parse_settings(text).value(), {"a"}).value();
  service::Effects effects;
  std::vector<std::pair<std::uint64_t, std::size_t>> found, read;
  std::vector<std::pair<std::uint64_t, bool>> kept, spilled;
  std::unique_ptr<KeptStore> store;
};

TEST(KeptStore, ANewPoolPublishesAsThisProcess) {
  Agent agent(std::make_shared<pool::MemoryStore>(), 11);
  ASSERT_TRUE(agent.store->open(agent.now, agent.effects));
  agent.run_for(second_ns);
  EXPECT_THAT(agent.found, IsEmpty()) << "its members have not agreed";
  agent.store->begin(agent.now);
  agent.run_for(second_ns);
  EXPECT_THAT(agent.found, ElementsAre(Pair(11, 0)));
  EXPECT_TRUE(agent.store->is_idle());
  EXPECT_EQ(agent.store->next_deadline(), never);
}

TEST(KeptStore, TheNextLifeFindsWhatIsKeptAndNotForgotten) {
  const auto disk = std::make_shared<pool::MemoryStore>();
  {
    Agent before(disk, 11);
    ASSERT_TRUE(before.store->open(before.now, before.effects));
    before.store->begin(before.now);
    before.run_for(second_ns);
    before.store->keep({1, "one", before.object(100)}, before.now, before.effects);
    before.store->keep({2, "two", before.object(200)}, before.now, before.effects);
    before.run_for(second_ns);
    EXPECT_THAT(before.kept, ElementsAre(Pair(1, true), Pair(2, true)));
    before.store->forget("one", before.now, before.effects);
    before.run_for(second_ns);
  }
  Agent after(disk, 12);
  ASSERT_TRUE(after.store->open(after.now, after.effects));
  after.store->begin(after.now);
  after.run_for(second_ns);
  EXPECT_THAT(after.found, ElementsAre(Pair(11, 1))) << "as the same source";
  after.store->read({7, "two"}, after.now, after.effects);
  after.store->read({8, "one"}, after.now, after.effects);
  after.run_for(second_ns);
  EXPECT_THAT(after.read, ::testing::UnorderedElementsAre(Pair(7, 200), Pair(8, 0)));
  EXPECT_TRUE(after.store->is_idle());
}

// By its hash, each of two cores' rows would lie on the other one.
TEST(KeptStore, ACoreOfAnAgentKeepsItsObjectsItself) {
  const std::vector<std::string> cores = {"a", "a+1"};
  const auto disk = std::make_shared<pool::MemoryStore>();
  {
    Agent before(disk, 11, text, cores);
    ASSERT_TRUE(before.store->open(before.now, before.effects));
    before.store->begin(before.now);
    before.run_for(second_ns);
    before.store->keep({1, "one", before.object(5000)}, before.now, before.effects);
    before.run_for(second_ns);
    EXPECT_THAT(before.kept, ElementsAre(Pair(1, true)));
    before.store->spill({2, "one", before.object(5000)}, before.now, before.effects);
    EXPECT_THAT(before.spilled, ElementsAre(Pair(2, true)));
  }
  Agent after(disk, 12, text, cores);
  ASSERT_TRUE(after.store->open(after.now, after.effects));
  after.store->begin(after.now);
  after.run_for(second_ns);
  EXPECT_THAT(after.found, ElementsAre(Pair(11, 1)));
}

TEST(KeptStore, AfterADropNothingIsFound) {
  const auto disk = std::make_shared<pool::MemoryStore>();
  Agent agent(disk, 11);
  ASSERT_TRUE(agent.store->open(agent.now, agent.effects));
  agent.store->begin(agent.now);
  agent.store->drop(agent.now, agent.effects);
  agent.run_for(second_ns);
  EXPECT_THAT(agent.found, IsEmpty());
  EXPECT_TRUE(disk->files.empty());
}

TEST(KeptStore, WhatIsKeptLeavesMemoryWithoutBeingWrittenAgain) {
  const auto disk = std::make_shared<pool::MemoryStore>();
  Agent agent(disk, 11);
  ASSERT_TRUE(agent.store->open(agent.now, agent.effects));
  agent.store->begin(agent.now);
  agent.run_for(second_ns);
  agent.store->keep({1, "one", agent.object(5000)}, agent.now, agent.effects);
  agent.run_for(second_ns);
  const std::uint64_t writes = disk->writes;
  agent.store->spill({2, "one", agent.object(5000)}, agent.now, agent.effects);
  EXPECT_THAT(agent.spilled, ElementsAre(Pair(2, true)));
  agent.store->read({3, "one", true}, agent.now, agent.effects);
  EXPECT_THAT(agent.read, ElementsAre(Pair(3, 5000)));
  EXPECT_EQ(disk->writes, writes);
  EXPECT_EQ(disk->reads, 0u);
}

TEST(KeptStore, WhatLeavesMemoryForThisLifeAloneIsGoneInTheNext) {
  const auto disk = std::make_shared<pool::MemoryStore>();
  {
    Agent before(disk, 11, passing);
    ASSERT_TRUE(before.store->open(before.now, before.effects));
    before.store->begin(before.now);
    before.store->spill({1, "run.2.0.1", before.object(5000)}, before.now, before.effects);
    before.store->spill({2, "run.2.0.2", before.object(5000)}, before.now, before.effects);
    before.run_for(second_ns);
    EXPECT_THAT(before.spilled, ElementsAre(Pair(1, true), Pair(2, true)));
    before.store->forget("run.2.0.1", before.now, before.effects);
    before.run_for(second_ns);
    EXPECT_EQ(disk->files.size(), 1u);
    disk->bytes_max = 100;
    before.store->spill({3, "run.2.0.3", before.object(5000)}, before.now, before.effects);
    before.run_for(60 * second_ns);
    EXPECT_EQ(before.spilled.back(), std::pair(std::uint64_t{3}, false));
    disk->bytes_max = UINT64_MAX;
    EXPECT_TRUE(before.store->is_idle());
  }
  Agent after(disk, 12, passing);
  EXPECT_TRUE(is_passing(after.store->own()));
  UnreadPools unread(after.pools, [](const std::string&, uid_t, const Result<Identity>&, TimeNs, service::Effects&) {});
  unread.find("a", after.now);
  EXPECT_FALSE(unread.may_have("sift:/t"));
  ASSERT_TRUE(after.store->open(after.now, after.effects));
  after.run_for(second_ns);
  EXPECT_TRUE(disk->files.empty());
}

TEST(UnreadPools, APoolOnTheDiskIsReadOnceTheDiskAnswersAndNoneOfItsNameIsMadeUntilThen) {
  const auto disk = std::make_shared<pool::MemoryStore>();
  {
    Agent before(disk, 11);
    ASSERT_TRUE(before.store->open(before.now, before.effects));
    before.store->begin(before.now);
    before.run_for(second_ns);
  }
  Agent after(disk, 12);
  std::vector<std::string> found;
  UnreadPools unread(
      after.pools, [&](const std::string& own, uid_t of, const Result<Identity>& identity, TimeNs, service::Effects&) {
        EXPECT_EQ(own, own_name(parse_settings(text).value(), text, user));
        EXPECT_EQ(of, user);
        found.push_back(identity ? identity->text : identity.error().message);
      });
  bool fails = true;
  disk->fails_reading = [&] { return fails; };
  unread.find("b", after.now);
  EXPECT_FALSE(unread.may_have("sift:/t")) << "it is another member's row";
  unread.find("a", after.now);
  EXPECT_TRUE(unread.may_have("sift:/t?key=other"));
  EXPECT_FALSE(unread.may_have("sift:/u"));
  for (int i = 0; i < 30; ++i) {
    if (unread.next_deadline() <= after.now) unread.read(after.now, after.effects);
    after.run_for(100 * millisecond_ns);
    if (i == 20) {
      EXPECT_THAT(found, IsEmpty());
      fails = false;
    }
  }
  EXPECT_THAT(found, ElementsAre(text));
  EXPECT_FALSE(unread.may_have("sift:/t"));
  EXPECT_EQ(unread.next_deadline(), never);
}

TEST(Identity, OfAnotherUserIsForged) {
  const FrameMemory memory{service::BufferCache::make({.huge_pages = false}), user};
  EXPECT_EQ(read_identity(identity_object(5, user, text, memory), user)->incarnation, 5u);
  EXPECT_EQ(read_identity(identity_object(5, 0, text, memory), user).error().code, Error::denied);
}

}  // namespace
}  // namespace offpath::sift
