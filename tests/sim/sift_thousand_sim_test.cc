// A sift pool of a thousand members in virtual time: sift_sim_test.cc draws the worlds with faults of every kind, of a
// hundred members at most. Here the carrier loses offers and answers, and repeats and reorders offers. After a flush
// every row that was put is in the tracks once, and each member has its share of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "sift/sift.h"
#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"
#include "sift_sim_carrier.h"
#include "testing/sanitized.h"

namespace offpath::sift {
namespace {

using simulated::Agent, simulated::Row;

constexpr std::size_t members_count = 1000;
constexpr std::uint64_t identifiers = 8'000;
constexpr std::int64_t steps = 2;

class Thousand : simulated::Carrier {
 public:
  // Names of so many bytes each.
  explicit Thousand(std::size_t name_bytes) : Carrier(1) {
    faults_ = {.offer_lost = 0.01, .answer_lost = 0.02, .repeated = 0.02, .job_fails = 0};
    settings_.pool = "/tracks";
    settings_.key = "id";
    settings_.stages = 2;
    settings_.fanout = 32;  // 1,024 elements have tracks
    settings_.threshold_bytes = 16 << 10;
    settings_.budget_bytes = 4 << 20;
    settings_.credit_bytes = settings_.budget_bytes;
    settings_.age_ns = 10 * millisecond_ns;
    form_ = TrackForm::make(particle_schema(), "id").value();
    std::vector<std::string> names;
    for (std::size_t i = 0; i < members_count; ++i) {
      names.push_back(fmt::format("glinda{:03}-0", i));
      names.back().resize(name_bytes, 'x');
    }
    agents_.resize(members_count);
    for (std::size_t i = 0; i < members_count; ++i) {
      agents_[i].name = names[i];
      agents_[i].memory = memory_;
      auto made = Sift::make({.settings = settings_, .self = {names[i], 1}, .memory = memory_}, names);
      if (!made) ADD_FAILURE() << made.error().message;
      agents_[i].sift = std::move(*made);
    }
  }

  // Each identifier once in each step, at an agent that is drawn anew.
  void put_all() {
    std::vector<std::vector<std::uint64_t>> shares(members_count);
    for (std::int64_t step = 0; step < steps; ++step) {
      for (auto& share : shares) share.clear();
      for (std::uint64_t id = 0; id < identifiers; ++id) shares[random_.below(members_count)].push_back(id);
      for (std::size_t i = 0; i < members_count; ++i) {
        if (shares[i].empty()) continue;
        ++puts_open_;
        const std::uint64_t token = agents_[i].next_token++;
        agents_[i].answers[token] = [this](const Status& status) {
          EXPECT_TRUE(status) << status.error().message;
          --puts_open_;
        };
        Effects effects;
        agents_[i].sift->on_put(token, fmt::format("step{:06}", step),
                                particle_frame(*form_->rows, shares[i], step, memory_), now_, effects);
        carry_out(i, effects);
      }
    }
    run_until([this] { return puts_open_ == 0; });
  }

  void flush() {
    std::size_t left = members_count;
    for (std::size_t i = 0; i < members_count; ++i) {
      const std::uint64_t token = agents_[i].next_token++;
      agents_[i].flushes[token] = [&left](const Status& status) {
        EXPECT_TRUE(status) << status.error().message;
        --left;
      };
      Effects effects;
      agents_[i].sift->on_flush(token, 1, now_ + 1000 * second_ns, now_, effects);
      carry_out(i, effects);
    }
    run_until([&left] { return left == 0; });
  }

  void check_tracks() {
    std::map<Row, int> found;
    std::size_t members_with_tracks = 0;
    for (Agent& agent : agents_) {
      const std::size_t before = found.size();
      TrackReader reader(agent.sift->tracks(), {}, 4096);
      each_row(reader, memory_, [&](const Row& row) { ++found[row]; });
      if (::testing::Test::HasFailure()) return;
      members_with_tracks += found.size() > before;
      for (std::uint32_t stage = 1; stage <= settings_.track_stage(); ++stage) {
        const StageCounters& counters = agent.sift->counters(stage);
        repeated_ += counters.repeated;
        EXPECT_LE(counters.used_bytes_peak, settings_.budget_bytes);
        EXPECT_EQ(counters.offers_waiting, 0u);
      }
    }
    EXPECT_EQ(found.size(), identifiers * steps);
    EXPECT_TRUE(std::ranges::all_of(found, [](const auto& row) { return row.second == 1; })) << "a row twice";
    EXPECT_GE(members_with_tracks, members_count / 2);
    EXPECT_GT(repeated_, 0u) << "no piece was offered twice: the faults are not there";
  }

 private:
  FrameMemory memory_{BufferCache::make({.cached_bytes_max = 1 << 20, .huge_pages = false}), 7};  // of all of them
  std::size_t puts_open_ = 0;
  std::uint64_t repeated_ = 0;
};

class SiftOfAThousand : public ::testing::TestWithParam<std::size_t> {};

TEST_P(SiftOfAThousand, EveryRowIsInTheTracksOnce) {
  Thousand world(GetParam());
  if (HasFailure()) return;
  world.put_all();
  world.flush();
  world.check_tracks();
}

constexpr std::size_t name_bytes[] = {63, 20};
INSTANTIATE_TEST_SUITE_P(NameBytes, SiftOfAThousand,
                         ::testing::ValuesIn(name_bytes, name_bytes + fewer_if_sanitized(2)));

}  // namespace
}  // namespace offpath::sift
