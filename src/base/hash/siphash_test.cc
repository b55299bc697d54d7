#include "base/hash/siphash.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace offpath {
namespace {

constexpr std::array<std::uint8_t, 16> key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

std::array<std::uint8_t, 64> counting() {
  std::array<std::uint8_t, 64> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  return bytes;
}

std::string tag_of(std::size_t length) {
  std::array<std::uint8_t, 16> tag{};
  ofp_siphash128(key.data(), counting().data(), length, tag.data());
  std::string text;
  for (const std::uint8_t byte : tag) {
    constexpr const char* digits = "0123456789abcdef";
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

// vectors.h of the reference implementation (github.com/veorq/SipHash); 15 bytes is the example of the paper's appendix
// A.
TEST(SipHash, AgreesWithThePublishedVectors) {
  EXPECT_EQ(ofp_siphash64(key.data(), counting().data(), 0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(ofp_siphash64(key.data(), counting().data(), 1), 0x74f839c593dc67fdu);
  EXPECT_EQ(ofp_siphash64(key.data(), counting().data(), 8), 0x93f5f5799a932462u);
  EXPECT_EQ(ofp_siphash64(key.data(), counting().data(), 15), 0xa129ca6149be45e5u);
  EXPECT_EQ(ofp_siphash64(key.data(), counting().data(), 63), 0x958a324ceb064572u);
  EXPECT_EQ(tag_of(0), "a3817f04ba25a8e66df67214c7550293");
  EXPECT_EQ(tag_of(1), "da87c1d86b99af44347659119b22fc45");
  EXPECT_EQ(tag_of(15), "5493e99933b0a8117e08ec0f97cfc3d9");
  EXPECT_EQ(tag_of(63), "5150d1772f50834a503e069a973fbd7c");
}

TEST(SipHash, EveryBitOfKeyAndBytesCounts) {
  const auto bytes = counting();
  const std::uint64_t whole = ofp_siphash64(key.data(), bytes.data(), 24);
  for (std::size_t bit = 0; bit < 24 * 8; ++bit) {
    auto other = bytes;
    other[bit / 8] = static_cast<std::uint8_t>(other[bit / 8] ^ 1u << bit % 8);
    EXPECT_NE(ofp_siphash64(key.data(), other.data(), 24), whole) << bit;
  }
  for (std::size_t bit = 0; bit < 128; ++bit) {
    auto other = key;
    other[bit / 8] = static_cast<std::uint8_t>(other[bit / 8] ^ 1u << bit % 8);
    EXPECT_NE(ofp_siphash64(other.data(), bytes.data(), 24), whole) << bit;
  }
}

}  // namespace
}  // namespace offpath
