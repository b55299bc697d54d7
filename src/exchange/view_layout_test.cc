#include "exchange/view_layout.h"

#include <gtest/gtest.h>

#include <string>

namespace offpath::exchange {
namespace {

// A view of two members, of which the second one has published nothing.
class ViewLayoutTest : public ::testing::Test {
 protected:
  ViewLayoutTest() {
    view_.entries.push_back({.member = 0, .present = true, .has_value = true, .epoch = 7, .age_ns = 5, .record = {}});
    view_.entries.back().record.bytes = bytes_of(record_);
    view_.entries.push_back({.member = 1, .present = false, .has_value = false, .epoch = 0, .age_ns = 0, .record = {}});
  }
  std::vector<std::byte> lay_out(std::uint64_t bytes_max) {
    wire::ViewHead head{};
    head.number = 3;
    return lay_out_view(head, view_, {}, bytes_max);
  }
  static wire::ViewHead head_of(const std::vector<std::byte>& bytes) { return load<wire::ViewHead>(bytes.data()); }
  static wire::ViewEntryRow row(const std::vector<std::byte>& bytes, std::size_t i) {
    return load<wire::ViewEntryRow>(bytes.data() + sizeof(wire::ViewHead) + i * sizeof(wire::ViewEntryRow));
  }

  const std::string record_ = "a record";
  View view_;
  static constexpr std::uint64_t rows_end = sizeof(wire::ViewHead) + 2 * sizeof(wire::ViewEntryRow);
};

TEST_F(ViewLayoutTest, RowsComeBeforeTheRecordsThatTheyName) {
  const auto bytes = lay_out(4096);
  const wire::ViewHead head = head_of(bytes);
  EXPECT_EQ(head.number, 3u);
  EXPECT_EQ(head.entries, 2u);
  EXPECT_EQ(head.figures, 0u);
  EXPECT_EQ(head.length, bytes.size());
  EXPECT_EQ(head.flags & wire::view_cut, 0u);
  const wire::ViewEntryRow first = row(bytes, 0), second = row(bytes, 1);
  EXPECT_EQ(first.member, 0u);
  EXPECT_EQ(first.epoch, 7u);
  EXPECT_EQ(first.flags, wire::entry_present | wire::entry_has_value);
  ASSERT_GE(first.offset, rows_end);
  ASSERT_EQ(first.length, record_.size());
  EXPECT_EQ(std::memcmp(bytes.data() + first.offset, record_.data(), record_.size()), 0);
  EXPECT_EQ(second.member, 1u);
  EXPECT_EQ(second.flags, 0u);
  EXPECT_EQ(second.length, 0u);
}

TEST_F(ViewLayoutTest, ARecordWithoutRoomIsCutAndTheViewSaysSo) {
  const auto bytes = lay_out(rows_end);
  EXPECT_EQ(head_of(bytes).entries, 2u);
  EXPECT_NE(head_of(bytes).flags & wire::view_cut, 0u);
  EXPECT_NE(row(bytes, 0).flags & wire::entry_cut, 0u);
  EXPECT_EQ(row(bytes, 0).length, 0u);
  EXPECT_LE(bytes.size(), rows_end);
}

TEST_F(ViewLayoutTest, WithoutRoomForRowsTheHeadIsLeft) {
  const auto bytes = lay_out(rows_end - 1);
  EXPECT_EQ(head_of(bytes).entries, 0u);
  EXPECT_NE(head_of(bytes).flags & wire::view_cut, 0u);
  EXPECT_EQ(bytes.size(), sizeof(wire::ViewHead));
}

}  // namespace
}  // namespace offpath::exchange
