#include "sift/tracks/track_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "sift/tracks/particle_tracks.h"

// A hanging file server. This function replaces the C library's.
static std::atomic<bool> server_hangs = false;
static std::atomic<int> hanging_calls = 0;
extern "C" int fdatasync(int fd) {
  if (server_hangs) ++hanging_calls;
  server_hangs.wait(true);
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;
namespace files = std::filesystem;

class TrackPartsTest : public ::testing::Test {
 protected:
  TrackPartsTest() {
    std::string name = files::temp_directory_path() / "track_parts_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    parts.set_self("a");
  }
  ~TrackPartsTest() override { files::remove_all(root_); }

  TrackSnapshot rows(std::uint64_t count) { return particle_tracks(form_, count, memory_); }
  static TrackParts::Asker from(std::uint64_t write, std::uint64_t ticket = 1) {
    return {.channel = 5, .ticket = ticket, .write = write};
  }
  void begin(std::uint64_t write, const std::string& name = "d", uid_t user = 7) {
    parts.begin(from(write), user, rows(100),
                {.path = root_ + "/" + name, .writer = {"a", 7, write}, .step_bytes = 20 * 45}, memory_,
                now + second_ns, now, effects);
  }
  bool run_job() {
    for (std::size_t i = 0; i < effects.size(); ++i)
      if (auto* job = std::get_if<service::JobEffect>(&effects[i])) {
        const service::JobEffect taken = std::move(*job);
        effects.erase(effects.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_TRUE(service::is_file_job(taken.token));
        const Status status = runs ? taken.run() : fail(Error::no_memory, "out of memory");
        if (const std::uint64_t number = service::number_of(taken.token); parts.has(number))
          parts.on_job(number, status, now, effects);
        return true;
      }
    return false;
  }
  void run_jobs() {
    while (run_job()) {
    }
  }
  // Runs in a thread that the pool of threads has abandoned: the file server hangs.
  std::thread run_job_in_vain() {
    for (std::size_t i = 0; i < effects.size(); ++i) {
      auto* const job = std::get_if<service::JobEffect>(&effects[i]);
      if (job == nullptr) continue;
      service::JobEffect taken = std::move(*job);
      effects.erase(effects.begin() + static_cast<std::ptrdiff_t>(i));
      const int before = hanging_calls;
      std::thread thread([run = std::move(taken.run)] { (void)run(); });
      while (hanging_calls == before) std::this_thread::yield();
      parts.on_job(service::number_of(taken.token), fail(Error::timeout, "the job made no progress"), now, effects);
      return thread;
    }
    ADD_FAILURE() << "there is no job";
    return {};
  }
  std::size_t files_in(const std::string& name) const {
    const files::path at = root_ + "/" + name;
    if (!files::exists(at)) return 0;
    return static_cast<std::size_t>(std::count_if(files::directory_iterator(at), {}, [](const auto& each) {
      return each.path().filename() != ".offpath-write";
    }));
  }

  TimeNs now = second_ns;
  bool runs = true;  // runs jobs; false: there is no memory for them
  std::uint64_t next = 1;
  std::vector<std::pair<std::uint64_t, Result<wire::Written>>> told;  // by ticket
  service::Effects effects;
  TrackParts parts{[this] { return next++; },
                   [this](const TrackParts::Asker& to, Result<wire::Written> answer, TimeNs, service::Effects&) {
                     told.emplace_back(to.ticket, std::move(answer));
                   }};
  std::string root_;
  FrameMemory memory_{BufferCache::make({.huge_pages = false}), 7};
  std::shared_ptr<const TrackForm> form_ = TrackForm::make(particle_schema(), "id").value();
};

TEST_F(TrackPartsTest, APartIsWrittenInStepsAndPublished) {
  begin(1);
  ASSERT_TRUE(run_job());
  EXPECT_TRUE(told.empty());
  now += second_ns;
  parts.on_time(now, effects);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second->rows, 20u);
  EXPECT_FALSE(told[0].second->over);
  parts.more(from(1, 2), now + second_ns, now, effects);
  run_jobs();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].first, 2u);
  EXPECT_EQ(told[1].second->rows, 100u);
  EXPECT_TRUE(told[1].second->over);
  EXPECT_EQ(parts.counters().rows, 0u);
  parts.publish(from(1, 3), now, effects);
  run_jobs();
  ASSERT_EQ(told.size(), 3u);
  EXPECT_TRUE(told[2].second->over);
  EXPECT_EQ(parts.counters().rows, 100u);
  EXPECT_EQ(parts.counters().files, 1u);
  EXPECT_EQ(files_in("d"), 1u);
  now = parts.next_deadline();
  parts.on_time(now, effects);
  run_jobs();
  EXPECT_EQ(files_in("d"), 1u) << "published files stay when the asker is gone";
  EXPECT_EQ(parts.next_deadline(), never);
}

