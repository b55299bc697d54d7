#include "sift/tracks/track_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sift/tracks/particle_tracks.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

// One element whose identifiers 0, 1, ... have a row each, of step 3.
class TrackReadsTest : public ::testing::Test {
 protected:
  explicit TrackReadsTest(std::uint64_t bytes_max = 1 << 20)
      : reads_(bytes_max, [this](const pool::Get& get, const service::FramePtr& frame, TimeNs, service::Effects&) {
          answers_.emplace_back(get.ticket, form_->answers->view({frame->buffer.data(), frame->bytes})->rows);
        }) {}

  TrackSnapshot rows(std::uint64_t count) { return particle_tracks(form_, count, memory_); }
  Status read(std::uint64_t number, TrackReads::Wanted wanted, TrackSnapshot tracks) {
    return reads_.read(number, {.channel = 1, .ticket = 40 + number, .user = 7, .pool = "sift:/t", .keys = {}},
                       std::move(wanted), std::move(tracks), memory_, 0, effects_);
  }
  void run_job(std::uint64_t number) {
    ASSERT_TRUE(reads_.has(number));
    service::JobEffect& job = std::get<service::JobEffect>(effects_.at(0));
    EXPECT_EQ(job.token, service::token_of(service::ServiceId::sift, number));
    const Status status = job.run();
    effects_.clear();
    reads_.on_job(number, status, 0, effects_);
    EXPECT_FALSE(reads_.has(number));
  }
  static TrackReads::Wanted all_rows() { return {0, true, INT64_MIN, INT64_MAX, {}}; }
  static TrackReads::Wanted some(std::vector<std::uint64_t> identifiers) {
    return {0, false, INT64_MIN, INT64_MAX, std::move(identifiers)};
  }

  FrameMemory memory_{BufferCache::make({.huge_pages = false}), 7};
  std::shared_ptr<const TrackForm> form_ = TrackForm::make(particle_schema(), "id").value();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> answers_;  // ticket, rows
  service::Effects effects_;
  TrackReads reads_;
};

TEST_F(TrackReadsTest, FewRowsAreAnsweredAtOnce) {
  EXPECT_TRUE(read(1, some({2, 5}), rows(100)));
  EXPECT_THAT(answers_, ::testing::ElementsAre(std::pair(41, 2)));
  EXPECT_TRUE(effects_.empty());
}

TEST_F(TrackReadsTest, AllRowsOfAnElementAreReadInAJob) {
  EXPECT_TRUE(read(1, all_rows(), rows(100)));
  EXPECT_TRUE(answers_.empty());
  run_job(1);
  EXPECT_THAT(answers_, ::testing::ElementsAre(std::pair(41, 100)));
}

TEST_F(TrackReadsTest, TracksThatAreNotThereFail) {
  const Status none = read(1, some({200}), rows(100));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Error::not_found);
  EXPECT_TRUE(read(2, all_rows(), TrackSnapshot(nullptr, 1)));
  run_job(2);
  const auto& failed = std::get<service::FailEffect>(effects_.at(0));
  EXPECT_EQ(failed.ticket, 42u);
  EXPECT_EQ(failed.failure.code, Error::not_found);
}

class FewBytes : public TrackReadsTest {
 protected:
  FewBytes() : TrackReadsTest(1000) {}
};

TEST_F(FewBytes, AnAnswerThatWouldBeLargerFails) {
  EXPECT_TRUE(read(1, all_rows(), rows(100)));
  run_job(1);
  const auto& failed = std::get<service::FailEffect>(effects_.at(0));
  EXPECT_EQ(failed.failure.code, Error::too_large);
  EXPECT_THAT(failed.failure.message, HasSubstr("ask for fewer steps"));
}

}  // namespace
}  // namespace offpath::sift
