// Segments, descriptors and refusals, over every link.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "link_pair.h"
#include "testing/link/connected_pair.h"
#include "wire/channel_layout.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = LinkEvent::Kind;

class LinkConformance : public OverEveryLink {};
INSTANTIATE_TEST_SUITE_P(, LinkConformance, testing::ValuesIn(every_link()), kind_name);

TEST_P(LinkConformance, BothEndsSayTheSame) {
  OFP_NEEDS_RANGES();
  const LinkTraits& a = host().traits();
  const LinkTraits& b = agent().traits();
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.staged, b.staged);
  EXPECT_EQ(a.one_sided, b.one_sided);
  EXPECT_FALSE(a.reason.empty());
  EXPECT_FALSE(b.reason.empty());
  EXPECT_EQ(a.staged, !GetParam().ranges);
  EXPECT_EQ(agent().mapped(wire::channel_segment).empty(), !GetParam().mapped);
}

TEST_P(LinkConformance, TheChannelSegmentCarriesBytesBothWays) {
  const MutableBytes memory = host().channel_memory();
  ASSERT_EQ(memory.size(), small_layout.total_bytes());
  const auto is_zero = [](Bytes bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
  };
  EXPECT_TRUE(is_zero(memory.first(wire::ChannelLayout::witness_line)));
  EXPECT_TRUE(
      is_zero(memory.subspan(wire::ChannelLayout::witness_line + sizeof(wire::WitnessLine))));  // the agent has read
  const auto sent = pattern(memory.size(), 1);
  std::ranges::copy(sent, memory.begin());
  std::vector<std::byte> seen(memory.size());
  ASSERT_TRUE(pair->read({wire::channel_segment, 0, 0, seen.data(), seen.size()}));
  EXPECT_EQ(seen, sent);

  const auto answer = pattern(memory.size(), 2);
  ASSERT_TRUE(pair->write({wire::channel_segment, 0, answer.data(), answer.size()}));
  EXPECT_TRUE(std::ranges::equal(memory, answer));
  if (const MutableBytes view = agent().mapped(wire::channel_segment); !view.empty()) {
    EXPECT_TRUE(std::ranges::equal(view, answer));
    view[17] = std::byte{0xEE};
    EXPECT_EQ(memory[17], std::byte{0xEE});
  }
}

TEST_P(LinkConformance, AnAnnouncedSegmentCarriesBytesBothWays) {
  for (const std::uint64_t length : {1ull, 4096ull, 4097ull, 3'000'000ull}) {
    const RegionId name = segment(static_cast<std::uint32_t>(10 + length % 10));
    auto memory = host().allocate(length);
    ASSERT_TRUE(memory) << memory.error().message;
    ASSERT_EQ(memory->length(), length);
    EXPECT_EQ(reinterpret_cast<std::uint64_t>(memory->data()) % page_bytes, 0u);
    EXPECT_TRUE(std::all_of(memory->data(), memory->data() + length, [](std::byte b) { return b == std::byte{0}; }));
    auto announced = pair->announce_segment(name, *memory);
    ASSERT_TRUE(announced) << announced.error().message;
    const auto sent = pattern(length, 3);
    ASSERT_TRUE(pair->write({name, 0, sent.data(), length}));
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), memory->data()));
    const auto other = pattern(length, 4);
    std::ranges::copy(other, memory->data());
    std::vector<std::byte> seen(length);
    ASSERT_TRUE(pair->read({name, 0, 0, seen.data(), length}));
    EXPECT_EQ(seen, other);
    pair->retire_segment(name);
  }
}

TEST_P(LinkConformance, AWriteTouchesItsBytesAndNoOthers) {
  const MutableBytes memory = host().channel_memory();
  for (const std::uint64_t length : {0u, 1u, 7u, 8u, 9u, 63u, 64u, 65u, 4095u, 4096u, 4097u}) {
    for (const std::uint64_t offset : {0u, 1u, 64u, 4095u, 4096u}) {
      std::ranges::fill(memory, std::byte{0xAA});
      const auto sent = pattern(length, static_cast<unsigned>(length));
      ASSERT_TRUE(pair->write({wire::channel_segment, offset, sent.data(), length}));
      for (std::uint64_t i = 0; i < memory.size(); ++i) {
        const bool inside = i >= offset && i < offset + length;
        ASSERT_EQ(memory[i], inside ? sent[i - offset] : std::byte{0xAA})
            << "byte " << i << " of " << length << " at " << offset;
      }
    }
  }
}

TEST_P(LinkConformance, AWriteOfManyPieces) {
  constexpr std::uint64_t count = 3000, bytes_each = 40;  // more than one system call takes
  auto memory = host().allocate(count * bytes_each);
  ASSERT_TRUE(memory);
  ASSERT_TRUE(pair->announce_segment(segment(3), *memory));
  const auto sent = pattern(count * bytes_each, 5);
  std::vector<WritePiece> pieces;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = (i * 1777 % count) * bytes_each;  // 1777 and 3000 have no common divisor
    pieces.push_back({segment(3), at, sent.data() + at, bytes_each});
  }
  pieces.insert(pieces.begin() + 1500, {segment(3), count * bytes_each, sent.data(), 0});
  ASSERT_TRUE(pair->write(pieces));
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), memory->data()));
}

