// Which members own a pool's rows as members come and go, and which pools make room for others.
#include "pool/peers/directory.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

constexpr uid_t user = 1000;

class Listener final : public Directory::Users {
 public:
  void on_pool_made(const Definition& pool, uid_t /*user*/, bool by_program, TimeNs /*now*/,
                    Effects& /*effects*/) override {
    made.push_back(pool.text + (by_program ? " by a program" : ""));
  }
  void on_pool_gone(const std::string& pool) override { gone.push_back(pool); }
  void add_in_use(std::set<std::string_view>& pools) const override { pools.insert(used.begin(), used.end()); }
  [[nodiscard]] bool has_moves(const std::string& /*pool*/) const override { return moves; }
  [[nodiscard]] bool is_settling() const override { return false; }

  std::vector<std::string> made, gone;
  std::set<std::string> used;
  bool moves = false;
};

class PoolDirectory : public ::testing::Test {
 protected:
  static PoolsOptions two_pools() {
    PoolsOptions made;
    made.table.user_pools_max = 2;
    return made;
  }
  PoolDirectory() {
    directory_.set_self("a");
    directory_.change_members({"a", "b", "c"}, 0);
  }
  Status define(const std::string& text, TimeNs now = 0, Directory::By by = Directory::By::program) {
    const auto made = directory_.define(text, user, Directory::Access::write, by, now, effects_);
    return made ? Status{} : tl::unexpected(made.error());
  }

  PoolsOptions options_ = two_pools();
  FrameTable table_{options_.table};
  Listener listener_;
  Directory directory_{options_, table_, listener_};
  Effects effects_;
};

TEST_F(PoolDirectory, APoolIsMadeOnceAndFoundByItsNameWithOrWithoutOptions) {
  ASSERT_TRUE(define("hash:/p?members=b,c"));
  ASSERT_TRUE(define("hash:/p"));
  EXPECT_EQ(listener_.made, std::vector<std::string>{"hash:/p?members=b,c by a program"});
  const auto found = directory_.find("hash:/p");
  ASSERT_TRUE(found);
  ASSERT_NE(*found, nullptr);
  EXPECT_EQ((*found)->members, (std::vector<std::string>{"b", "c"}));
  EXPECT_TRUE(directory_.is_elsewhere(**found));
  EXPECT_FALSE(directory_.owns(**found, "r"));
  const auto other = directory_.find("hash:/p?members=b", user);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Error::exists);
}

TEST_F(PoolDirectory, APoolWithCopiesLosesRowsOnlyWhenAsManyMembersGoBeforeRowsHaveMoved) {
  ASSERT_TRUE(define("hash:/p?replicas=2"));
  const Definition* const pool = directory_.known("hash:/p");
  ASSERT_NE(pool, nullptr);
  directory_.change_members({"a", "b"}, 0);
  EXPECT_EQ(pool->missed, std::vector<std::string>{"c"});
  EXPECT_EQ(pool->before, (std::vector<std::string>{"a", "b", "c"}));
  directory_.change_members({"a"}, 0);
  EXPECT_TRUE(pool->lost.empty()) << "its rows had moved meanwhile";
  directory_.change_members({"a", "b", "c"}, 0);
  listener_.moves = true;
  directory_.change_members({"a", "b"}, 0);
  directory_.change_members({"a"}, 0);
  EXPECT_EQ(pool->lost, (std::vector<std::string>{"c", "b"}));
  directory_.change_members({"a", "b", "c"}, 0);
  EXPECT_TRUE(pool->lost.empty()) << "a member that is back has what it has";
}

TEST_F(PoolDirectory, ALocalPoolLiesOnTheCoresOfItsAgentAndOnNoOtherMember) {
  directory_.set_self("a");
  directory_.set_cores({"a", "a+1"});
  directory_.change_members({"a", "a+1", "b", "b+1"}, 0);
  ASSERT_TRUE(define("local:/p?budget=1MiB"));
  const Definition* const pool = directory_.known("local:/p");
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->members, (std::vector<std::string>{"a", "a+1"}));
  EXPECT_TRUE(directory_.is_elsewhere(*pool));
  EXPECT_FALSE(directory_.is_own(*pool));
  EXPECT_EQ(directory_.others_of(*pool), std::vector<std::string>{"a+1"});
  EXPECT_EQ(listener_.made, std::vector<std::string>{"local:/p?budget=1048576 by a program"})
      << "the other core is told";
  EXPECT_TRUE(directory_.may_be_named("local:/p"));
  EXPECT_TRUE(table_.may_put({"local:/p", "row", "", user, 0, false}, 1 << 19, {}));
  EXPECT_EQ(table_.may_put({"local:/p", "row", "", user, 0, false}, (1 << 19) + 1, {}).error().code, Error::too_large)
      << "the cores share the budget";
  directory_.change_members({"a", "b", "b+1"}, 0);
  EXPECT_EQ(pool->members, std::vector<std::string>{"a"});
  EXPECT_FALSE(directory_.is_elsewhere(*pool)) << "while the other core is away, this one has all";
  ASSERT_TRUE(define("hash:/p"));
  EXPECT_EQ(directory_.others_of(*directory_.known("hash:/p")), (std::vector<std::string>{"b", "b+1"}));
}

