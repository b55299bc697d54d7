// The owner of a pool at a member that hears of it by another user's request, or knows another owner.
#include <gtest/gtest.h>

#include <cstring>

#include "pool/members/pools.h"
#include "pool/query/query_service.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber program = 1, member = 2;
constexpr uid_t owner = 1000, reader = 1001, stranger = 1002;
constexpr const char* shared = "hash:/p?members=b&readers=1001";

// Accepts computations and ignores them.
class NoComputes final : public Computes {
 public:
  void begin(FrameTable::Get, ComputationPtr, TimeNs, Effects&) override {}
  void cancel(ChannelNumber, std::uint64_t, Effects&) override {}
  void cancel_request(ChannelNumber, std::uint64_t, Effects&) override {}
  std::vector<Waiting> take_waiting(const std::function<bool(const FrameTable::Get&)>&) override { return {}; }
  void on_shown(const std::string&, const FrameTable::Keys&, const FramePtr&, bool) override {}
};

// Requests of "a" to "b" are delivered when a test says so. "a" knows the pool; its message to "b" about it is lost.
class PoolsOwner : public ::testing::Test {
 protected:
  struct Agent {
    explicit Agent(const std::string& name) {
      pools.set_self(name, 7);
      pools.serve_computes(computes);
    }
    std::shared_ptr<service::BufferCache> cache = service::BufferCache::make({});
    Pools pools{PoolsOptions{}, cache, [](std::uint64_t) { return true; }};
    NoComputes computes;
    QueryService queries{{}, cache, pools};
    Effects effects;
  };
  PoolsOwner() {
    a_.pools.on_channel_open(program, reader);
    a_.queries.on_channel_open(program, reader);
    b_.queries.on_channel_open(member, 0);
    for (Agent* agent : {&a_, &b_}) agent->pools.on_members({"a", "b"}, {}, now_, agent->effects);
  }
  void define(const std::string& pool = shared) {
    ASSERT_TRUE(a_.pools.admit(pool, owner, a_.effects));
    a_.effects.clear();
  }
  template <class Message>
  void ask(EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    const channel::Entry request{++ticket_, static_cast<std::uint8_t>(kind), payload};
    if (kind == EntryKind::pool_query)
      a_.queries.on_request(program, request, false, now_, a_.effects);
    else
      a_.pools.on_request(program, request, now_, a_.effects);
  }
  // Delivers the last request of "a" to "b". Returns the reason of a refusal, or an empty text.
  std::string deliver() {
    std::optional<service::AskEffect> asked;
    for (const service::Effect& effect : a_.effects)
      if (const auto* each = std::get_if<service::AskEffect>(&effect)) asked = *each;
    a_.effects.clear();
    if (!asked) return "nothing was asked";
    std::vector<std::byte> payload;
    asked->compose({.bytes = {.region = 1, .generation = 1, .offset = 0, .length = asked->body.size()}}, payload);
    const channel::Entry request{++ticket_, static_cast<std::uint8_t>(asked->kind), payload};
    if (asked->kind == EntryKind::peer_query) {
      b_.queries.on_request(member, request, true, now_, b_.effects);
      const auto* const pull = std::get_if<service::PullEffect>(&b_.effects.back());
      std::memcpy(pull->pieces.at(0).to, asked->body.data(), asked->body.size());
      b_.queries.on_transfer(pull->token, {}, now_, b_.effects);
    } else {
      b_.pools.on_peer_request(member, request, true, now_, b_.effects);
    }
    std::string why;
    for (const service::Effect& effect : b_.effects)
      if (const auto* failed = std::get_if<service::FailEffect>(&effect)) why = failed->failure.message;
    b_.effects.clear();
    return why;
  }
  // The pool's owner at "b", if "b" knows the pool.
  std::optional<uid_t> owner_there() {
    const auto pools = b_.pools.pools();
    return pools.size() == 1 ? std::optional(pools.front().user) : std::nullopt;
  }
  FramePtr frame() {
    auto made = std::make_shared<service::Frame>();
    made->buffer = *a_.cache->take(8, owner);
    made->bytes = 8;
    return made;
  }
  Agent a_{"a"}, b_{"b"};
  TimeNs now_ = second_ns;
  std::uint64_t ticket_ = 0;
};

