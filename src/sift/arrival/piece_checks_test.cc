#include "sift/arrival/piece_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sift/one_sift.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TEST(PieceChecks, BadPutsAreAnsweredAndLeaveNothing) {
  OneSift agent("sift:/t?key=id&threshold=64KiB&budget=1MiB");
  const auto refused = [&](std::string_view row_key, FramePtr frame) {
    agent.sift->on_put(1, row_key, std::move(frame), 0, agent.effects);
    const auto answers = agent.take<StoredEffect>();
    return answers.size() == 1 && !answers[0].status ? answers[0].status.error().message : std::string("taken");
  };
  EXPECT_THAT(refused("step", agent.frame(0, 10, 0)), HasSubstr("does not end in the number"));
  EXPECT_THAT(refused("1", nullptr), HasSubstr("not an Arrow frame"));
  auto plain = std::make_shared<service::Frame>();
  plain->buffer = agent.program.cache->take(1000, 7).value();
  plain->bytes = 1000;
  EXPECT_THAT(refused("1", plain), HasSubstr("not an Arrow frame"));
  frame::Schema schema = particle_schema();
  schema.fields[0].name = "nr";
  EXPECT_THAT(refused("1", RowForm::make(schema, "nr").value()->make_frame(3, agent.program).value().frame),
              HasSubstr("no column 'id'"));
  EXPECT_THAT(refused("1", agent.frame(0, 100'000, 0)), HasSubstr("budget of '/t' is 1048576"));
  EXPECT_EQ(refused("1", agent.frame(0, 10, 0)), "taken");
  schema = particle_schema();
  schema.fields[2].type = frame::Type::float64;
  EXPECT_THAT(refused("2", RowForm::make(schema, "id").value()->make_frame(3, agent.program).value().frame),
              HasSubstr("column 2 is 'y' float64"));
  EXPECT_EQ(agent.sift->counters(1).pieces_taken, 1u);
  EXPECT_EQ(agent.sift->counters(1).refused, 6u);
}

TEST(PieceChecks, AColumnIsNotCalledAsTheStepsInAnswers) {
  for (const char* key : {"id", "step"}) {
    OneSift agent(fmt::format("sift:/t?key={}", key));
    frame::Schema schema = particle_schema();
    schema.fields[key == std::string("id") ? 3 : 0].name = "step";
    const FramePtr frame = RowForm::make(schema, key).value()->make_frame(3, agent.program).value().frame;
    agent.sift->on_put(1, "1", frame, 0, agent.effects);
    const auto answers = agent.take<StoredEffect>();
    ASSERT_EQ(answers.size(), 1u);
    ASSERT_FALSE(answers[0].status) << key;
    EXPECT_EQ(answers[0].status.error().code, Error::schema);
    EXPECT_THAT(answers[0].status.error().message,
                HasSubstr("is called 'step', the name of the column with the steps"));
  }
  OneSift agent("sift:/t?key=id");
  agent.sift->on_put(1, "1", agent.frame(0, 10, 0), 0, agent.effects);
  EXPECT_TRUE(agent.take<StoredEffect>().at(0).status);
}

// For its size, or for an identifier that only a job sees.
TEST(PieceChecks, AFrameThatIsRefusedSaysNothingOfTheColumns) {
  OneSift agent("sift:/t?key=id&by=hash&threshold=64KiB&budget=32MiB");
  frame::Schema schema = particle_schema();
  schema.fields[0].type = frame::Type::utf8;
  const auto usual = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  schema.fields[2].type = frame::Type::float64;
  const auto other = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  const auto put = [&](const RowForm& form, std::uint64_t rows, std::byte first) {
    const FramePtr frame = particle_frame(form, std::vector<std::uint64_t>(rows, 5), 1, agent.program);
    const_cast<std::byte&>(*form.view({frame->buffer.data(), frame->bytes}).value().text) = first;
    agent.sift->on_put(1, "1", frame, 0, agent.effects);
    agent.run_jobs();
    const auto answers = agent.take<StoredEffect>();
    return answers.size() != 1 ? "no answer" : answers[0].status ? "taken" : answers[0].status.error().message;
  };
  constexpr std::byte letter{'p'}, none{0xFF};
  EXPECT_THAT(put(*other, 1'000'000, letter), HasSubstr("budget of '/t'"));
  EXPECT_THAT(put(*usual, 1'000'000, letter), HasSubstr("budget of '/t'"));
  for (const std::uint64_t rows : {10u, 40'000u}) EXPECT_THAT(put(*other, rows, none), HasSubstr("is not UTF-8"));
  EXPECT_EQ(put(*usual, 10, letter), "taken");
  EXPECT_THAT(put(*other, 10, letter), HasSubstr("column 2 is 'y' float64"));
  EXPECT_THAT(put(*usual, 10, none), HasSubstr("is not UTF-8"));
  EXPECT_EQ(put(*usual, 10, letter), "taken") << "they are still the pool's";
}

// Neither a split nor a copy uses rows whose offsets were not checked.
TEST(PieceChecks, ManyIdentifiersOfAnyLengthAreCheckedInAJobBeforeTheyAreUsed) {
  frame::Schema schema = particle_schema();
  schema.fields[0].type = frame::Type::utf8;
  const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  for (const bool kept : {false, true}) {
    OneSift agent("sift:/t?key=id&by=hash&threshold=64KiB&budget=64MiB", {"a"}, "a", kept);
    if (kept) agent.restore({});
    for (const std::uint64_t rows : {10u, 40'000u}) {
      const std::vector<std::uint64_t> ids(rows, 5);
      const auto put = [&](const auto& change) {
        FramePtr frame = particle_frame(*form, ids, 1, agent.program);
        const RowsView view = form->view({frame->buffer.data(), frame->bytes}).value();
        change(const_cast<std::byte*>(view.ids.values), const_cast<std::byte*>(view.text));
        agent.sift->on_put(1, "1", std::move(frame), 0, agent.effects);
        auto answers = agent.take<StoredEffect>();
        EXPECT_TRUE(answers.empty() || rows == 10) << "before its job";
        agent.run_jobs();
        agent.keep();
        for (StoredEffect& each : agent.take<StoredEffect>()) answers.push_back(std::move(each));
        if (answers.size() != 1) return std::string("no answer");
        return answers[0].status ? std::string("taken") : answers[0].status.error().message;
      };
      EXPECT_THAT(put([](std::byte* offsets, std::byte*) { store(offsets + 8, std::uint32_t{1} << 30); }),
                  HasSubstr("the identifier 'id' of row 1 is from"));
      EXPECT_THAT(put([](std::byte*, std::byte* text) { text[3] = std::byte{0xFF}; }), HasSubstr("is not UTF-8"));
      EXPECT_EQ(put([](std::byte*, std::byte*) {}), "taken");
    }
    EXPECT_EQ(agent.sift->counters(1).refused, 4u);
    agent.run();
    agent.flush();
    EXPECT_TRUE(agent.sift->idle());
    EXPECT_EQ(agent.sift->counters(1).used_bytes, 0u);
  }
}

TEST(PieceChecks, WrongPiecesAreRefusedAndComeAgain) {
  OneSift agent("sift:/t?key=id&fanout=4&threshold=1MiB", {"a", "b"});
  const std::uint32_t index = agent.sift->geometry().elements_of(0, 2).at(0),
                      other = agent.sift->geometry().elements_of(1, 2).at(0);
  const auto [header, frame] = offered(agent, index, 1, 100, 3);
  const auto answer_to = [&](const PieceHeader& changed, std::uint64_t bytes, const FramePtr& brought) {
    agent.sift->on_offer(1, changed, bytes, nullptr, 0, agent.effects);
    if (!agent.take<AdmitEffect>().empty()) agent.sift->on_pulled(1, brought, 0, agent.effects);
    const auto answers = agent.take<StoredEffect>();
    return answers.size() != 1 ? "no answer" : answers[0].status ? "taken" : answers[0].status.error().message;
  };
  PieceHeader wrong = header;
  wrong.pool = "/other";
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("no sift pool '/other'"));
  wrong = header;
  wrong.element.index = other;
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("does not hold element"));
  wrong = header;
  wrong.crc32c ^= 1;
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("checksum"));
  wrong = header;
  wrong.runs[0].rows = 99;
  EXPECT_THAT(answer_to(wrong, frame->bytes, frame), HasSubstr("100 rows, but its header says 99"));
  EXPECT_THAT(answer_to(header, frame->bytes + 8, frame), HasSubstr("were offered"));
  EXPECT_EQ(agent.sift->counters(2).used_bytes, 0u);
  EXPECT_EQ(answer_to(header, frame->bytes, frame), "taken");
}

// The frame with all columns but the identifiers in the bytes of the second one, and without those that are behind.
FramePtr with_overlap(const RowForm& form, const FramePtr& frame, const FrameMemory& memory) {
  std::vector<std::byte> bytes(frame->buffer.data(), frame->buffer.data() + frame->bytes);
  const frame::MessageRange batch = frame::parse_frame(bytes).value().messages.at(1);
  const RowsView view = form.view(bytes).value();
  const auto offset_of = [&](std::size_t column) {
    return static_cast<std::uint64_t>(view.columns[column].values - bytes.data()) - batch.body;
  };
  const std::uint64_t body_bytes = align_up(offset_of(1) + view.rows * view.columns[1].value_bytes, 8);
  std::byte* const metadata = bytes.data() + batch.begin + frame::message_prefix_bytes;
  for (std::uint64_t at = 0; at + 16 <= batch.metadata_bytes; at += 8) {
    const auto word = load<std::uint64_t>(metadata + at), length = load<std::uint64_t>(metadata + at + 8);
    if (word == batch.body_bytes) store(metadata + at, body_bytes);
    for (std::size_t column = 2; column < view.columns.size(); ++column)
      if (word == offset_of(column) && length == view.rows * view.columns[column].value_bytes)
        store(metadata + at, offset_of(1));
  }
  bytes.resize(batch.body + body_bytes);
  bytes.insert(bytes.end(), frame::end_marker.begin(), frame::end_marker.end());
  auto made = std::make_shared<service::Frame>();
  made->buffer = memory.cache->take(bytes.size(), memory.user).value();
  made->bytes = bytes.size();
  std::memcpy(made->buffer.data(), bytes.data(), bytes.size());
  return made;
}

// It is charged for its bytes, and its parts would have several times as many.
TEST(PieceChecks, APieceWhoseColumnsOverlapIsRefused) {
  OneSift agent("sift:/t?key=id&stages=2&fanout=4&threshold=1MiB", {"a", "b"});
  const std::uint32_t index = agent.sift->geometry().elements_of(0, 2).at(0);
  const auto [header, frame] = offered(agent, index, 1, 10'000, 3);
  const FramePtr overlapping = with_overlap(*agent.form, frame, agent.program);
  ASSERT_LT(overlapping->bytes, 10'000 * 14u);
  const auto answer_to = [&](const PieceHeader& offer, const FramePtr& piece) {
    agent.sift->on_offer(1, offer, piece->bytes, piece, 0, agent.effects);
    agent.run_jobs();
    const auto answers = agent.take<StoredEffect>();
    return answers.size() != 1 ? "no answer" : answers[0].status ? "taken" : answers[0].status.error().message;
  };
  EXPECT_THAT(answer_to(header, overlapping), HasSubstr("10000 rows alone have 370000: its columns overlap"));
  EXPECT_EQ(agent.sift->counters(2).used_bytes, 0u);
  EXPECT_EQ(answer_to(header, frame), "taken");
}

}  // namespace
}  // namespace offpath::sift
