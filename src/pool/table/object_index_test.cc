// The index of objects, without a disk, channels or time.
#include "pool/table/object_index.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

constexpr uid_t user = 1000, other = 1001, root = 0;
using Access = ObjectIndex::Access;

class ObjectIndexTest : public ::testing::Test {
 protected:
  ObjectIndex::Objects::iterator add(const std::string& row, const std::string& column, std::uint64_t bytes) {
    auto frame = std::make_shared<service::Frame>();
    frame->bytes = bytes;
    return index_.add(*pool_, pool_->objects.end(), {row, column}, {std::move(frame), 0, 0, true, {}});
  }
  ObjectIndex index_;
  ObjectIndex::Pool* pool_ = index_.open("p", user, Access::write).value();
};

TEST_F(ObjectIndexTest, APoolBelongsToItsFirstUserAndReadersAreNamed) {
  EXPECT_EQ(index_.open("p", other, Access::read).error().code, Error::denied);
  EXPECT_TRUE(index_.open("p", root, Access::write));
  pool_->options.readers = {other};
  EXPECT_TRUE(index_.existing("p", other, Access::read));
  EXPECT_EQ(index_.existing("p", other, Access::write).error().code, Error::denied);
  EXPECT_EQ(index_.existing("q", user, Access::read).error().code, Error::not_found);
  EXPECT_EQ(index_.pools_of(user), 1u);
  index_.forget("p");
  EXPECT_EQ(index_.pools_of(user), 0u);
}

TEST_F(ObjectIndexTest, ReadersSeeObjectsInTheOrderInWhichTheyWereShown) {
  const auto later = add("a", "x", 1), first = add("b", "y", 2);
  EXPECT_TRUE(ObjectIndex::choose(*pool_, "*", "*").empty()) << "hidden";
  index_.show(*pool_, first);
  index_.show(*pool_, later);
  const auto chosen = ObjectIndex::choose(*pool_, "*", "*");
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].row_key, "b");
  bool more = false;
  const auto one = ObjectIndex::list(*pool_, "*", "*", 0, 1, more);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_TRUE(more);
  const auto rest = ObjectIndex::list(*pool_, "*", "*", one[0].sequence, 1, more);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].row, "a");
  EXPECT_FALSE(more);
}

TEST_F(ObjectIndexTest, WhatIsRemovedIsFreeAndItsPoolIsNamedOnce) {
  const auto hidden = add("a", "xy", 100);
  const auto shown = add("b", "z", 10);
  index_.show(*pool_, shown);
  EXPECT_EQ(index_.bytes(), 110u);
  EXPECT_EQ(index_.key_bytes(), 5u);
  EXPECT_EQ(index_.remove(*pool_, hidden), (ObjectIndex::Keys{"a", "xy"}));
  index_.remove(*pool_, shown);
  EXPECT_EQ(index_.frames() + index_.bytes() + index_.key_bytes() + pool_->bytes, 0u);
  EXPECT_TRUE(pool_->by_sequence.empty());
  EXPECT_FALSE(index_.holds_row("p", "a"));
  EXPECT_EQ(index_.freed(), 2u);
  EXPECT_EQ(index_.take_freed(), (std::set<std::string, std::less<>>{"p"}));
  EXPECT_TRUE(index_.take_freed().empty());
}

}  // namespace
}  // namespace offpath::pool
