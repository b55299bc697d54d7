#include "pool/table/object_record.h"

#include <gtest/gtest.h>

#include <random>

namespace offpath::pool {
namespace {

ObjectRecord some_record(std::uint64_t bytes, bool arrow) {
  ObjectRecord record;
  record.number = 0xA7;
  record.bytes = bytes;
  record.rows = 12;
  record.keep = 3;
  record.pool_user = 1000;
  record.user = 1001;
  record.arrow = arrow;
  record.id = {0xFEEDull, 9, 77, {{76, 0xBEEFull}, {70, 5}}};
  record.crc32c = 0x12345678;
  record.pool = "hash:/p?replicas=2";
  record.row = std::string("row\0/../\n", 9);
  record.column = std::string(wire::key_bytes_max, '\xFF');
  return record;
}

std::vector<std::byte> file_of(const ObjectRecord& record) {
  std::vector<std::byte> file(record.bytes, std::byte{0x5A});
  const std::vector<std::byte> end = encode_end(record);
  file.insert(file.end(), end.begin(), end.end());
  return file;
}

Result<ObjectRecord> read_end(const std::vector<std::byte>& file) {
  return decode_end(Bytes(file).last(std::min<std::size_t>(file.size(), object_end_bytes_max)), file.size());
}

TEST(ObjectRecord, ComesBackAsItWas) {
  for (const std::uint64_t bytes : {0u, 1u, 7u, 8u, 9u, 100'000u})
    for (const bool arrow : {false, true}) {
      const ObjectRecord record = some_record(bytes, arrow);
      const auto back = read_end(file_of(record));
      ASSERT_TRUE(back) << back.error().message;
      EXPECT_EQ(*back, record);
      EXPECT_EQ(back->id.counter, 77u);
      EXPECT_EQ(back->id.over, record.id.over);
    }
}

TEST(ObjectRecord, AFileOfATimeBeforeVersionsIsRead) {
  ObjectRecord record = some_record(9, false);
  const std::size_t with_version = encode_end(record).size();
  record.id = {0xFEEDull, 9};
  const auto file = file_of(record);
  EXPECT_EQ(file.size() - record.bytes, with_version - 8 - 2 - 2 * 16) << "its bytes are those of before";
  const auto back = read_end(file);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, record);
  EXPECT_EQ(back->id.counter, 0u);
}

TEST(ObjectRecord, AnArrowReaderStopsWhereTheObjectEnds) {
  const auto file = file_of(some_record(21, true));
  EXPECT_EQ(load<std::uint64_t>(file.data() + 24), 0x00000000FFFFFFFFull);
}

TEST(ObjectRecord, TheLongestNamesFitWhatIsRead) {
  ObjectRecord record = some_record(1, true);
  record.pool = std::string(wire::pool_bytes_max, 'p');
  record.row = record.column;
  record.id.over.assign(puts_over_max, {1, 2});
  EXPECT_LE(encode_end(record).size(), object_end_bytes_max);
  EXPECT_TRUE(read_end(file_of(record)));
}

TEST(ObjectRecord, WhateverWasCutOffIsRefused) {
  const auto file = file_of(some_record(100, true));
  for (std::size_t length = 0; length < file.size(); ++length) {
    const auto back = read_end({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length)});
    ASSERT_FALSE(back) << length;
    EXPECT_EQ(back.error().code, Error::protocol);
  }
}

TEST(ObjectRecord, EveryChangedByteOfTheEndIsNoticedOrChangesNothing) {
  const ObjectRecord record = some_record(100, false);
  const auto whole = file_of(record);
  for (std::size_t at = record.bytes; at < whole.size(); ++at) {
    auto file = whole;
    file[at] ^= std::byte{0x10};
    const auto back = read_end(file);
    EXPECT_TRUE(!back || (*back == record && at < align_up(record.bytes, 8))) << at;
  }
}

TEST(ObjectRecord, LengthsThatContradictAreRefusedThoughTheirChecksumIsRight) {
  ObjectRecord record = some_record(64, false);
  record.bytes = 72;
  std::vector<std::byte> end = encode_end(record);
  store(end.data() + end.size() - 16, std::uint64_t{64 + end.size()});
  std::vector<std::byte> file(64);
  file.insert(file.end(), end.begin(), end.end());
  const auto back = read_end(file);
  ASSERT_FALSE(back);
  EXPECT_NE(back.error().message.find("72 bytes"), std::string::npos) << back.error().message;
  record.bytes = ~0ull - 7;
  end = encode_end(record);
  store(end.data() + end.size() - 16, std::uint64_t{end.size()});
  EXPECT_FALSE(read_end(end));
}

}  // namespace
}  // namespace offpath::pool
