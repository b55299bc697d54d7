#include "host/send/known_columns.h"

#include <gtest/gtest.h>

#include <random>

namespace offpath::host {
namespace {

using RangeName = KnownColumns::RangeName;

struct Sent {
  std::vector<const void*> data;
  std::vector<std::uint32_t> strides;
  std::uint64_t rows = 0;
  [[nodiscard]] KnownColumns::Arrays arrays() const { return {data.data(), strides.data(), rows}; }
};

Sent sent(std::size_t columns, std::uintptr_t begin, std::uint64_t rows) {
  Sent made{{}, std::vector<std::uint32_t>(columns, 24), rows};
  for (std::size_t i = 0; i < columns; ++i) made.data.push_back(reinterpret_cast<const void*>(begin + 8 * i));
  return made;
}

KnownColumns::Record record(std::uint64_t epoch, std::uint64_t charge) {
  return {.epoch = epoch,
          .rows = 0,
          .charge = charge,
          .span_bytes = 2 * charge,
          .set_bytes = 100,
          .uses = 0,
          .named = true};
}

TEST(KnownColumns, AreFoundByEveryArrayStrideAndTheRows) {
  for (const std::size_t columns : {1UL, 3UL, 16UL, std::size_t{wire::set_buffers_max}}) {
    KnownColumns known(columns);
    const Sent first = sent(columns, 0x1000, 50);
    const std::vector<RangeName> uses(columns, RangeName{7, 3});
    const std::size_t place = known.take_oldest();
    known.remember(place, first.arrays(), record(5, 400), uses);
    ASSERT_EQ(known.find(5, first.arrays()), place);
    EXPECT_EQ(known[place].charge, 400u);
    EXPECT_EQ(known[place].span_bytes, 800u);
    EXPECT_EQ(known[place].rows, 50u);
    EXPECT_TRUE(known[place].named);
    ASSERT_EQ(known.uses(place).size(), columns);
    EXPECT_EQ(known.uses(place).back().region, 7u);
    EXPECT_EQ(known.uses(place).back().generation, 3u);

    EXPECT_EQ(known.find(6, first.arrays()), KnownColumns::nowhere);
    Sent other = first;
    other.rows = 51;
    EXPECT_EQ(known.find(5, other.arrays()), KnownColumns::nowhere);
    for (std::size_t i = 0; i < columns; ++i) {
      other = first;
      other.data[i] = &other;
      EXPECT_EQ(known.find(5, other.arrays()), KnownColumns::nowhere) << i;
      other = first;
      other.strides[i] = 8;
      EXPECT_EQ(known.find(5, other.arrays()), KnownColumns::nowhere) << i;
    }
  }
}

TEST(KnownColumns, TheOldestGivesItsPlace) {
  KnownColumns known(2);
  std::vector<Sent> all;
  for (std::uint64_t i = 0; i < wire::sets_max + 1; ++i) {
    all.push_back(sent(2, 0x1000 * (i + 1), 10));
    known.remember(known.take_oldest(), all.back().arrays(), record(1, i), {});
  }
  EXPECT_EQ(known.find(1, all.front().arrays()), KnownColumns::nowhere);
  for (std::uint64_t i = 1; i < all.size(); ++i) {
    const std::size_t place = known.find(1, all[i].arrays());
    ASSERT_NE(place, KnownColumns::nowhere) << i;
    EXPECT_EQ(known[place].charge, i);
  }
  EXPECT_EQ(known.sets_bytes(), 100u * wire::sets_max);
}

// For any places of remembered sets, find agrees with a list of all of them.
TEST(KnownColumns, AgreeWithAList) {
  std::mt19937 random(1);
  KnownColumns known(3);
  std::vector<Sent> list(wire::sets_max);
  std::vector<std::uint64_t> epochs(wire::sets_max);
  std::uint64_t found = 0;
  for (int step = 0; step < 20'000; ++step) {
    const Sent some = sent(3, 0x1000 * (1 + random() % 12), 1 + random() % 4);
    const std::uint64_t epoch = 1 + step / 5'000;
    const std::size_t place = known.find(epoch, some.arrays());
    bool listed = false;
    for (std::size_t i = 0; i < list.size(); ++i)
      listed |= epochs[i] == epoch && list[i].rows == some.rows && list[i].data == some.data &&
                list[i].strides == some.strides;
    ASSERT_EQ(place != KnownColumns::nowhere, listed);
    if (listed) {
      ++found;
      continue;
    }
    const std::size_t taken = known.take_oldest();
    known.remember(taken, some.arrays(), record(epoch, 1), {});
    list[taken] = some;
    epochs[taken] = epoch;
  }
  EXPECT_GT(found, 1'000u);
}

TEST(KnownColumns, KeepNothingOfTooManyColumnsOrNone) {
  for (const std::size_t columns : {std::size_t{0}, std::size_t{wire::set_buffers_max + 1}}) {
    const KnownColumns known(columns);
    EXPECT_FALSE(known.keeps());
    EXPECT_EQ(known.sets_bytes(), 0u);
    EXPECT_EQ(known.find(1, sent(wire::set_buffers_max + 1, 0x1000, 1).arrays()), KnownColumns::nowhere);
  }
}

}  // namespace
}  // namespace offpath::host
