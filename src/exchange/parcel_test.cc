#include "exchange/parcel.h"

#include <gtest/gtest.h>

namespace offpath::exchange {
namespace {

Record record_of(std::size_t bytes, std::byte fill) {
  auto owner = std::make_shared<const std::vector<std::byte>>(bytes, fill);
  return {owner, *owner};
}

SharedBytes parcel() {
  ParcelHeader header{};
  header.kind = ParcelKind::up;
  header.epoch = 9;
  header.from = 3;
  header.grant_leader = nobody;
  ParcelWriter writer(header);
  writer.add_entry({3, 13, 9, 5}, record_of(13, std::byte{1}));
  writer.add_entry({4, no_value, 9, 0}, {});
  writer.add_entry({5, 0, 8, 7}, record_of(0, std::byte{0}));
  const std::vector<std::byte> partial(17, std::byte{2});
  writer.add_partial(1, 9, partial);
  writer.add_ballot({3, 0, 11, 12, 13, 14, 15, Deciding::able, 0});
  writer.add_grant({5, 0, 21, 22, 23, 24, 25});
  return writer.finish();
}

TEST(Parcel, WhatWasPutInComesOut) {
  const auto opened = Parcel::open(parcel());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->header().epoch, 9u);
  std::vector<std::pair<MemberIndex, std::size_t>> entries;
  opened->each_entry([&](const EntryRow& row, const Record& record) {
    entries.emplace_back(row.member, record.bytes.size());
    for (const std::byte each : record.bytes) EXPECT_EQ(each, std::byte{1});
  });
  EXPECT_EQ(entries, (std::vector<std::pair<MemberIndex, std::size_t>>{{3, 13}, {4, 0}, {5, 0}}));
  EXPECT_EQ(opened->entry(1).length, no_value);
  opened->each_partial([](const PartialRow& row, Bytes bytes) {
    EXPECT_EQ(row.node, 1u);
    EXPECT_EQ(bytes.size(), 17u);
    EXPECT_EQ(bytes[16], std::byte{2});
  });
  EXPECT_EQ(opened->ballot(0).stamp, 14u);
  EXPECT_EQ(opened->ballot(0).deciding, Deciding::able);
  EXPECT_EQ(opened->grant(0).amount, 25u);
  EXPECT_LE(opened->header().entries, 3u);
}

// Agents of other versions compute it, too.
TEST(Parcel, TheTagOfAnExchangeIsTheSameEverywhere) { EXPECT_EQ(tag_of("load"), 0xCE0E'ECAD'70F2'71E9u); }

TEST(Parcel, OfEveryOtherLengthItIsRefused) {
  const SharedBytes good = parcel();
  for (std::size_t length = 0; length < good->size() + 9; ++length) {
    if (length == good->size()) continue;
    auto bytes = std::make_shared<std::vector<std::byte>>(*good);
    bytes->resize(length);
    EXPECT_FALSE(Parcel::open(bytes)) << length;
  }
}

TEST(Parcel, CountsAndLengthsThatCannotBeAreRefused) {
  const auto with = [](std::size_t at, std::uint32_t value) {
    auto bytes = std::make_shared<std::vector<std::byte>>(*parcel());
    store(bytes->data() + at, value);
    return Parcel::open(bytes).has_value();
  };
  for (const std::size_t count_at : {offsetof(ParcelHeader, entries), offsetof(ParcelHeader, partials),
                                     offsetof(ParcelHeader, ballots), offsetof(ParcelHeader, grants)})
    for (const std::uint32_t value : {7u, 1u << 20, UINT32_MAX}) EXPECT_FALSE(with(count_at, value));
  EXPECT_FALSE(with(0, 0));                                                                 // magic
  EXPECT_FALSE(with(sizeof(ParcelHeader) + offsetof(EntryRow, length), UINT32_MAX - 1));    // a record of 4 GiB
  EXPECT_FALSE(with(sizeof(ParcelHeader) + offsetof(EntryRow, age_ns) + 4, 0x8000'0000u));  // from the future
}

}  // namespace
}  // namespace offpath::exchange
