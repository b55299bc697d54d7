#include "sift/split/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace offpath::sift {
namespace {

// Some rows, with their parts computed by a simple loop.
struct Rows {
  Identifiers ids;
  std::vector<std::vector<std::byte>> columns;  // the first has the identifiers
  std::vector<Column> views;

  Rows(std::uint64_t count, std::uint32_t id_bytes, const std::vector<std::uint32_t>& widths, std::mt19937_64& random) {
    std::vector<std::uint32_t> all{id_bytes};
    all.insert(all.end(), widths.begin(), widths.end());
    for (const std::uint32_t width : all) {
      // Exactly as many bytes as the values need, so that the sanitizer catches reads beyond them.
      std::vector<std::byte>& column = columns.emplace_back(count * width);
      for (std::byte& byte : column) byte = static_cast<std::byte>(random());
    }
    for (std::size_t i = 0; i < all.size(); ++i) views.push_back({columns[i].data(), all[i]});
    ids = {columns[0].data(), id_bytes, count};
  }
  [[nodiscard]] std::uint64_t id(std::uint64_t row) const {
    std::uint64_t value = 0;
    std::memcpy(&value, ids.values + row * ids.value_bytes, ids.value_bytes);
    return value;
  }
};

void expect_split(const Rows& rows, SplitBits bits, Gather gather, std::optional<SplitWay> way = {}) {
  std::vector<std::uint64_t> counts(bits.parts());
  count_parts(rows.ids, bits, counts);
  std::vector<std::vector<std::uint64_t>> expected(bits.parts());  // row numbers
  for (std::uint64_t row = 0; row < rows.ids.rows; ++row) expected[bits.part_of(rows.id(row))].push_back(row);
  for (std::uint32_t part = 0; part < bits.parts(); ++part) ASSERT_EQ(counts[part], expected[part].size()) << part;

  std::vector<std::vector<std::byte>> got;
  for (const Column& column : rows.views)
    for (const std::uint64_t count : counts) got.emplace_back(count * column.value_bytes);
  std::vector<std::byte*> targets;
  for (std::vector<std::byte>& each : got) targets.push_back(each.data());
  Partition partition(bits, gather);
  if (way)
    partition.split(rows.ids, rows.views, targets, *way);
  else
    partition.split(rows.ids, rows.views, targets);

  for (std::size_t column = 0; column < rows.views.size(); ++column) {
    const std::uint32_t width = rows.views[column].value_bytes;
    for (std::uint32_t part = 0; part < bits.parts(); ++part) {
      const std::vector<std::byte>& run = got[column * bits.parts() + part];
      ASSERT_EQ(targets[column * bits.parts() + part], run.data() + run.size())
          << "column " << column << " part " << part;
      for (std::size_t i = 0; i < expected[part].size(); ++i)
        ASSERT_EQ(std::memcmp(run.data() + i * width, rows.views[column].values + expected[part][i] * width, width), 0)
            << "column " << column << " part " << part << " row " << i;
    }
  }
}

class PartitionOf : public ::testing::TestWithParam<Gather> {};

TEST_P(PartitionOf, EveryRowGoesWhereALoopWouldPutItInItsOrder) {
  if (GetParam() > best_gather()) GTEST_SKIP() << "this processor has no such instructions";
  std::mt19937_64 random(1);
  for (const std::uint32_t id_bytes : {8U, 4U})
    for (const std::uint32_t bits : {0U, 1U, 4U, 7U, split_bits_max})
      for (const std::uint64_t count : {0ULL, 1ULL, 7ULL, 2047ULL, 2048ULL, 70'001ULL}) {
        const Rows rows(count, id_bytes, {1, 2, 4, 8, 12, 16}, random);
        for (const std::uint32_t shift : {0U, 3U, id_bytes * 8 - bits})
          ASSERT_NO_FATAL_FAILURE(expect_split(rows, {shift, bits}, GetParam()))
              << count << " rows, " << bits << " bits at " << shift;
      }
}

TEST_P(PartitionOf, BitsBeyondTheIdentifierAreZero) {
  if (GetParam() > best_gather()) GTEST_SKIP() << "this processor has no such instructions";
  std::mt19937_64 random(2);
  expect_split(Rows(100, 4, {4}, random), {30, 6}, GetParam());
  expect_split(Rows(100, 4, {4}, random), {32, 4}, GetParam());
  expect_split(Rows(100, 8, {4}, random), {62, 6}, GetParam());
  expect_split(Rows(100, 8, {4}, random), {64, 4}, GetParam());
}

TEST_P(PartitionOf, WhatIsWrittenPastTheCachesIsTheSame) {
  if (GetParam() > best_gather()) GTEST_SKIP() << "this processor has no such instructions";
  std::mt19937_64 random(4);
  const Rows rows(200'001, 8, {4, 8, 1, 2}, random);  // 4.6 MB
  for (const std::uint32_t bits : {1U, 4U, 8U})
    for (const SplitWay way : split_ways) ASSERT_NO_FATAL_FAILURE(expect_split(rows, {0, bits}, GetParam(), way));
}

TEST_P(PartitionOf, LargeSplitsTryAllWaysAndThenUseTheFastest) {
  if (GetParam() > best_gather()) GTEST_SKIP() << "this processor has no such instructions";
  std::mt19937_64 random(5);
  const Rows rows(60'001, 4, {1000, 8}, random);  // 60 MB: twelve stretches, and a rest
  for (int turn = 0; turn < 2; ++turn) ASSERT_NO_FATAL_FAILURE(expect_split(rows, {0, 3}, GetParam()));
}

TEST_P(PartitionOf, AllRowsInOnePart) {
  if (GetParam() > best_gather()) GTEST_SKIP() << "this processor has no such instructions";
  std::mt19937_64 random(3);
  Rows rows(40'000, 8, {4, 1}, random);
  std::ranges::fill(rows.columns[0], std::byte{0xFF});
  expect_split(rows, {8, 4}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    ByInstructions, PartitionOf, ::testing::Values(Gather::scalar, Gather::avx2, Gather::avx512), [](const auto& each) {
      return std::string(each.param == Gather::scalar ? "scalar" : each.param == Gather::avx2 ? "avx2" : "avx512");
    });

TEST(CountParts, AddsToWhatIsThere) {
  std::mt19937_64 random(4);
  const Rows rows(1000, 8, {}, random);
  std::vector<std::uint64_t> once(16), twice(16);
  count_parts(rows.ids, {0, 4}, once);
  count_parts(rows.ids, {0, 4}, twice);
  count_parts(rows.ids, {0, 4}, twice);
  for (std::size_t part = 0; part < once.size(); ++part) EXPECT_EQ(twice[part], 2 * once[part]);
}

}  // namespace
}  // namespace offpath::sift