TEST_P(LinkConformance, OperationsOfNothingComplete) {
  EXPECT_TRUE(pair->read(std::span<const ReadPiece>{}));
  EXPECT_TRUE(pair->write(std::span<const WritePiece>{}));
  EXPECT_TRUE(pair->read({wire::channel_segment, 0, 5, nullptr, 0}));
  EXPECT_TRUE(pair->write({wire::channel_segment, small_layout.total_bytes(), nullptr, 0}));
  expect_usable();
}

TEST_P(LinkConformance, ManyOperationsAreOutstandingAtOnce) {
  // As many as allowed, each reading or writing a word of its own.
  constexpr std::uint64_t count = AgentLink::operations_max / 2;
  auto memory = host().allocate(count * 16);
  ASSERT_TRUE(memory);
  ASSERT_TRUE(pair->announce_segment(segment(4), *memory));
  std::vector<std::uint64_t> sent(count), seen(count);
  std::iota(sent.begin(), sent.end(), 1'000u);
  for (std::uint64_t i = 0; i < count; ++i) store<std::uint64_t>(memory->data() + 8 * (count + i), 5'000 + i);
  for (std::uint64_t i = 0; i < count; ++i) {
    const WritePiece write{segment(4), 8 * i, bytes(static_cast<const void*>(&sent[i])), 8};
    const ReadPiece read{segment(4), 0, 8 * (count + i), bytes(&seen[i]), 8};
    agent().write(i, std::span(&write, 1));
    agent().read(i, std::span(&read, 1));
  }
  host().wake();  // comes on top
  std::vector<int> reads(count), writes(count);
  for (std::uint64_t i = 0; i < 2 * count; ++i) {
    const LinkEvent event =
        pair->await([](const LinkEvent& e) { return e.kind == Kind::read_done || e.kind == Kind::write_done; });
    ASSERT_TRUE(event.status) << event.status.error().message;
    ASSERT_LT(event.token, count);
    ++(event.kind == Kind::read_done ? reads : writes)[event.token];
  }
  pair->await(Kind::woken);
  EXPECT_EQ(reads, std::vector<int>(count, 1));
  EXPECT_EQ(writes, std::vector<int>(count, 1));
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(load<std::uint64_t>(memory->data() + 8 * i), sent[i]);
    ASSERT_EQ(seen[i], 5'000 + i);
  }
}

TEST_P(LinkConformance, SegmentsNeverAnnouncedAreRefused) {
  std::byte byte{};
  const auto read = pair->read({segment(9), 0, 0, &byte, 1});
  expect_error(read, Error::unannounced);
  EXPECT_THAT(read.error().message, HasSubstr("segment 9"));
  expect_error(pair->write({segment(9), 0, &byte, 1}), Error::unannounced);
  expect_error(pair->write({segment(0x7FFF'FFFF), 0, &byte, 1}), Error::unannounced);
  expect_usable();
}

TEST_P(LinkConformance, ReachingBeyondASegmentIsRefused) {
  const std::uint64_t length = small_layout.total_bytes();
  std::array<std::byte, 16> buffer{};
  const struct {
    std::uint64_t offset, length;
  } bad[] = {{length, 1}, {length - 8, 9}, {length + 1, 0}, {UINT64_MAX, 1}, {UINT64_MAX - 4, 16}, {1ull << 43, 8}};
  for (const auto& one : bad) {
    const auto read = pair->read({wire::channel_segment, 0, one.offset, buffer.data(), one.length});
    expect_error(read, Error::too_large);
    EXPECT_THAT(read.error().message, AllOf(HasSubstr(std::to_string(one.offset)), HasSubstr(std::to_string(length))));
    expect_error(pair->write({wire::channel_segment, one.offset, buffer.data(), one.length}), Error::too_large);
  }
  EXPECT_TRUE(pair->read({wire::channel_segment, 0, length - 8, buffer.data(), 8}));
  expect_usable();
}

TEST_P(LinkConformance, ASegmentHasOneGeneration) {
  std::byte byte{};
  expect_error(pair->read({wire::channel_segment, 1, 0, &byte, 1}), Error::stale);
  expect_usable();
}

TEST_P(LinkConformance, OneBadPieceRefusesTheOperation) {
  std::ranges::fill(host().channel_memory(), std::byte{3});
  std::array<std::byte, 8> buffer{};
  const std::array<ReadPiece, 3> reads{{{wire::channel_segment, 0, 0, buffer.data(), 4},
                                        {segment(9), 0, 0, buffer.data(), 1},
                                        {wire::channel_segment, 0, 4, buffer.data(), 4}}};
  expect_error(pair->read(reads), Error::unannounced);
  const std::array<WritePiece, 2> writes{{{wire::channel_segment, 0, buffer.data(), 4},
                                          {wire::channel_segment, small_layout.total_bytes(), buffer.data(), 8}}};
  expect_error(pair->write(writes), Error::too_large);
  expect_usable();
}

TEST_P(LinkConformance, AWithdrawnSegmentIsStale) {
  auto memory = host().allocate(5000);
  ASSERT_TRUE(memory);
  ASSERT_TRUE(pair->announce_segment(segment(2), *memory));
  EXPECT_EQ(agent().mapped(segment(2)).size(), GetParam().mapped ? 5000u : 0u);
  pair->retire_segment(segment(2));
  std::byte byte{5};
  Status written;
  for (const TimeNs deadline = pair->soon(); written && pair->now() < deadline; pair->pass())
    written = pair->write({segment(2), 0, &byte, 1});
  expect_error(written, Error::stale);
  expect_error(pair->read({segment(2), 0, 0, &byte, 1}), Error::stale);
  EXPECT_TRUE(agent().mapped(segment(2)).empty());

  // The number may be used again, for other memory.
  auto larger = host().allocate(9000);
  ASSERT_TRUE(larger);
  ASSERT_TRUE(pair->announce_segment(segment(2), *larger));
  ASSERT_TRUE(pair->write({segment(2), 8999, &byte, 1}));
  EXPECT_EQ(larger->data()[8999], std::byte{5});
  EXPECT_EQ(memory->data()[4999], std::byte{0});
  expect_usable();
}

TEST_P(LinkConformance, SegmentsWithoutBytesAreRefused) {
  expect_error(host().allocate(0), Error::invalid);
  EXPECT_FALSE(host().allocate(wire::region_bytes_max + 1));
  expect_usable();
}

TEST_P(LinkConformance, RangesCannotBeWritten) {
  OFP_NEEDS_RANGES();
  std::array<std::byte, 64> array{};
  const std::byte byte{1};
  if (GetParam().ranges) {
    ASSERT_TRUE(pair->announce_range(7, 1, array.data(), array.size()));
  }
  const auto written = pair->write({7, 0, &byte, 1});
  expect_error(written, Error::denied);
  EXPECT_THAT(written.error().message, HasSubstr("range 7"));
  const std::array<WritePiece, 2> both{{{wire::channel_segment, 0, &byte, 1}, {7, 0, &byte, 1}}};
  expect_error(pair->write(both), Error::denied);
  EXPECT_EQ(array[0], std::byte{0});
  expect_usable();
}

TEST_P(LinkConformance, ASegmentsNumberIsNoRange) {
  expect_error(agent().attach_range(segment(1), 1, 4096, 100, 0), Error::invalid);
  expect_error(agent().detach_range(segment(0), 0), Error::invalid);
  expect_usable();
}

TEST(EveryLink, RdmaIsAmongThem) {
  const auto address = rdma_address();
  if (!address) GTEST_SKIP() << address.error().message;
  EXPECT_EQ(links_where([](const LinkKind& kind) { return kind.pinned; }).size(), 1u);
}

// A descriptor of a file with `text` in it.
Fd file_with(std::string_view text) {
  Fd fd(::memfd_create("conformance", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string text_in(const Fd& fd) {
  std::array<char, 64> text;
  const ssize_t count = ::pread(fd.get(), text.data(), text.size(), 0);
  return {text.data(), count < 0 ? 0 : static_cast<std::size_t>(count)};
}

TEST_P(LinkConformance, DescriptorsAreHandedOverToTheHost) {
  const Fd first = file_with("first"), second = file_with("second");
  const auto handed = agent().hand_over(20, first.get());
  if (!GetParam().descriptors) {
    expect_error(handed, Error::unsupported);
    expect_error(host().take_descriptor(20, pair->now() + millisecond_ns), Error::unsupported);
    return expect_usable();
  }
  ASSERT_TRUE(handed);
  ASSERT_TRUE(agent().hand_over(21, second.get()));
  Result<Fd> b = Fd(), a = Fd();
  pair->beside(
      [&] {
        b = host().take_descriptor(21, pair->soon());
        a = host().take_descriptor(20, pair->soon());
      },
      [&] { pair->poll(); });
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->get(), first.get());
  EXPECT_EQ(text_in(*a), "first");
  EXPECT_EQ(text_in(*b), "second");
  expect_error(host().take_descriptor(20, pair->now() + millisecond_ns), Error::timeout);
  expect_usable();
}

TEST_P(LinkConformance, DescriptorsAreOfferedToTheAgent) {
  const Fd file = file_with("offered");
  const auto offered = host().offer(33, file.get());
  if (!GetParam().descriptors) {
    expect_error(offered, Error::unsupported);
    return expect_usable();
  }
  ASSERT_TRUE(offered);
  const LinkEvent event = pair->await(Kind::offered);
  EXPECT_EQ(event.token, 33u);
  EXPECT_EQ(text_in(event.fd), "offered");
  expect_usable();
}

}  // namespace
}  // namespace offpath::link
