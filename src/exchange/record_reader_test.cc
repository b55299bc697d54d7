#include "exchange/record_reader.h"

#include <gtest/gtest.h>

#include "wire/areas/exchange_area.h"

namespace offpath::exchange {
namespace {

constexpr std::uint64_t record_bytes = 10'000;

class RecordReaderTest : public ::testing::Test {
 protected:
  // The program publishes a record; `torn`: it has not finished writing.
  void publish(std::uint64_t number, std::string_view text, bool torn = false, TimeNs published_at = 0) {
    wire::RecordHead head{};
    head.number = number;
    head.length = text.size();
    head.view_number = 4;
    head.published_at_ns = published_at;
    head.crc32c = wire::record_crc(number, bytes_of(text)) ^ (torn ? 1u : 0u);
    const std::uint64_t at = wire::record_slot_at(number, record_bytes);
    store(area_.data() + at, head);
    std::memcpy(area_.data() + at + sizeof head, text.data(), text.size());
    wire::PublishLine line{};
    line.number = number;
    store(area_.data(), line);
  }
  void copy(const RecordReader::Pull& pull) {
    ASSERT_LE(pull.room_at + pull.length, reader_.room()->size());
    ASSERT_LE(pull.offset + pull.length, area_.size());
    std::memcpy(reader_.room()->data() + pull.room_at, area_.data() + pull.offset, pull.length);
    ++pulls_;
  }
  // Reads to the end. `torn` counts.
  RecordReader::Step read(TimeNs now = 0) {
    auto next = reader_.begin(now);
    RecordReader::Step step;
    while (next) {
      copy(*next);
      step = reader_.on_read({}, now);
      torn_ += step.torn;
      next = step.next;
    }
    return step;
  }
  static std::string text_of(const RecordReader::Step& step) {
    if (!step.record) return "(none)";
    const auto& bytes = *step.record->bytes;
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::vector<std::byte> area_{wire::exchange_area_bytes(record_bytes, 4096)};
  RecordReader reader_{record_bytes, 0};
  int pulls_ = 0, torn_ = 0;
};

TEST_F(RecordReaderTest, NothingWasPublished) {
  EXPECT_EQ(text_of(read()), "(none)");
  EXPECT_EQ(pulls_, 1) << "the line alone";
}

TEST_F(RecordReaderTest, AShortRecordTakesTwoReadsAndIsReadOnce) {
  publish(1, "short", false, 77);
  const auto step = read(5);
  EXPECT_EQ(text_of(step), "short");
  EXPECT_EQ(step.record->number, 1u);
  EXPECT_EQ(step.record->view_number, 4u);
  EXPECT_EQ(step.record->published_at_ns, 77);
  EXPECT_EQ(reader_.number(), 1u);
  EXPECT_EQ(reader_.seen_at(), 5);
  EXPECT_EQ(pulls_, 2);
  EXPECT_EQ(text_of(read(6)), "(none)");
  EXPECT_EQ(pulls_, 3);
  EXPECT_EQ(reader_.not_before(), 5) << "the reading before this one";
}

TEST_F(RecordReaderTest, ALongRecordTakesThree) {
  const std::string text(9000, 'r');
  publish(1, text);
  EXPECT_EQ(text_of(read()), text);
  EXPECT_EQ(pulls_, 3);
  publish(2, "next");
  EXPECT_EQ(text_of(read()), "next");
}

TEST_F(RecordReaderTest, ATornRecordIsReadThreeTimesAndTheOneBeforeStands) {
  publish(1, "whole");
  EXPECT_EQ(text_of(read()), "whole");
  publish(2, "half", true);
  EXPECT_EQ(text_of(read()), "(none)");
  EXPECT_EQ(torn_, 3);
  EXPECT_EQ(reader_.number(), 1u);
  publish(2, "half and half");
  EXPECT_EQ(text_of(read()), "half and half") << "the count begins anew";
  EXPECT_EQ(torn_, 3);
}

TEST_F(RecordReaderTest, ALengthBeyondTheRecordsIsTorn) {
  publish(1, "x");
  auto head = load<wire::RecordHead>(area_.data() + wire::record_slot_at(1, record_bytes));
  head.length = record_bytes + 1;
  store(area_.data() + wire::record_slot_at(1, record_bytes), head);
  EXPECT_EQ(text_of(read()), "(none)");
  EXPECT_EQ(torn_, 3);
}

TEST_F(RecordReaderTest, AReadingThatIsAskedForMeanwhileFollows) {
  publish(1, "first");
  const auto line = reader_.begin(0);
  ASSERT_TRUE(line);
  EXPECT_FALSE(reader_.begin(1));
  copy(*line);
  const auto slot = reader_.on_read({}, 2);
  ASSERT_TRUE(slot.next);
  copy(*slot.next);
  const auto step = reader_.on_read({}, 3);
  EXPECT_EQ(text_of(step), "first");
  EXPECT_TRUE(step.again);
  EXPECT_TRUE(reader_.begin(4));
}

TEST_F(RecordReaderTest, AFailedReadEndsTheReading) {
  publish(1, "first");
  ASSERT_TRUE(reader_.begin(0));
  const auto step = reader_.on_read(fail(Error::peer_lost, "gone"), 1);
  EXPECT_FALSE(step.next);
  EXPECT_FALSE(step.record);
  EXPECT_EQ(text_of(read()), "first");
}

}  // namespace
}  // namespace offpath::exchange
