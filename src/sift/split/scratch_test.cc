#include "sift/split/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace offpath::sift {
namespace {

TEST(Scratch, GivesWhatWasAskedForOneAfterTheOther) {
  Scratch scratch = Scratch::take(Scratch::bytes_of<std::uint64_t>(1001) + Scratch::bytes_of<std::byte>(3)).value();
  const std::span<std::uint64_t> numbers = scratch.next<std::uint64_t>(1001);
  const std::span<std::byte> bytes = scratch.next<std::byte>(3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.data()) % (2u << 20), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64, 0u);
  std::ranges::fill(numbers, ~0ull);
  std::ranges::fill(bytes, std::byte{1});
  EXPECT_EQ(std::ranges::count(numbers, ~0ull), 1001);
}

TEST(Scratch, StaysForTheNextJobOfItsThread) {
  const auto where = [](std::uint64_t bytes) { return Scratch::take(bytes).value().next<std::byte>(1).data(); };
  const std::byte* const first = where(5u << 20);
  EXPECT_EQ(where(6u << 20), first);
  EXPECT_EQ(where(1), first);
  const Scratch nested = Scratch::take(1).value();
  EXPECT_NE(where(1), first);
}

TEST(Scratch, WhatTheMachineDoesNotHaveIsAnError) {
  const auto refused = Scratch::take(1ull << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::no_memory) << refused.error().message;
}

}  // namespace
}  // namespace offpath::sift
