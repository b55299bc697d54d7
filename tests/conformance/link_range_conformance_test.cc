// Ranges: application memory read where it lies, over every link that can; refused over those that cannot.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "link_pair.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RangeConformance : public OverEveryLink {
 protected:
  void SetUp() override {
    OFP_NEEDS_RANGES();
    OverEveryLink::SetUp();
  }
};
INSTANTIATE_TEST_SUITE_P(, RangeConformance,
                         testing::ValuesIn(links_where([](const LinkKind& kind) { return kind.ranges; })), kind_name);

// Memory that is not pinned: 9 GiB of address space cost nothing to announce, pages can go, and the program's own
// rights decide what can be read.
class UnpinnedConformance : public RangeConformance {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnpinnedConformance);
INSTANTIATE_TEST_SUITE_P(, UnpinnedConformance, testing::ValuesIn(links_where([](const LinkKind& kind) {
                           return kind.ranges && !kind.pinned;
                         })),
                         kind_name);

// Address space that costs memory only where it is touched.
class Mapping {
 public:
  explicit Mapping(std::uint64_t length) : length_(length) {
    data_ = bytes(::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    OFP_ASSERT(data_ != MAP_FAILED);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data_, length_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t length() const { return length_; }
  // Nothing can be read there any more, and no other thread's mapping can come to lie there.
  void drop(std::uint64_t offset, std::uint64_t length) const {
    OFP_ASSERT(::mmap(data_ + offset, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
  }

 private:
  std::byte* data_;
  std::uint64_t length_;
};

TEST_P(RangeConformance, OnePieceOfAnySizeAnywhere) {
  const auto array = pattern(2'000'000, 1);
  ASSERT_TRUE(pair->announce_range(1, 1, array.data(), array.size()));
  std::vector<std::byte> seen(array.size() + 2);
  for (const std::uint64_t length : {1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 262'144u, 1'999'000u}) {
    for (const std::uint64_t offset : {0u, 1u, 777u}) {
      std::ranges::fill(seen, std::byte{0});
      ASSERT_TRUE(pair->read({1, 1, offset, seen.data() + 1, length}));
      ASSERT_TRUE(std::equal(seen.begin() + 1, seen.begin() + 1 + static_cast<std::ptrdiff_t>(length),
                             array.begin() + static_cast<std::ptrdiff_t>(offset)))
          << length << " bytes at " << offset;
      ASSERT_EQ(seen[0], std::byte{0});
      ASSERT_EQ(seen[length + 1], std::byte{0}) << "beyond " << length << " bytes at " << offset;
    }
  }
}

TEST_P(RangeConformance, APlanOfManyPieces) {
  // More pieces than one system call takes (IOV_MAX is 1024), out of two arrays and a segment, of lengths from 0 on, in
  // no order, into one buffer.
  const std::array<std::vector<std::byte>, 2> arrays{pattern(700'000, 1), pattern(500'000, 2)};
  ASSERT_TRUE(pair->announce_range(1, 3, arrays[0].data(), arrays[0].size()));
  ASSERT_TRUE(pair->announce_range(2, 4, arrays[1].data(), arrays[1].size()));
  const auto in_segment = pattern(small_layout.total_bytes(), 3);
  std::ranges::copy(in_segment, host().channel_memory().begin());
  std::vector<ReadPiece> pieces;
  std::vector<std::byte> expected;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::uint64_t which = i % 7 == 0 ? 2 : i % 2;
    const std::vector<std::byte>& source = which == 2 ? in_segment : arrays[which];
    const std::uint64_t length = i % 11 == 0 ? 0 : i * 37 % 400;
    const std::uint64_t offset = i * 7919 % (source.size() - 400);
    pieces.push_back({which == 2 ? wire::channel_segment : static_cast<RegionId>(which + 1),
                      which == 2 ? 0 : static_cast<std::uint32_t>(which + 3), offset, nullptr, length});
    expected.insert(expected.end(), source.begin() + static_cast<std::ptrdiff_t>(offset),
                    source.begin() + static_cast<std::ptrdiff_t>(offset + length));
  }
  std::vector<std::byte> seen(expected.size());
  std::uint64_t at = 0;
  for (ReadPiece& piece : pieces) {
    piece.to = seen.data() + at;
    at += piece.length;
  }
  ASSERT_TRUE(pair->read(pieces));
  EXPECT_EQ(seen, expected);
}

TEST_P(RangeConformance, PiecesThatAdjoinAndPiecesThatOverlap) {
  const auto array = pattern(10'000, 1);
  ASSERT_TRUE(pair->announce_range(1, 1, array.data(), array.size()));
  std::vector<std::byte> seen(8'000);
  const std::array<ReadPiece, 4> pieces{{{1, 1, 0, seen.data(), 2'000},
                                         {1, 1, 2'000, seen.data() + 2'000, 2'000},
                                         {1, 1, 1'000, seen.data() + 4'000, 2'000},
                                         {1, 1, 1'000, seen.data() + 6'000, 2'000}}};
  ASSERT_TRUE(pair->read(pieces));
  EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + 4'000, array.begin()));
  EXPECT_TRUE(std::equal(seen.begin() + 4'000, seen.begin() + 6'000, array.begin() + 1'000));
  EXPECT_TRUE(std::equal(seen.begin() + 6'000, seen.end(), array.begin() + 1'000));
}

TEST_P(UnpinnedConformance, OffsetsBeyondFourGibibytes) {
  const Mapping array(9ull << 30);
  ASSERT_TRUE(pair->announce_range(1, 1, array.data(), array.length()));
  std::vector<ReadPiece> pieces;
  std::array<std::uint64_t, 9> seen{};
  for (std::uint64_t i = 0; i < seen.size(); ++i) {
    const std::uint64_t offset = ((i + 1) << 30) - 8;
    store<std::uint64_t>(array.data() + offset, i + 100);
    pieces.push_back({1, 1, offset, bytes(&seen[i]), 8});
  }
  ASSERT_TRUE(pair->read(pieces));
  for (std::uint64_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i + 100);
}

TEST_P(RangeConformance, AGibibyteInManyPieces) {
  // The same megabyte a thousand times, a column each time: the bytes cross, but little memory is needed.
  constexpr std::uint64_t mebibyte = 1 << 20;
  const auto array = pattern(mebibyte, 1);
  ASSERT_TRUE(pair->announce_range(1, 1, array.data(), array.size()));
  std::vector<std::byte> seen(mebibyte);
  for (int operation = 0; operation < 16; ++operation) {
    std::ranges::fill(seen, std::byte{0});
    std::vector<ReadPiece> pieces(64, {1, 1, 0, seen.data(), mebibyte});
    ASSERT_TRUE(pair->read(pieces));
    ASSERT_EQ(seen, array);
  }
}

TEST_P(RangeConformance, WhatIsRefused) {
  const auto array = pattern(4096, 1);
  const auto base = reinterpret_cast<std::uint64_t>(array.data());
  ASSERT_TRUE(pair->announce_range(6, 8, array.data(), array.size()));
  std::array<std::byte, 16> to{};
  const struct {
    ReadPiece piece;
    Error code;
    std::vector<std::string> parts;
  } cases[] = {
      {{5, 8, 0, to.data(), 1}, Error::unannounced, {"range 5"}},
      {{1'000'000, 1, 0, to.data(), 1}, Error::unannounced, {"range 1000000"}},
      {{0x7FFF'FFFF, 1, 0, to.data(), 1}, Error::unannounced, {"range 2147483647"}},
      {{6, 7, 0, to.data(), 1}, Error::stale, {"range 6", "7", "8"}},
      {{6, 9, 0, to.data(), 1}, Error::stale, {"range 6", "9", "8"}},
      {{6, 8, 4090, to.data(), 7}, Error::too_large, {"range 6", "4090", "7", "4096"}},
      {{6, 8, 4097, to.data(), 0}, Error::too_large, {"range 6", "4097", "4096"}},
      {{6, 8, UINT64_MAX, to.data(), 2}, Error::too_large, {"range 6", "4096"}},
      {{6, 8, UINT64_MAX - base, to.data(), 8}, Error::too_large, {"range 6", "4096"}},
  };
  for (const auto& one : cases) {
    const auto read = pair->read(one.piece);
    expect_error(read, one.code);
    for (const std::string& part : one.parts) EXPECT_THAT(read.error().message, HasSubstr(part));
  }
  ASSERT_TRUE(pair->read({6, 8, 4080, to.data(), 16}));
  EXPECT_TRUE(std::equal(to.begin(), to.end(), array.begin() + 4080));
  expect_usable();
}

TEST_P(RangeConformance, ANewGenerationReplacesTheOld) {
  const auto before = pattern(1000, 1), after = pattern(2000, 2);
  ASSERT_TRUE(pair->announce_range(6, 1, before.data(), before.size()));
  ASSERT_TRUE(pair->announce_range(6, 2, after.data(), after.size()));
  std::vector<std::byte> seen(2000);
  expect_error(pair->read({6, 1, 0, seen.data(), 1000}), Error::stale);
  ASSERT_TRUE(pair->read({6, 2, 0, seen.data(), 2000}));
  EXPECT_EQ(seen, after);
}

TEST_P(RangeConformance, AWithdrawnRangeIsStale) {
  const auto array = pattern(1000, 1);
  ASSERT_TRUE(pair->announce_range(6, 1, array.data(), array.size()));
  expect_error(agent().detach_range(6, 2), Error::stale);
  expect_error(agent().detach_range(7, 1), Error::unannounced);
  std::vector<std::byte> seen(1000);
  ASSERT_TRUE(pair->read({6, 1, 0, seen.data(), 1000}));
  pair->retire_range(6, 1);
  ASSERT_TRUE(agent().detach_range(6, 1));
  expect_error(pair->read({6, 1, 0, seen.data(), 1000}), Error::stale);
  expect_error(agent().detach_range(6, 1), Error::unannounced);
  ASSERT_TRUE(pair->announce_range(6, 2, array.data(), array.size()));
  ASSERT_TRUE(pair->read({6, 2, 0, seen.data(), 1000}));
  expect_usable();
}

TEST_P(RangeConformance, AnEmptyRange) {
  const auto array = pattern(8, 1);
  ASSERT_TRUE(pair->announce_range(6, 1, array.data(), 0));
  EXPECT_TRUE(pair->read({6, 1, 0, nullptr, 0}));
  std::byte byte{};
  expect_error(pair->read({6, 1, 0, &byte, 1}), Error::too_large);
}

TEST_P(UnpinnedConformance, MemoryThatIsGoneFailsItsReadAndNothingElse) {
  const Mapping array(3 * page_bytes);
  std::fill_n(array.data(), array.length(), std::byte{4});
  const auto other = pattern(100, 9);
  ASSERT_TRUE(pair->announce_range(6, 1, array.data(), array.length()));
  ASSERT_TRUE(pair->announce_range(7, 1, other.data(), other.size()));
  array.drop(page_bytes, page_bytes);
  std::vector<std::byte> seen(array.length());
  const auto whole = pair->read({6, 1, 0, seen.data(), array.length()});
  ASSERT_FALSE(whole);
  expect_error(whole, Error::unreadable);
  EXPECT_THAT(whole.error().message, HasSubstr("range 6"));
  expect_error(pair->read({6, 1, page_bytes + 8, seen.data(), 8}), Error::unreadable);
  // Among good pieces, and in the middle of a plan larger than one system call.
  std::vector<ReadPiece> pieces(1500, {7, 1, 0, seen.data(), 100});
  pieces[1200] = {6, 1, page_bytes, seen.data(), 1};
  expect_error(pair->read(pieces), Error::unreadable);

  ASSERT_TRUE(pair->read({6, 1, 0, seen.data(), page_bytes}));
  ASSERT_TRUE(pair->read({6, 1, 2 * page_bytes, seen.data(), page_bytes}));
  ASSERT_TRUE(pair->read({7, 1, 0, seen.data(), 100}));
  EXPECT_TRUE(std::equal(other.begin(), other.end(), seen.begin()));
  expect_usable();
}

TEST_P(UnpinnedConformance, MemoryThatMayNotBeReadIsUnreadable) {
  const Mapping array(2 * page_bytes);
  array.data()[0] = std::byte{6};
  ASSERT_TRUE(pair->announce_range(6, 1, array.data(), array.length()));
  ASSERT_EQ(::mprotect(array.data() + page_bytes, page_bytes, PROT_NONE), 0);
  std::vector<std::byte> seen(array.length());
  expect_error(pair->read({6, 1, 0, seen.data(), seen.size()}), Error::unreadable);
  ASSERT_TRUE(pair->read({6, 1, 0, seen.data(), page_bytes}));
  EXPECT_EQ(seen[0], std::byte{6});
  expect_usable();
}

TEST_P(RangeConformance, ReadOnlyMemoryIsReadable) {
  const Mapping array(page_bytes);
  array.data()[9] = std::byte{6};
  ASSERT_EQ(::mprotect(array.data(), page_bytes, PROT_READ), 0);
  ASSERT_TRUE(pair->announce_range(6, 1, array.data(), array.length()));
  std::byte seen{};
  ASSERT_TRUE(pair->read({6, 1, 9, &seen, 1}));
  EXPECT_EQ(seen, std::byte{6});
}

TEST_P(RangeConformance, ManyRanges) {
  constexpr std::uint32_t count = 20'000;
  std::vector<std::uint64_t> values(count), seen(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    values[i] = i * 3;
    ASSERT_TRUE(pair->announce_range(i, i + 1, &values[i], 8));
  }
  std::vector<ReadPiece> pieces;
  for (std::uint32_t i = 0; i < count; ++i) pieces.push_back({i, i + 1, 0, bytes(&seen[i]), 8});
  ASSERT_TRUE(pair->read(pieces));
  EXPECT_EQ(seen, values);
}

class PinnedConformance : public OverEveryLink {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PinnedConformance);
INSTANTIATE_TEST_SUITE_P(, PinnedConformance,
                         testing::ValuesIn(links_where([](const LinkKind& kind) { return kind.pinned; })), kind_name);

// The card in software imports memory and pins nothing.
class PinnedPagesConformance : public OverEveryLink {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PinnedPagesConformance);
INSTANTIATE_TEST_SUITE_P(, PinnedPagesConformance, testing::ValuesIn(links_where([](const LinkKind& kind) {
                           return kind.pinned && !kind.imports;
                         })),
                         kind_name);

TEST_P(PinnedPagesConformance, MemoryThatIsUnmappedIsReadAsItWas) {
  const Mapping array(3 * page_bytes);
  std::fill_n(array.data(), array.length(), std::byte{4});
  ASSERT_TRUE(pair->announce_range(6, 1, array.data(), array.length()));
  array.drop(page_bytes, page_bytes);
  std::vector<std::byte> seen(array.length());
  ASSERT_TRUE(pair->read({6, 1, 0, seen.data(), seen.size()}));
  EXPECT_TRUE(std::ranges::all_of(seen, [](std::byte b) { return b == std::byte{4}; }));
  expect_usable();
}

TEST_P(PinnedConformance, MemoryThatIsNotThereIsNotAnnounced) {
  // Where nothing is mapped nothing can be pinned: the lowest pages of an address space never are.
  expect_error(host().announce_range(7, 1, reinterpret_cast<const void*>(page_bytes), page_bytes), Error::unreadable);
  expect_usable();
}

TEST_P(PinnedConformance, ReadsUnderWayEndBeforeTheirRangeDoes) {
  std::vector<std::byte> array = pattern(1 << 20, 1), seen(16 << 20);
  ASSERT_TRUE(pair->announce_range(6, 1, array.data(), array.size()));
  for (std::uint64_t i = 0; i < 16; ++i) {
    const ReadPiece piece{6, 1, 0, seen.data() + (i << 20), array.size()};
    agent().read(i, std::span(&piece, 1));
  }
  pair->retire_range(6, 1);
  std::ranges::fill(array, std::byte{0});  // the program's again: no read may see this
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(pair->finish(LinkEvent::Kind::read_done, i));
  const auto expected = pattern(1 << 20, 1);
  for (std::uint64_t i = 0; i < 16; ++i)
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), seen.begin() + static_cast<std::ptrdiff_t>(i << 20)))
        << "read " << i;
  expect_error(pair->read({6, 1, 0, seen.data(), 1}), Error::stale);
  expect_usable();
}

TEST_P(RangeConformance, ToWithdrawDoesNotWaitForAnAgentThatDoesNothingAndEndsWhenItDoes) {
  constexpr RegionId count = 64;  // each would wait for a second, if it waited
  const auto array = pattern(100'000, 1);
  for (RegionId range = 1; range <= count; ++range)
    ASSERT_TRUE(pair->announce_range(range, 1, array.data(), array.size()));
  std::vector<std::byte> seen(count * 1000);
  for (RegionId range = 1; range <= count; ++range) {
    const ReadPiece piece{range, 1, 0, seen.data() + (range - 1) * 1000, 1000};
    agent().read(range, {&piece, 1});
  }
  const TimeNs began = pair->now();
  for (RegionId range = 1; range <= count; ++range) {
    host().withdraw_range(range, 1);
    static_cast<void>(host().is_withdrawn(range, 1));
  }
  EXPECT_LT(pair->now() - began, 20 * second_ns);

  for (const TimeNs until = pair->soon(); pair->now() < until; pair->pass()) {
    pair->poll();
    ASSERT_TRUE(host().look());
    RegionId gone = 0;
    for (RegionId range = 1; range <= count; ++range) gone += host().is_withdrawn(range, 1) ? 1 : 0;
    if (gone == count) break;
  }
  for (RegionId range = 1; range <= count; ++range) {
    EXPECT_TRUE(host().is_withdrawn(range, 1)) << range;
    // A read under way may have come too late; one that says it is done is.
    if (pair->finish(LinkEvent::Kind::read_done, range)) {
      EXPECT_TRUE(std::equal(array.begin(), array.begin() + 1000, seen.begin() + (range - 1) * 1000)) << range;
    }
  }
  expect_usable();
}

class StagedConformance : public OverEveryLink {};
INSTANTIATE_TEST_SUITE_P(, StagedConformance,
                         testing::ValuesIn(links_where([](const LinkKind& kind) { return !kind.ranges; })), kind_name);

TEST_P(StagedConformance, RangesAreUnsupported) {
  std::array<std::byte, 64> array{};
  expect_error(host().announce_range(1, 1, array.data(), array.size()), Error::unsupported);
  expect_error(agent().attach_range(1, 1, reinterpret_cast<std::uint64_t>(array.data()), array.size(), 0),
               Error::unsupported);
  std::byte byte{};
  expect_error(pair->read({1, 1, 0, &byte, 1}), Error::unannounced);
  expect_usable();
}

}  // namespace
}  // namespace offpath::link