TEST_F(TrackPartsTest, PartsWhoseAskerIsGoneEnd) {
  begin(1, "d");
  begin(2, "e");
  ASSERT_TRUE(run_job());
  run_job();
  EXPECT_EQ(files_in("d"), 1u);
  EXPECT_EQ(files_in("e"), 1u);
  parts.on_closed(5, now, effects);
  run_jobs();
  EXPECT_EQ(files_in("d"), 0u);
  EXPECT_EQ(files_in("e"), 0u);
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(parts.next_deadline(), never);

  begin(3, "f");
  run_jobs();
  EXPECT_EQ(files_in("f"), 1u);
  now = parts.next_deadline();
  EXPECT_GE(now, second_ns + TrackParts::asker_gone_ns);
  parts.on_time(now, effects);
  run_jobs();
  EXPECT_EQ(files_in("f"), 0u);
}

TEST_F(TrackPartsTest, AnAbandonedPartIsRemovedWhateverItDoes) {
  for (const int jobs : {0, 1, 3, 100}) {
    begin(1);
    for (int i = 0; i < jobs && run_job(); ++i) {
    }
    parts.abandon(from(1), now, effects);
    run_jobs();
    EXPECT_EQ(files_in("d"), 0u) << "after " << jobs;
  }
  begin(1);
  run_jobs();
  parts.publish(from(1), now, effects);
  run_jobs();
  EXPECT_EQ(files_in("d"), 1u);
  parts.abandon(from(1), now, effects);
  run_jobs();
  EXPECT_EQ(files_in("d"), 0u) << "another member has failed";
  told.clear();
  parts.more(from(1), now, now, effects);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.error().code, Error::not_found);
}

TEST_F(TrackPartsTest, AFailureIsToldWithTheMembersName) {
  begin(1, "none/d");
  run_jobs();
  ASSERT_EQ(told.size(), 1u);
  ASSERT_FALSE(told[0].second);
  EXPECT_THAT(told[0].second.error().message, HasSubstr("member a: "));

  begin(2, "none/d");
  now += 2 * second_ns;
  parts.on_time(now, effects);
  told.clear();
  run_jobs();
  EXPECT_TRUE(told.empty()) << "nobody waits";
  parts.more(from(2), now + second_ns, now, effects);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_FALSE(told[0].second);
}

TEST_F(TrackPartsTest, AUserHasFewAtATime) {
  for (std::uint64_t write = 0; write <= TrackParts::user_parts_max; ++write) begin(write);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.error().code, Error::too_large);
  begin(100, "d", 8);
  EXPECT_EQ(told.size(), 1u);
  begin(100, "d", 9);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].second.error().code, Error::exists);
  parts.on_closed(5, now, effects);
  run_jobs();
}

