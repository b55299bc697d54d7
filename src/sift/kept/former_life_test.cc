#include "sift/kept/former_life.h"

#include <gtest/gtest.h>

#include "sift/split/particles.h"

namespace offpath::sift {
namespace {

constexpr ElementId first_element{1, 0};

class FormerLifeTest : public ::testing::Test {
 protected:
  static std::string split_name(std::uint64_t number) {
    return KeptName{KeptName::Kind::split, first_element, {}, number}.text();
  }
  FramePtr split_object(const ElementRecord& record) {
    const std::vector<std::byte> notes = encode(record);
    auto object = std::make_shared<service::Frame>();
    object->bytes = kept_bytes(0, notes.size());
    object->buffer = memory_.cache->take(object->bytes, memory_.user).value();
    write_notes(object->buffer.bytes(), 0, notes);
    return object;
  }
  void begin(const std::vector<std::string>& names) {
    std::vector<KeptItem> items;
    for (const std::string& name : names) items.push_back({name, 100, 10});
    life_.begin(items, geometry_, 0, elements_, effects_);
  }
  template <class Kind>
  std::vector<Kind> take() {
    std::vector<Kind> found;
    for (const Effect& effect : effects_)
      if (const auto* kind = std::get_if<Kind>(&effect)) found.push_back(*kind);
    effects_.clear();
    return found;
  }

  FrameMemory memory_{BufferCache::make({.huge_pages = false}), 7};
  SiftOptions options_{.settings = parse_settings("sift:/t?key=id&fanout=2&spill=durable").value(),
                       .self = {"a", 2},
                       .memory = memory_,
                       .kept = true};
  Geometry geometry_ = Geometry::make(options_.settings, {"a"}).value();
  Elements elements_;
  PoolForm form_;
  std::uint64_t next_token_ = 1;
  FormerLife life_{options_, form_, next_token_};
  Effects effects_;
};

TEST_F(FormerLifeTest, WithoutObjectsItIsComplete) {
  begin({});
  EXPECT_TRUE(life_.is_complete());
  EXPECT_TRUE(effects_.empty());
}

TEST_F(FormerLifeTest, PiecesOfSourcesThatAreNoMembersAreNone) {
  const auto piece_of = [](std::uint32_t source) {
    return KeptName{KeptName::Kind::piece, first_element, {source, 2, 1}, 0}.text();
  };
  begin({piece_of(0), piece_of(1), piece_of(UINT32_MAX)});
  ASSERT_EQ(life_.pieces.size(), 1u);
  EXPECT_EQ(life_.pieces[0].second.name, piece_of(0));
}

TEST_F(FormerLifeTest, ReadsTheNewestSplitAndForgetsOlderOnes) {
  begin({split_name(3), split_name(5), split_name(4)});
  std::vector<std::string> forgotten;
  std::vector<ReadEffect> reads;
  for (const Effect& effect : effects_) {
    if (const auto* read = std::get_if<ReadEffect>(&effect)) reads.push_back(*read);
    if (const auto* old = std::get_if<ForgetEffect>(&effect)) forgotten.push_back(old->name);
  }
  EXPECT_EQ(forgotten, (std::vector{split_name(3), split_name(4)}));
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].name, split_name(5));
  EXPECT_EQ(elements_[first_element].number, 5u) << "no number is given again";
  EXPECT_FALSE(life_.is_complete());
  ElementRecord record;
  record.number = 5;
  record.next_sequences = {7, 8};
  life_.on_read(reads[0].token, split_object(record), 0, effects_);
  EXPECT_TRUE(life_.is_complete());
  ASSERT_TRUE(life_.splits.contains(first_element));
  EXPECT_EQ(life_.splits.at(first_element).next_sequences, record.next_sequences);
}

TEST_F(FormerLifeTest, AReadThatFailsIsTriedAgain) {
  begin({split_name(1)});
  const auto reads = take<ReadEffect>();
  ASSERT_EQ(reads.size(), 1u);
  life_.on_read(reads[0].token, fail(Error::io, "the disk fails"), 10, effects_);
  EXPECT_EQ(life_.next_deadline(), 10 + options_.retry_max_ns);
  EXPECT_FALSE(life_.is_complete());
  life_.on_time(10 + options_.retry_max_ns, effects_);
  const auto again = take<ReadEffect>();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].token, reads[0].token);
  life_.on_read(again[0].token, split_object({}), 20, effects_);
  EXPECT_TRUE(life_.is_complete());
  EXPECT_EQ(life_.next_deadline(), never);
}

TEST_F(FormerLifeTest, AnObjectThatIsGoneOrDamagedIsLostAndEndsNothingElse) {
  begin({split_name(1)});
  const auto reads = take<ReadEffect>();
  FramePtr damaged = split_object({});
  std::memset(damaged->buffer.data(), 0xFF, damaged->bytes);
  life_.on_read(reads[0].token, damaged, 0, effects_);
  EXPECT_TRUE(life_.is_complete());
  EXPECT_TRUE(life_.splits.empty());
}

TEST_F(FormerLifeTest, ARunOfTracksIsOpenedByAJobAndTeachesTheForm) {
  const std::vector<std::uint64_t> ids{1, 2, 3};
  const auto tracks = TrackForm::make(particle_schema(), "id").value();
  const FramePtr frame = particle_frame(*tracks->rows, ids, 4, memory_);
  Piece piece{frame, tracks->rows->view({frame->buffer.data(), frame->bytes}).value(), {{4, 3}}};
  ElementRecord record;
  record.number = 2;
  const auto schema = tracks->rows->make_frame(0, memory_).value().frame;
  const RunNotes notes{encode(record), {schema->buffer.data(), schema->buffer.data() + schema->bytes}};
  const auto run = TrackRun::sort(tracks->rows, {piece}, memory_, &notes).value();

  begin({KeptName{KeptName::Kind::run, first_element, {}, 2}.text()});
  const auto reads = take<ReadEffect>();
  ASSERT_EQ(reads.size(), 1u);
  life_.on_read(reads[0].token, run->object(), 0, effects_);
  EXPECT_FALSE(life_.is_complete());
  const auto jobs = take<JobEffect>();
  ASSERT_EQ(jobs.size(), 1u);
  ASSERT_TRUE(life_.has_job(jobs[0].token));
  life_.on_job(jobs[0].token, jobs[0].run(), 0);
  EXPECT_NE(form_.tracks, nullptr);
  EXPECT_TRUE(life_.is_complete());
  ASSERT_EQ(life_.runs[first_element].size(), 1u);
  EXPECT_EQ(life_.runs[first_element][0].run->rows(), 3u);
  EXPECT_EQ(life_.runs[first_element][0].record.number, 2u);
}

}  // namespace
}  // namespace offpath::sift
