#include "measure.h"

#include <gtest/gtest.h>

#include <map>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <latch>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "machine.h"
#include "report.h"

namespace offpath::bench {
namespace {

TEST(Measure, MedianOfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{7}), 7);
}

TEST(Measure, QuantileInterpolates) {
  const std::vector<double> values{0, 10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 0);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 40);
  EXPECT_DOUBLE_EQ(quantile(values, 0.125), 5);
}

TEST(Measure, StandardDeviationIsTheSamples) {
  EXPECT_DOUBLE_EQ(standard_deviation(std::vector<double>{2, 4, 4, 4, 5, 5, 7, 9}), std::sqrt(32.0 / 7));
  EXPECT_DOUBLE_EQ(standard_deviation(std::vector<double>{5}), 0);
}

TEST(Measure, ARatioIsAsFarFromOneAsItsInverse) {
  EXPECT_DOUBLE_EQ(either_way(1), 1);
  EXPECT_DOUBLE_EQ(either_way(1.25), 1.25);
  EXPECT_DOUBLE_EQ(either_way(0.64), 1.5625);
  EXPECT_GT(either_way(0), 1e9);  // one of two got no time
}

// The ranks in published tables of order-statistic intervals: 6 and 16 of 21, 2 and 9 of 10.
TEST(Measure, IntervalRanks) {
  std::vector<double> values;
  for (int i = 1; i <= 21; ++i) values.push_back(i);
  EXPECT_DOUBLE_EQ(median_interval_95(values).low, 6);
  EXPECT_DOUBLE_EQ(median_interval_95(values).high, 16);
  values.resize(10);
  EXPECT_DOUBLE_EQ(median_interval_95(values).low, 2);
  EXPECT_DOUBLE_EQ(median_interval_95(values).high, 9);
  values.resize(5);  // too few for 95 %: the range
  EXPECT_DOUBLE_EQ(median_interval_95(values).low, 1);
  EXPECT_DOUBLE_EQ(median_interval_95(values).high, 5);
}

TEST(Measure, IntervalCoversTheTrueMedian) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> skewed(0, 1);  // median 1
  int covered = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<double> values(21);
    for (double& value : values) value = skewed(random);
    const Interval interval = median_interval_95(values);
    covered += interval.low <= 1 && 1 <= interval.high;
  }
  EXPECT_GE(covered, 950);
}

TEST(Measure, PairsAreInterleavedWarmedUpAndAlternate) {
  std::string order;
  const auto subject = [&]() -> Result<double> { return order += 'S', 2.0; };
  const auto peer = [&]() -> Result<double> { return order += 'P', 5.0; };
  const auto result = run_pairs({.pairs = 4, .warmups = 2}, subject, peer);
  ASSERT_TRUE(result);
  EXPECT_EQ(order,
            "SPSP"
            "SPSPSP"
            "PS");
  EXPECT_EQ(result->pairs, 4u);
  EXPECT_DOUBLE_EQ(result->subject, 2);
  EXPECT_DOUBLE_EQ(result->peer, 5);
  EXPECT_DOUBLE_EQ(result->ratio, 2.5);
}

// Each side keeps one of three buffers, and takes the one released last.
TEST(Measure, BothSidesGetEveryBufferThatGoesRound) {
  struct Side {
    char kept;
    std::map<char, int> got{};
  } subject{'a'}, peer{'b'};
  char free = 'c';
  const auto turn = [&free](Side& side) {
    return [&]() -> Result<double> {
      std::swap(side.kept, free);
      ++side.got[side.kept];
      return 1.0;
    };
  };
  ASSERT_TRUE(run_pairs({.pairs = 21, .warmups = 0}, turn(subject), turn(peer)));
  const std::map<char, int> evenly{{'a', 7}, {'b', 7}, {'c', 7}};
  EXPECT_EQ(subject.got, evenly);
  EXPECT_EQ(peer.got, evenly);
}