TEST_F(PoolsOwner, AReadersGetLeavesThePoolItsOwners) {
  define();
  ask(EntryKind::pool_get, wire::PoolGet{"hash:/p", "r", "c", -1});
  EXPECT_EQ(deliver(), "");
  EXPECT_EQ(owner_there(), owner);
}

TEST_F(PoolsOwner, AReadersComputationLeavesThePoolItsOwners) {
  define();
  wire::PoolCompute compute{};
  compute.pool = "hash:/p";
  compute.row_key = "r";
  compute.column_key = "c";
  compute.wait_ns = -1;
  compute.plugin = "plugin";
  compute.function = "f";
  ask(EntryKind::pool_compute, compute);
  EXPECT_EQ(deliver(), "");
  EXPECT_EQ(owner_there(), owner);
}

TEST_F(PoolsOwner, AReadersQueryLeavesThePoolItsOwners) {
  define();
  const auto bytes = encode(Query{});
  ask(EntryKind::pool_query, wire::PoolQuery{.pool = "hash:/p",
                                             .row_glob = "*",
                                             .column_glob = "*",
                                             .wait_ns = -1,
                                             .query = {.region = 1, .length = bytes.size()}});
  const auto* const pull = std::get_if<service::PullEffect>(&a_.effects.back());
  ASSERT_NE(pull, nullptr);
  std::memcpy(pull->pieces.at(0).to, bytes.data(), bytes.size());
  a_.queries.on_transfer(pull->token, {}, now_, a_.effects);
  EXPECT_EQ(deliver(), "");
  EXPECT_EQ(owner_there(), owner);
}

TEST_F(PoolsOwner, APutOfRootLeavesThePoolItsOwners) {
  define();
  ASSERT_TRUE(a_.pools.put({"hash:/p", "r", "c", 0, 0, false}, frame(), 5, now_, a_.effects));
  EXPECT_EQ(deliver(), "");
  EXPECT_EQ(owner_there(), owner);
}

TEST_F(PoolsOwner, AnEndOfAStepLeavesThePoolItsOwners) {
  define();
  ASSERT_TRUE(a_.pools.admit("hash:/p", 0, a_.effects)) << "root's stream";
  ASSERT_TRUE(a_.pools.end_step("hash:/p", "r", 0, 2, now_, a_.effects));
  EXPECT_EQ(deliver(), "");
  EXPECT_EQ(owner_there(), owner);
}

TEST_F(PoolsOwner, WhoMayNotReadIsRefusedByAMemberThatHearsOfThePoolSo) {
  define("hash:/p?members=b");
  ask(EntryKind::pool_get, wire::PoolGet{"hash:/p", "r", "c", -1});
  EXPECT_EQ(deliver(), "pool \"hash:/p\" belongs to user 1000, not to user 1001, who is not among its readers");
  EXPECT_EQ(owner_there(), owner);
}

TEST_F(PoolsOwner, AMemberThatKnowsItAsAnothersKeepsItSoAndSaysBoth) {
  define();
  ASSERT_TRUE(b_.pools.admit(shared, stranger, b_.effects));
  b_.effects.clear();
  const std::string both =
      "pool \"hash:/p\" belongs to user 1002 at member b, and to user 1000 at the member that asks";
  ask(EntryKind::pool_get, wire::PoolGet{"hash:/p", "r", "c", -1});
  EXPECT_EQ(deliver(), both) << "its readers are those of both";
  ASSERT_TRUE(a_.pools.put({"hash:/p", "r", "c", 0, 0, false}, frame(), 5, now_, a_.effects));
  EXPECT_EQ(deliver(), both) << "though root may use both";
  EXPECT_EQ(owner_there(), stranger);
}

}  // namespace
}  // namespace offpath::pool
