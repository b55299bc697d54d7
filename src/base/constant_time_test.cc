#include "base/constant_time.h"

#include <gtest/gtest.h>

namespace offpath {
namespace {

bool equal(std::string_view secret, std::string_view given) {
  return equal_in_constant_time(bytes_of(secret), bytes_of(given));
}

TEST(ConstantTime, OnlyTheSameBytesAreEqual) {
  EXPECT_TRUE(equal("token", "token"));
  EXPECT_FALSE(equal("token", "tokem"));
  EXPECT_FALSE(equal("token", "Token"));
  EXPECT_TRUE(equal("", ""));
}

TEST(ConstantTime, OtherLengthsAreNotEqual) {
  EXPECT_FALSE(equal("token", "token2"));
  EXPECT_FALSE(equal("token", "toke"));
  EXPECT_FALSE(equal("aaaa", "aa")) << "a repetition";
  EXPECT_FALSE(equal("token", ""));
  EXPECT_FALSE(equal("", "token"));
}

}  // namespace
}  // namespace offpath