// Drift that doubles every cost half way through changes the medians of the sides, but not the pairs' ratio.
TEST(Measure, RatioIsOfPairsNotOfMedians) {
  std::vector<double> subject, peer;
  for (int i = 0; i < 21; ++i) {
    const double drift = i < 10 ? 1 : 2 + i;
    subject.push_back(drift);
    peer.push_back(3 * drift);
  }
  const Comparison comparison = compare(subject, peer);
  EXPECT_DOUBLE_EQ(comparison.ratio, 3);
  EXPECT_DOUBLE_EQ(comparison.interval.low, 3);
  EXPECT_DOUBLE_EQ(comparison.interval.high, 3);
}

TEST(Measure, FailuresAndImpossibleCostsEndTheRun) {
  const auto good = []() -> Result<double> { return 1.0; };
  const auto bad = []() -> Result<double> { return fail(Error::io, "read of 4 bytes gave 2"); };
  const auto zero = []() -> Result<double> { return 0.0; };
  EXPECT_EQ(run_pairs({}, good, bad).error().message, "read of 4 bytes gave 2");
  EXPECT_EQ(run_pairs({.pairs = 3, .warmups = 0}, zero, good).error().code, Error::invalid);
}

TEST(Report, TargetsBoundFromTheirSide) {
  EXPECT_TRUE(value_at_most(400, "ns").met_by(400));
  EXPECT_FALSE(value_at_most(400, "ns").met_by(400.1));
  EXPECT_TRUE(ratio_at_least(0.95).met_by(0.95));
  EXPECT_FALSE(ratio_at_least(0.95).met_by(0.949));
  EXPECT_FALSE(ratio_at_least(0.95).met_by(not_measured));
  EXPECT_EQ(value_at_most(400, "ns").text(), "<= 400 ns");
  EXPECT_EQ(ratio_at_least(0.95).text(), ">= 0.95");
  EXPECT_EQ(ratio_at_least(5).text(), ">= 5x");
}

TEST(Report, AClaimHoldsByItsOwnFigureOnly) {
  Claim claim{.claim = "move.x", .value = 3, .unit = "GB/s", .ratio = 0.9, .target = ratio_at_least(0.95)};
  EXPECT_FALSE(claim.holds());
  claim.ratio = 0.96;
  EXPECT_TRUE(claim.holds());
  claim.why = "the peer could not run";
  EXPECT_FALSE(claim.holds());
}

TEST(Report, AnUnmeasuredClaimDoesNotHoldAndSaysWhy) {
  Report report("move");
  report.add_unmeasured("move.columns_vs_ucx", "us", ratio_at_least(2), "UCX is not installed");
  EXPECT_FALSE(report.all_hold());
  const std::string json = report.json();
  EXPECT_NE(json.find("\"value\": null"), std::string::npos);
  EXPECT_NE(json.find("\"holds\": false"), std::string::npos);
  EXPECT_NE(json.find("\"why\": \"UCX is not installed\""), std::string::npos);
  EXPECT_NE(report.table().find("NO"), std::string::npos);
}

TEST(Report, WhatDiffersFromRunToRunIsNoPartOfTheName) {
  Report report("pool");
  report.add(Claim{.claim = "pool.x", .value = 1, .unit = "us", .detail = "44 values", .peer_waits = "spinning"});
  const std::string json = report.json();
  EXPECT_NE(json.find(R"("detail": "44 values", "peer_waits": "spinning"})"), std::string::npos) << json;
  EXPECT_EQ(json.find("\"why\""), std::string::npos);
}

