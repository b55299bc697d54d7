#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace offpath {
namespace {

std::vector<std::byte> filled(std::size_t size, int first, int step) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i) * step);
  return bytes;
}

struct Vector {
  std::vector<std::byte> bytes;
  std::uint32_t crc;
};

// RFC 3720 B.4, and the check value of the polynomial's catalogue entry.
std::vector<Vector> known_vectors() {
  Bytes digits = bytes_of("123456789");
  return {
      {filled(32, 0x00, 0), 0x8A9136AA},
      {filled(32, 0xFF, 0), 0x62A8AB43},
      {filled(32, 0x00, 1), 0x46DD794E},
      {filled(32, 0x1F, -1), 0x113FDB5C},
      {{digits.begin(), digits.end()}, 0xE3069283},
      {{}, 0},
  };
}

TEST(Crc32c, KnownVectors) {
  for (const Vector& known : known_vectors()) {
    EXPECT_EQ(crc32c(known.bytes), known.crc);
    EXPECT_EQ(crc32c_by_table(known.bytes), known.crc);
  }
}

TEST(Crc32c, InstructionEqualsTableAtEveryLengthAndOffset) {
  std::mt19937 random(1);
  std::array<std::byte, 300> bytes;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t offset = 0; offset < 9; ++offset) {
    for (std::size_t length = 0; length + offset <= bytes.size(); ++length) {
      Bytes part = Bytes(bytes).subspan(offset, length);
      auto seed = static_cast<std::uint32_t>(random());
      ASSERT_EQ(crc32c(part, seed), crc32c_by_table(part, seed)) << "offset " << offset << ", length " << length;
    }
  }
}

TEST(Crc32c, SeedContinues) {
  std::vector<std::byte> bytes = filled(100, 3, 7);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    std::uint32_t first = crc32c(Bytes(bytes).first(cut));
    EXPECT_EQ(crc32c(Bytes(bytes).subspan(cut), first), crc32c(bytes));
  }
}

TEST(Crc32c, EveryFlippedBitShows) {
  std::vector<std::byte> bytes = filled(64, 0, 5);
  std::uint32_t whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_NE(crc32c(bytes), whole);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

TEST(AlignUp, RoundsToTheNextMultiple) {
  EXPECT_EQ(align_up(0, 4096), 0u);
  EXPECT_EQ(align_up(1, 4096), 4096u);
  EXPECT_EQ(align_up(4096, 4096), 4096u);
  EXPECT_EQ(align_up(4097, 4096), 8192u);
  EXPECT_EQ(align_up(7, 1), 7u);
}

TEST(Checked, OverflowIsSeen) {
  constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t result = 0;
  EXPECT_TRUE(checked_add(largest - 1, 1, result));
  EXPECT_EQ(result, largest);
  EXPECT_FALSE(checked_add(largest, 1, result));
  EXPECT_TRUE(checked_mul(1ULL << 32, (1ULL << 32) - 1, result));
  EXPECT_EQ(result, largest - ((1ULL << 32) - 1));
  EXPECT_FALSE(checked_mul(1ULL << 32, 1ULL << 32, result));
}

TEST(LoadAndStore, WorkAtAnyAddress) {
  std::array<std::byte, 16> bytes{};
  for (std::size_t offset = 0; offset < 8; ++offset) {
    store(bytes.data() + offset, std::uint64_t{0x0102030405060708});
    EXPECT_EQ(load<std::uint64_t>(bytes.data() + offset), 0x0102030405060708u);
    EXPECT_EQ(load<std::uint8_t>(bytes.data() + offset), 0x08) << "little endian";
  }
}

TEST(Text, BytesOfTextAreItsLetters) {
  std::string text("a\0b", 3);
  EXPECT_EQ(bytes_of(text).size(), 3u);
  EXPECT_EQ(text_of(bytes_of(text)), text);
}

}  // namespace
}  // namespace offpath
