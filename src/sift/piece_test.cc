#include "sift/piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace offpath::sift {
namespace {

PieceHeader some_header() {
  PieceHeader header{.pool = "/tracks",
                     .element = {2, 13},
                     .source = {"dpu07", 3},
                     .sequence = 42,
                     .answered_below = 40,
                     .overhead_bytes = 9000,
                     .runs = {{-5, 7}, {0, 1}, {120, 1'000'000}}};
  header.crc32c = seal(header, 0x1234);
  return header;
}

TEST(PieceHeader, ComesBackAsItWas) {
  const PieceHeader header = some_header();
  const auto read = decode_piece_header(encode(header));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, header);
  EXPECT_EQ(read->rows(), 1'000'008u);
  PieceHeader mark = header;
  mark.runs.clear();
  mark.flush = 9;
  EXPECT_EQ(decode_piece_header(encode(mark)).value(), mark);
}

TEST(PieceHeader, EveryBitIsUnderTheSeal) {
  const PieceHeader header = some_header();
  EXPECT_EQ(seal(header, 0x1234), header.crc32c);
  EXPECT_NE(seal(header, 0x1235), header.crc32c);
  std::vector<std::byte> bytes = encode(header);
  for (std::size_t at = 0; at < bytes.size() * 8; ++at) {
    bytes[at / 8] ^= static_cast<std::byte>(1 << at % 8);
    const auto read = decode_piece_header(bytes);
    if (read) {
      EXPECT_NE(seal(*read, 0x1234), read->crc32c) << "bit " << at;
    }
    bytes[at / 8] ^= static_cast<std::byte>(1 << at % 8);
  }
}

TEST(PieceHeader, AnyBytesAreReadOrRefused) {
  std::mt19937_64 random(7);
  const std::vector<std::byte> whole = encode(some_header());
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(decode_piece_header(Bytes(whole).first(length))) << length;
  for (int turn = 0; turn < 20'000; ++turn) {
    std::vector<std::byte> bytes = whole;
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto read = decode_piece_header(bytes);
    if (read) {
      EXPECT_EQ(encode(*read), bytes);
    }
  }
  PieceHeader wrong = some_header();
  wrong.runs[1].step = -5;
  EXPECT_FALSE(decode_piece_header(encode(wrong)));
  wrong = some_header();
  wrong.runs[1].rows = UINT64_MAX;
  EXPECT_FALSE(decode_piece_header(encode(wrong)));
  wrong = some_header();
  wrong.flush = 1;
  EXPECT_FALSE(decode_piece_header(encode(wrong)));
}

TEST(RowKeys, EndInTheStep) {
  EXPECT_EQ(step_of("step000120").value(), 120);
  EXPECT_EQ(step_of("0").value(), 0);
  EXPECT_EQ(step_of("run2/9223372036854775807").value(), INT64_MAX);
  for (const char* wrong : {"", "step", "12a", "9223372036854775808", "1 "}) {
    const auto step = step_of(wrong);
    ASSERT_FALSE(step) << wrong;
    EXPECT_NE(step.error().message.find(wrong), std::string::npos);
  }
}

TEST(TakenSequences, AreASet) {
  std::mt19937_64 random(11);
  for (int turn = 0; turn < 200; ++turn) {
    TakenSequences taken;
    std::set<std::uint64_t> expected;
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 1; i <= 100; ++i) order.push_back(i);
    std::ranges::shuffle(order, random);
    for (const std::uint64_t sequence : order) {
      ASSERT_TRUE(taken.can_take(sequence));
      taken.take(sequence);
      taken.take(sequence);
      expected.insert(sequence);
      std::uint64_t below = 1;
      while (expected.contains(below)) ++below;
      for (std::uint64_t each = 1; each <= 101; ++each) ASSERT_EQ(taken.has(each), expected.contains(each)) << each;
      ASSERT_TRUE(taken.has_all_below(below));
      ASSERT_FALSE(taken.has_all_below(below + 1));
    }
    EXPECT_EQ(taken.gaps(), 0u);
  }
}

TEST(TakenSequences, RememberABoundedNumberOfGaps) {
  TakenSequences taken;
  std::uint64_t sequence = 2;
  for (; taken.can_take(sequence); sequence += 2) taken.take(sequence);
  EXPECT_EQ(taken.gaps(), TakenSequences::gaps_max);
  EXPECT_FALSE(taken.can_take(sequence));
  EXPECT_TRUE(taken.can_take(1)) << "what closes the first gap can always be taken";
  taken.take(1);
  EXPECT_TRUE(taken.can_take(sequence));
  taken.take_below(1000);
  EXPECT_TRUE(taken.has_all_below(1001));
  EXPECT_FALSE(taken.has_all_below(1002));
  EXPECT_EQ(taken.gaps(), TakenSequences::gaps_max - 500);
  taken.take_below(5);
  EXPECT_TRUE(taken.has_all_below(1001));
}

}  // namespace
}  // namespace offpath::sift