// Otherwise one user would take a thread for each of any number of writes.
TEST_F(TrackPartsTest, AThreadThatWasGivenUpCountsForItsUserUntilItIsBack) {
  server_hangs = true;
  std::vector<std::thread> threads;
  for (std::uint64_t write = 1; write <= TrackParts::user_parts_max; ++write) {
    begin(write, "d" + std::to_string(write));
    threads.push_back(run_job_in_vain());
    ASSERT_EQ(told.size(), write);
    EXPECT_EQ(told.back().second.error().code, Error::timeout);
  }
  EXPECT_FALSE(run_job()) << "the threads have the files, and remove them";
  EXPECT_EQ(files_in("d1"), 1u);
  told.clear();
  begin(100, "e");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.error().code, Error::too_large);
  EXPECT_THAT(told[0].second.error().message, HasSubstr("8 writes of tracks of user 7 are under way"));
  begin(101, "f", 8);
  EXPECT_EQ(told.size(), 1u) << "another user is not held up";
  server_hangs = false;
  server_hangs.notify_all();
  for (std::thread& each : threads) each.join();
  for (std::uint64_t write = 1; write <= TrackParts::user_parts_max; ++write)
    EXPECT_EQ(files_in("d" + std::to_string(write)), 0u) << "removed by the thread that came back";
  begin(102, "g");
  run_jobs();
  EXPECT_EQ(told.size(), 3u) << "of users 8 and 7";
  EXPECT_TRUE(told.back().second && told.back().second->over);
}

TEST_F(TrackPartsTest, PublishedPartsCountNoMoreAndFinish) {
  for (std::uint64_t write = 1; write <= TrackParts::user_parts_max + 1; ++write) {
    const std::string name = "d" + std::to_string(write);
    begin(write, name);
    run_jobs();
    parts.publish(from(write), now, effects);
    run_jobs();
    ASSERT_TRUE(told.back().second) << told.back().second.error().message;
    EXPECT_EQ(files_in(name), 1u);
  }
  for (std::uint64_t write = 1; write <= TrackParts::user_parts_max + 1; ++write) {
    parts.finish(from(write), now, effects);
    run_jobs();
    EXPECT_TRUE(told.back().second && told.back().second->over);
    EXPECT_FALSE(files::is_symlink(root_ + "/d" + std::to_string(write) + "/.offpath-write"));
  }
  EXPECT_EQ(parts.next_deadline(), never) << "nothing is left of them";
}

TEST_F(TrackPartsTest, APartThatIsWrittenIsKeptAsLongAsItIsAskedFor) {
  begin(1);
  run_jobs();
  for (int i = 0; i < 4; ++i) {
    now += TrackParts::asker_gone_ns / 2;
    parts.on_time(now, effects);
    told.clear();
    parts.more(from(1, 2), never, now, effects);
    EXPECT_TRUE(told.empty()) << "it is confirmed first";
    run_jobs();
    ASSERT_EQ(told.size(), 1u);
    EXPECT_TRUE(told[0].second && told[0].second->over);
  }
  parts.publish(from(1, 3), now, effects);
  run_jobs();
  EXPECT_EQ(files_in("d"), 1u);
  EXPECT_EQ(parts.counters().files, 1u);
}

TEST_F(TrackPartsTest, AJobThatCannotRunLeavesNothing) {
  begin(1);
  ASSERT_TRUE(run_job());
  EXPECT_EQ(files_in("d"), 1u);
  runs = false;
  ASSERT_TRUE(run_job());
  runs = true;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.error().code, Error::no_memory);
  run_jobs();
  EXPECT_EQ(files_in("d"), 0u);
}

TEST_F(TrackPartsTest, WhoeverWaitsForAPartThatEndsIsTold) {
  begin(1);
  parts.abandon(from(1), now, effects);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.error().code, Error::cancelled);
  run_jobs();
}

TEST_F(TrackPartsTest, OnlyAWrittenPartIsPublished) {
  begin(1);
  parts.publish(from(1, 2), now, effects);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.error().code, Error::invalid);
  run_jobs();
}

}  // namespace
}  // namespace offpath::sift
