#include "wire/messages/function_outputs.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace offpath::wire {
namespace {

TEST(FunctionOutputs, HaveToFitTheirRoomAndAllOfThemTheLimit) {
  FunctionOutputs outputs({{"a", 8}, {"b", 100}}, 50);
  EXPECT_EQ(outputs.admit("a", 9).error().code, Error::too_large);
  EXPECT_EQ(outputs.admit("b", 51).error().code, Error::too_large);
  EXPECT_EQ(outputs.admit("c", 1).error().code, Error::invalid);
  char a = 0, b = 0;
  EXPECT_EQ(outputs.admit("a", 8).value(), std::optional<std::size_t>(0));
  outputs.add("a", 0, &a, 8);
  EXPECT_EQ(outputs.admit("a", 1).error().code, Error::exists);
  EXPECT_EQ(outputs.admit("b", 43).error().code, Error::too_large);
  outputs.add("b", outputs.admit("b", 42).value(), &b, 42);
  EXPECT_EQ(outputs.made()[1].room, std::optional<std::size_t>(1));
}

TEST(FunctionOutputs, WithoutRoomsAnyNameWillDoUnlessThereIsNothingElse) {
  EXPECT_EQ(FunctionOutputs({}, 10).admit("x", 10).value(), std::nullopt);
  EXPECT_EQ(FunctionOutputs({}, 10).admit(std::string(256, 'x'), 1).error().code, Error::too_large);
  EXPECT_EQ(FunctionOutputs({}, 10, true).admit("x", 10).error().code, Error::invalid);
}

TEST(FunctionOutputs, AreMadeShorterAndNeverLonger) {
  FunctionOutputs outputs({}, 10);
  char x = 0, other = 0;
  outputs.add("x", std::nullopt, &x, 10);
  EXPECT_EQ(outputs.shrink(&other, 1), std::nullopt);
  EXPECT_EQ(outputs.shrink(nullptr, 0), std::nullopt);
  EXPECT_EQ(outputs.shrink(&x, 11), std::nullopt);
  EXPECT_EQ(outputs.shrink(&x, 4), std::optional<std::size_t>(0));
  EXPECT_EQ(outputs.made()[0].bytes, 4u);
  EXPECT_TRUE(outputs.admit("y", 6)) << "what it has no more is free";
  EXPECT_FALSE(outputs.admit("y", 7));
}

TEST(FunctionOutputs, WhatIsThrownIsAnError) {
  std::string error;
  EXPECT_EQ(call_guarded([] { return 7; }, error), 7);
  EXPECT_EQ(error, "");
  EXPECT_EQ(call_guarded([]() -> std::int32_t { throw std::runtime_error("no"); }, error), -1);
  EXPECT_EQ(error, "threw: no");
  EXPECT_EQ(call_guarded([]() -> std::int32_t { throw 1; }, error), -1);
  EXPECT_EQ(error, "threw an exception that is not a std::exception");
}

}  // namespace
}  // namespace offpath::wire