TEST_F(PoolDirectory, ALocalPoolOfAServiceStaysOnItsCore) {
  directory_.set_self("a");
  directory_.set_cores({"a", "a+1"});
  directory_.change_members({"a", "a+1", "b"}, 0);
  ASSERT_TRUE(define("local:/t.kept-1234?spill=off"));
  const Definition* const pool = directory_.known("local:/t.kept-1234");
  ASSERT_NE(pool, nullptr);
  EXPECT_TRUE(directory_.is_own(*pool));
  EXPECT_FALSE(directory_.is_elsewhere(*pool));
  for (const char* const row : {"a", "a+1", "b", "other"})
    EXPECT_EQ(Directory::owners(*pool, row), std::vector<std::string>{"a"}) << row;
  EXPECT_TRUE(directory_.others_of(*pool).empty());
  EXPECT_TRUE(listener_.made.empty()) << "no other core is told";
  EXPECT_EQ(directory_.may_be_named("local:/t.kept-1234?spill=off").error().code, Error::denied);
  directory_.change_members({"a", "b"}, 0);
  directory_.change_members({"a", "a+1", "b"}, 0);
  EXPECT_EQ(pool->members, std::vector<std::string>{"a"});
}

// It was made when these agents had one core each.
TEST_F(PoolDirectory, APoolOfAServiceLiesOnTheMembersThatItNamesAndNotOnTheirCores) {
  directory_.change_members({"a", "a+1", "b", "b+1"}, 0);
  ASSERT_TRUE(define("hash:/t.kept-1234?members=a,b&replicas=2"));
  ASSERT_TRUE(define("hash:/p?members=a,b"));
  const Definition* const kept = directory_.known("hash:/t.kept-1234");
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->members, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(directory_.known("hash:/p")->members, (std::vector<std::string>{"a", "a+1", "b", "b+1"}));
  directory_.change_members({"a", "a+1", "b+1"}, 0);
  EXPECT_EQ(kept->members, std::vector<std::string>{"a"});
}

TEST_F(PoolDirectory, ALocalPoolOfAnAgentWithOneCoreIsNamedByNobodyElse) {
  ASSERT_TRUE(define("local:/p"));
  const Definition* const pool = directory_.known("local:/p");
  ASSERT_NE(pool, nullptr);
  EXPECT_TRUE(directory_.is_own(*pool));
  EXPECT_EQ(pool->members, std::vector<std::string>{"a"});
  EXPECT_TRUE(directory_.others_of(*pool).empty());
  EXPECT_TRUE(listener_.made.empty());
  EXPECT_EQ(directory_.may_be_named("local:/p").error().code, Error::denied);
}

TEST_F(PoolDirectory, CoresOfOneAgentThatGoCountOnce) {
  directory_.change_members({"a", "b", "b+1", "c"}, 0);
  ASSERT_TRUE(define("hash:/p?replicas=2"));
  listener_.moves = true;
  directory_.change_members({"a", "c"}, 0);
  EXPECT_TRUE(directory_.known("hash:/p")->lost.empty()) << "no row had both copies on b";
  directory_.change_members({"a"}, 0);
  EXPECT_EQ(directory_.known("hash:/p")->lost.size(), 3u);
}

TEST_F(PoolDirectory, AtTheLimitTheFirstNamedOfTheUnusedPoolsGoes) {
  ASSERT_TRUE(define("local:/first", 1));
  ASSERT_TRUE(define("local:/second", 2));
  listener_.used = {"local:/first", "local:/second"};
  EXPECT_EQ(define("local:/third", 3).error().code, Error::too_large);
  listener_.used = {"local:/first"};
  EXPECT_FALSE(define("local:/third", 4)) << "another look within a second costs the loop too much";
  ASSERT_TRUE(define("local:/third", 4 + 2 * second_ns));
  EXPECT_EQ(listener_.gone, std::vector<std::string>{"local:/second"});
  EXPECT_NE(directory_.known("local:/first"), nullptr);
  EXPECT_EQ(directory_.known("local:/second"), nullptr);
}

TEST_F(PoolDirectory, AMembersPoolBelongsToTheOwnerThatItNames) {
  const auto made = directory_.define_of_member("hash:/p", user, 0, Directory::Access::write, 0, effects_);
  ASSERT_TRUE(made);
  EXPECT_EQ(table_.user_of("hash:/p"), user);
  EXPECT_EQ(listener_.made, std::vector<std::string>{"hash:/p"});
  const auto other = directory_.define_of_member("hash:/p", user + 1, 0, Directory::Access::write, 0, effects_);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Error::exists);
}

}  // namespace
}  // namespace offpath::pool
