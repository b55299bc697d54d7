#include "link/lasting_memory.h"

#include <gtest/gtest.h>

#include <array>

namespace offpath::link {
namespace {

TEST(LastingMemory, IsFoundByAnyOfItsBytesAndByNoOther) {
  std::array<std::byte, 300> memory{};
  LastingMemory lasting;
  EXPECT_FALSE(lasting.find(memory.data()));
  lasting.add(memory.data() + 100, 100);
  EXPECT_FALSE(lasting.find(memory.data() + 99));
  for (const std::size_t inside : {100u, 150u, 199u}) {
    const auto found = lasting.find(memory.data() + inside);
    ASSERT_TRUE(found) << inside;
    EXPECT_EQ(found->begin, memory.data() + 100);
    EXPECT_EQ(found->length, 100u);
  }
  EXPECT_FALSE(lasting.find(memory.data() + 200));
}

TEST(LastingMemory, TheSameAddressGetsAnotherNumber) {
  std::array<std::byte, 100> memory{};
  LastingMemory lasting;
  lasting.add(memory.data(), 100);
  const std::uint64_t first = lasting.find(memory.data())->number;
  EXPECT_TRUE(lasting.has(first));
  const std::uint64_t removals = lasting.removals();
  lasting.remove(memory.data());
  EXPECT_FALSE(lasting.find(memory.data()));
  EXPECT_FALSE(lasting.has(first));
  EXPECT_NE(lasting.removals(), removals);
  lasting.add(memory.data(), 100);
  EXPECT_NE(lasting.find(memory.data())->number, first);
  lasting.remove(memory.data() + 1);  // no memory begins there
  EXPECT_TRUE(lasting.find(memory.data()));
}

}  // namespace
}  // namespace offpath::link