TEST(Report, JsonEscapes) {
  Report report("a\"b\\c\n");
  EXPECT_NE(report.json().find(R"("a\"b\\c\u000a")"), std::string::npos);
}

class FinishTest : public testing::Test {
 protected:
  Options options_{.json_path = testing::TempDir() + "offpath_bench_finish_test.json", .check = true};
  ~FinishTest() override { std::remove(options_.json_path.c_str()); }
};

TEST_F(FinishTest, CheckPassesFailsAndWritesEitherWay) {
  Report report("move");
  report.add(Claim{.claim = "fast", .value = 1, .unit = "ns", .target = value_at_most(2, "ns")});
  EXPECT_EQ(finish(report, options_), 0);
  report.add(Claim{.claim = "slow", .value = 3, .unit = "ns", .target = value_at_most(2, "ns")});
  EXPECT_EQ(finish(report, options_), 1);
  std::stringstream written;
  written << std::ifstream(options_.json_path).rdbuf();
  EXPECT_EQ(written.str(), report.json());
  options_.check = false;
  EXPECT_EQ(finish(report, options_), 0);
}

TEST_F(FinishTest, AnUnwritableFileIsAnError) {
  options_.json_path = "/nonexistent/report.json";
  EXPECT_EQ(finish(Report("move"), options_), 2);
}

TEST(Options, AreParsedAndUnknownOnesNamed) {
  const auto parse = [](std::vector<std::string> words) {
    std::vector<char*> argv;
    words.insert(words.begin(), "bench");
    for (auto& word : words) argv.push_back(word.data());
    return parse_options(int(argv.size()), argv.data(), {"--flight"});
  };
  const auto options =
      parse({"--quick", "--check", "--sizes-max", "64M", "--flight", "grpc://x:1", "--agent-core", "3"});
  ASSERT_TRUE(options);
  EXPECT_TRUE(options->quick && options->check);
  EXPECT_EQ(options->size_max_bytes, 64u << 20);
  EXPECT_EQ(options->other("--flight"), "grpc://x:1");
  EXPECT_EQ(options->agent_core, 3);
  EXPECT_EQ(options->pairs().pairs, 3u);
  EXPECT_EQ(parse({})->pairs().pairs, pairs_min);
  EXPECT_NE(parse({"--wrong"}).error().message.find("--wrong"), std::string::npos);
  EXPECT_NE(parse({"--json"}).error().message.find("needs a value"), std::string::npos);
}

TEST(Options, Sizes) {
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("64K"), 65536u);
  EXPECT_EQ(*parse_size("1G"), 1u << 30);
  for (const char* wrong : {"", "K", "-1", "1Q", "99999999999G"}) EXPECT_FALSE(parse_size(wrong)) << wrong;
}

TEST(Machine, RotatedBuffersFillTheWorkingSetAndComeRound) {
  auto buffers = RotatedBuffers::make(64 << 10, 1 << 20);
  ASSERT_TRUE(buffers);
  EXPECT_EQ(buffers->count(), 16u);
  std::set<std::byte*> seen;
  for (int i = 0; i < 32; ++i) {
    std::byte* buffer = buffers->next();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % page_bytes, 0u);
    seen.insert(buffer);
  }
  EXPECT_EQ(seen.size(), 16u);
  const auto misaligned = RotatedBuffers::make(64 << 10, 1 << 20, 16);
  ASSERT_TRUE(misaligned);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(misaligned->at(3)) % page_bytes, 16u);
}

TEST(Machine, CpuTimeCountsWorkAndOtherProcesses) {
  const auto before = process_cpu_ns(0);
  ASSERT_TRUE(before);
  double sink = 1;
  while (*process_cpu_ns(0) - *before < 5 * millisecond_ns) keep(sink = sink * 1.0001);
  EXPECT_TRUE(process_cpu_ns(getppid()));
  EXPECT_FALSE(process_cpu_ns(0x3ffffff));
}

TEST(Machine, SleepsOfAllThreadsAreCounted) {
  constexpr int sleeps = 5;
  const auto before = process_sleeps(0);
  ASSERT_TRUE(before);
  std::latch slept(1), counted(1);
  std::thread other([&] {
    for (int i = 0; i < sleeps; ++i) sleep_ns(microsecond_ns);
    slept.count_down();
    counted.wait();
  });
  for (int i = 0; i < sleeps; ++i) sleep_ns(microsecond_ns);
  slept.wait();
  EXPECT_GE(*process_sleeps(0), *before + 2 * sleeps);
  counted.count_down();
  other.join();
  EXPECT_FALSE(process_sleeps(0x3ffffff));
}

TEST(Machine, ResidentMemoryGrowsByWhatIsTouched) {
  const auto before = process_resident_bytes(0);
  const auto pages = Pages::map(64 << 20);
  ASSERT_TRUE(before && pages);
  EXPECT_GE(*process_resident_bytes(0), *before + (60u << 20));
}

}  // namespace
}  // namespace offpath::bench
