#include "channel/agent/answers.h"

#include <gtest/gtest.h>

namespace offpath::channel {
namespace {

constexpr std::uint32_t slots = 8, answered_stream = 1;

class AnswersTest : public testing::Test {
 protected:
  void add(std::uint64_t ticket, std::size_t bytes, std::uint32_t failed_stream = wire::any_reply) {
    answers.add(wire::ReplyKind::done, ticket, std::vector<std::byte>(bytes), failed_stream);
  }
  bool compose(std::uint64_t head) {
    auto wrote = answers.compose(head);
    return wrote && *wrote;
  }
  // Slots whose answers leave no more than `left` for others.
  void fill(std::uint64_t left) {
    for (std::uint64_t i = answers.ring().position(); i + left < slots; ++i) {
      add(100 + i, 8);
      ASSERT_TRUE(compose(0));
    }
  }
  const wire::CompletionLine& published() {
    lines.all_published();
    return lines.publish(answered_stream);
  }

  CompletionLines lines{4};
  std::vector<std::byte> memory = std::vector<std::byte>(slots * wire::slot_bytes);
  Answers answers{memory.data(), slots, lines};
};

TEST_F(AnswersTest, AreWrittenInTheirOrder) {
  add(1, 8);
  add(2, 8);
  EXPECT_TRUE(compose(0));
  EXPECT_EQ(answers.ring().position(), 2u);
  EXPECT_TRUE(answers.empty());
  EXPECT_FALSE(compose(0)) << "nothing is left";
  EntryReader reader(slots, EntryReader::Tickets::given);
  for (const std::uint64_t ticket : {1, 2}) {
    Entry entry;
    const auto slot = load<wire::Slot>(memory.data() + reader.position() * wire::slot_bytes);
    ASSERT_TRUE(reader.verifies(slot));
    ASSERT_TRUE(*reader.take(slot, entry));
    EXPECT_EQ(entry.ticket, ticket);
  }
}

TEST_F(AnswersTest, WaitForRoomAndKeepTheirOrder) {
  fill(1);
  add(1, 2 * wire::slot_bytes);  // more than the room
  add(2, 8);                     // would have some
  EXPECT_FALSE(compose(0));
  EXPECT_FALSE(compose(1));
  EXPECT_TRUE(compose(slots - 1));
  EXPECT_TRUE(answers.empty());
}

TEST_F(AnswersTest, OneThatIsLargerThanAnEntryMayBeIsWrittenInParts) {
  add(1, (slots + 2) * wire::slot_bytes);
  EXPECT_TRUE(compose(0));
  EXPECT_EQ(answers.ring().position(), slots);
  EXPECT_FALSE(answers.empty());
  EXPECT_FALSE(compose(0)) << "the program has read nothing";
  EXPECT_TRUE(compose(slots));
  EXPECT_TRUE(answers.empty());
}

TEST_F(AnswersTest, AFailureHoldsBackItsStreamButNotItsCredit) {
  fill(0);
  lines.set_pulled(answered_stream, 5);
  lines.set_stored(answered_stream, 4);
  lines.set_credit(answered_stream, 7);
  add(1, 8, answered_stream);
  add(2, 8, answered_stream);
  EXPECT_EQ(published().pulled, 0u);
  EXPECT_EQ(lines.written(answered_stream).stored, 0u);
  EXPECT_EQ(lines.written(answered_stream).credit, 7u);
  EXPECT_TRUE(compose(1));
  EXPECT_EQ(published().pulled, 0u) << "one of two is not there yet";
  EXPECT_TRUE(lines.changed().empty());
  EXPECT_TRUE(compose(2));
  ASSERT_EQ(lines.changed().size(), 1u) << "to be written after the ring";
  EXPECT_EQ(published().pulled, 5u);
  EXPECT_EQ(lines.written(answered_stream).stored, 4u);
}

TEST_F(AnswersTest, AHeadBeyondTheTailIsRefused) {
  add(1, 8);
  const auto wrote = answers.compose(1);
  ASSERT_FALSE(wrote);
  EXPECT_EQ(wrote.error().code, Error::protocol);
  EXPECT_FALSE(answers.empty());
}

TEST_F(AnswersTest, AreFullBeforeTheyTakeMuchMemory) {
  for (std::uint64_t ticket = 1; !answers.full(); ++ticket) {
    ASSERT_LE(ticket, 1024u);
    add(ticket, 8);
  }
}

TEST_F(AnswersTest, ForALinkThatWritesAreComposedElsewhere) {
  Answers apart(nullptr, slots, lines);
  apart.add(wire::ReplyKind::done, 3, {});
  ASSERT_TRUE(apart.compose(0));
  EntryReader reader(slots, EntryReader::Tickets::given);
  EXPECT_TRUE(reader.verifies(load<wire::Slot>(apart.slot(0))));
}

}  // namespace
}  // namespace offpath::channel
