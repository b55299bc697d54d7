#include "frame/adjust.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/bytes.h"

namespace offpath::frame {
namespace {

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

bool bit(const std::vector<std::byte>& bytes, std::size_t at) {
  return (std::to_integer<unsigned>(bytes[at / 8]) >> (at % 8) & 1) != 0;
}

TEST(Adjust, ShiftsBitsOfEveryOffsetAndLength) {
  for (unsigned offset = 0; offset < 8; ++offset) {
    for (std::uint64_t count = 1; count < 300; ++count) {
      const std::size_t source_bytes = (count + offset + 7) / 8;
      const std::vector<std::byte> before = random_bytes(source_bytes + 1, static_cast<unsigned>(count * 8 + offset));
      std::vector<std::byte> after = before;
      shift_bits(after.data(), offset, count);
      for (std::uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(bit(after, i), bit(before, i + offset)) << offset << " " << count;
      for (std::uint64_t i = count; i < source_bytes * 8; ++i) ASSERT_FALSE(bit(after, i)) << offset << " " << count;
      ASSERT_EQ(after[source_bytes], before[source_bytes]);
    }
  }
}

TEST(Adjust, CountsZeroBits) {
  const std::vector<std::byte> bytes = random_bytes(64, 1);
  std::uint64_t zeros = 0;
  for (std::uint64_t count = 0; count <= 512; ++count) {
    EXPECT_EQ(count_zero_bits(bytes.data(), count), zeros) << count;
    if (count < 512) zeros += !bit(bytes, count);
  }
}

template <class Offset>
void check_rebase(void (*rebase)(std::byte*, std::uint64_t, std::make_unsigned_t<Offset>)) {
  for (std::uint64_t count : {0, 1, 3, 4, 17, 1000}) {
    std::vector<std::byte> bytes(count * sizeof(Offset) + 1);
    std::byte* offsets = bytes.data() + 1;  // at an odd address
    const Offset base = std::numeric_limits<Offset>::max() - 5000;
    for (std::uint64_t i = 0; i < count; ++i)
      store(offsets + i * sizeof(Offset), static_cast<Offset>(base + static_cast<Offset>(i * 3)));
    rebase(offsets, count, static_cast<std::make_unsigned_t<Offset>>(base));
    for (std::uint64_t i = 0; i < count; ++i)
      ASSERT_EQ(load<Offset>(offsets + i * sizeof(Offset)), static_cast<Offset>(i * 3));
  }
}

TEST(Adjust, Rebases) {
  check_rebase<std::int32_t>(rebase32);
  check_rebase<std::int64_t>(rebase64);
}

TEST(Adjust, SeesOffsetsThatDescend) {
  std::vector<std::int32_t> narrow(1000);
  std::vector<std::int64_t> wide(1000);
  for (std::size_t i = 0; i < 1000; ++i)
    narrow[i] = static_cast<std::int32_t>(wide[i] = static_cast<std::int64_t>(i / 2));
  const auto ascend = [&] {
    const bool first = offsets_ascend32(reinterpret_cast<const std::byte*>(narrow.data()), narrow.size());
    const bool second = offsets_ascend64(reinterpret_cast<const std::byte*>(wide.data()), wide.size());
    EXPECT_EQ(first, second);
    return first;
  };
  EXPECT_TRUE(ascend());
  for (const std::size_t at : {0, 1, 500, 999}) {
    narrow[at] -= 2;
    wide[at] -= 2;
    EXPECT_FALSE(ascend()) << at;
    narrow[at] += 2;
    wide[at] += 2;
  }
  EXPECT_TRUE(offsets_ascend32(nullptr, 0));
}

TEST(Adjust, GathersLanesOfEveryWidth) {
  for (const std::size_t width : {1, 2, 3, 4, 5, 8, 12, 16, 32, 33}) {
    for (const std::size_t gap : {0, 1, 7, 40}) {
      const std::size_t stride = width + gap;
      const std::uint64_t count = 37;
      const std::vector<std::byte> rows = random_bytes(count * stride, 5);
      std::vector<std::byte> target(count * width);
      gather_lane(rows.data(), stride, width, count, target.data());
      for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::memcmp(target.data() + i * width, rows.data() + i * stride, width), 0) << width << " " << stride;
      }
    }
  }
}

void check_split(std::size_t width,
                 void (*split)(const std::byte*, std::uint64_t, std::byte*, std::byte*, std::byte*)) {
  for (std::uint64_t count = 0; count < 40; ++count) {
    const std::vector<std::byte> rows = random_bytes(count * width * 3, static_cast<unsigned>(count));
    std::vector<std::byte> lanes[3];
    for (auto& lane : lanes) lane.resize(count * width + 1, std::byte{0x77});
    split(rows.data(), count, lanes[0].data(), lanes[1].data(), lanes[2].data());
    for (std::uint64_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(std::memcmp(lanes[k].data() + i * width, rows.data() + (i * 3 + k) * width, width), 0)
            << i << " " << k;
      }
    }
    for (const auto& lane : lanes) ASSERT_EQ(lane.back(), std::byte{0x77});
  }
}

TEST(Adjust, SplitsRowsOfThree) {
  check_split(4, split3x4);
  check_split(8, split3x8);
}

TEST(Adjust, PacksBytesIntoBits) {
  for (const std::size_t stride : {1, 2, 5}) {
    for (std::uint64_t count = 1; count < 100; ++count) {
      std::vector<std::byte> rows = random_bytes(count * stride, static_cast<unsigned>(count));
      for (std::size_t i = 0; i < rows.size(); i += 3) rows[i] = std::byte{0};
      if (!rows.empty()) rows[0] = std::byte{0x80};
      std::vector<std::byte> target((count + 7) / 8, std::byte{0xFF});
      pack_bits(rows.data(), stride, count, target.data());
      for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(bit(target, i), rows[i * stride] != std::byte{0}) << i;
      for (std::uint64_t i = count; i < target.size() * 8; ++i) ASSERT_FALSE(bit(target, i));
    }
  }
}

}  // namespace
}  // namespace offpath::frame
