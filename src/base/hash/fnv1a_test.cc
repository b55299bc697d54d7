#include "base/hash/fnv1a.h"

#include <gtest/gtest.h>

namespace offpath {
namespace {

// The test vectors of RFC 9923's authors (test_fnv.c).
TEST(Fnv1a, HasThePublishedValues) {
  EXPECT_EQ(fnv1a(""), 0xCBF2'9CE4'8422'2325u);
  EXPECT_EQ(fnv1a("a"), 0xAF63'DC4C'8601'EC8Cu);
  EXPECT_EQ(fnv1a("foo"), 0xDCB2'7518'FED9'D577u);
  EXPECT_EQ(fnv1a("foobar"), 0x8594'4171'F739'67E8u);
}

TEST(Fnv1a, ContinuesAfterTheTextBefore) { EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar")); }

TEST(Fnv1a, HasNoNegativeBytes) { EXPECT_EQ(fnv1a("\xFF"), (fnv1a_offset_basis ^ 0xFF) * fnv1a_prime); }

}  // namespace
}  // namespace offpath
