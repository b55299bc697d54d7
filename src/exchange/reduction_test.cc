#include "exchange/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace offpath::exchange {
namespace {

using testing::HasSubstr;

Schema schema() {
  Schema made;
  made.name = "load";
  made.fields = {{"power", FieldType::f64}, {"jobs", FieldType::u64}, {"drift", FieldType::i64}};
  return made;
}

std::vector<Reduction> reductions(std::initializer_list<const char*> texts) {
  std::vector<Reduction> all;
  for (const char* text : texts) {
    auto parsed = parse_reduction(text, schema());
    EXPECT_TRUE(parsed) << parsed.error().message;
    all.push_back(*parsed);
  }
  return all;
}

std::vector<std::byte> record(double power, std::uint64_t jobs, std::int64_t drift, std::uint64_t present = 7,
                              bool with_presence = true) {
  std::vector<std::byte> bytes(with_presence ? 32 : 24);
  store(bytes.data(), power);
  store(bytes.data() + 8, jobs);
  store(bytes.data() + 16, drift);
  if (with_presence) store(bytes.data() + 24, present);
  return bytes;
}

TEST(Reduction, AnyTreeComesToWhatOneLoopComesTo) {
  const auto wanted = reductions(
      {"sum(jobs)", "min(drift)", "max(power)", "mean(power)", "top(power, 4)", "histogram(power, 0, 10, 5)"});
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = 1 + random() % 40;
    Reduced flat(wanted);
    std::vector<Reduced> parts(1 + random() % 6, Reduced(wanted));
    for (MemberIndex i = 0; i < count; ++i) {
      // Eighths add up exactly in any order; equal values are common.
      const auto bytes =
          record(static_cast<double>(random() % 100) / 8, random(), static_cast<std::int64_t>(random()), random() % 8);
      flat.add(i, bytes, wanted, 3);
      parts[random() % parts.size()].add(i, bytes, wanted, 3);
    }
    Reduced merged(wanted);
    while (!parts.empty()) {
      const std::size_t at = random() % parts.size();
      std::vector<std::byte> wire;
      parts[at].encode(wire);
      const auto back = Reduced::decode(wire, wanted);
      ASSERT_TRUE(back) << back.error().message;
      merged.merge(*back, wanted);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
    }
    std::vector<std::byte> one, other;
    flat.encode(one);
    merged.encode(other);
    ASSERT_EQ(one, other) << "round " << round;
  }
}

TEST(Reduction, IntegersKeepAllTheirDigits) {
  const auto wanted = reductions({"sum(jobs)", "max(jobs)", "min(drift)"});
  Reduced reduced(wanted);
  reduced.add(0, record(0, UINT64_MAX, INT64_MIN), wanted, 3);
  reduced.add(1, record(0, UINT64_MAX - 1, 5), wanted, 3);
  EXPECT_EQ(reduced.figure(0).whole, static_cast<__int128>(UINT64_MAX) * 2 - 1);
  EXPECT_EQ(static_cast<std::uint64_t>(reduced.figure(1).most), UINT64_MAX);
  EXPECT_EQ(reduced.figure(2).least, INT64_MIN);
}

TEST(Reduction, WhatIsNotPresentTakesNoPart) {
  const auto wanted = reductions({"mean(power)", "sum(jobs)"});
  Reduced reduced(wanted);
  reduced.add(0, record(4, 1, 0, 0b101), wanted, 3);
  reduced.add(1, record(std::numeric_limits<double>::quiet_NaN(), 1, 0), wanted, 3);
  reduced.add(2, record(8, 3, 0, 0, false), wanted, 3);
  reduced.count_member();
  EXPECT_EQ(reduced.members(), 4u);
  EXPECT_EQ(reduced.figure(0).count, 2u);
  EXPECT_DOUBLE_EQ(reduced.value(0, wanted[0]), 6);
  EXPECT_DOUBLE_EQ(reduced.value(1, wanted[1]), 4);
  EXPECT_TRUE(std::isnan(Reduced(wanted).value(0, wanted[0])));
}

TEST(Reduction, WhatLiesOutsideOfAHistogramIsInItsEnds) {
  const auto wanted = reductions({"histogram(power, 0, 10, 2)"});
  Reduced reduced(wanted);
  const double inf = std::numeric_limits<double>::infinity();
  MemberIndex member = 0;
  for (const double power : {-inf, -1.0, 0.0, 4.99, 5.0, 10.0, 1e300, inf})
    reduced.add(member++, record(power, 0, 0), wanted, 3);
  EXPECT_EQ(reduced.figure(0).bins, (std::vector<std::uint64_t>{4, 4}));
}

TEST(Reduction, BlanksMayStandAnywhere) {
  for (const char* text : {"  top( power , 4 )", "top(power,4)  ", " top (power, 4) "}) {
    const auto parsed = parse_reduction(text, schema());
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->kind, Reduction::Kind::top) << text;
    EXPECT_EQ(parsed->count, 4u) << text;
  }
  EXPECT_FALSE(parse_reduction("  max( )", schema()));  // two blanks, then further bytes after the parenthesis
}

TEST(Reduction, WhatCannotBeIsNamed) {
  const auto error = [](std::string_view text) {
    const auto parsed = parse_reduction(text, schema());
    EXPECT_FALSE(parsed) << text;
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_THAT(error("sum(watts)"), HasSubstr("no field 'watts' in load: power, jobs, drift"));
  EXPECT_THAT(error("median(power)"), HasSubstr("is not sum(F)"));
  EXPECT_THAT(error("sum"), HasSubstr("is not sum(F)"));
  EXPECT_THAT(error("top(power)"), HasSubstr("1 arguments, expected 2"));
  EXPECT_THAT(error("top(power, 0)"), HasSubstr("1 to 1024"));
  EXPECT_THAT(error("histogram(power, 5, 5, 3)"), HasSubstr("bins from '5' to '5'"));
  EXPECT_THAT(error("histogram(power, 0, 1, 5000)"), HasSubstr("1 to 4096"));
  EXPECT_FALSE(check_record(std::vector<std::byte>(23), schema()));
}

TEST(Reduction, BytesOfOthersAreCheckedBeforeTheyCount) {
  const auto wanted = reductions({"top(power, 2)", "histogram(power, 0, 1, 2)"});
  Reduced reduced(wanted);
  reduced.add(1, record(3, 0, 0), wanted, 3);
  reduced.add(2, record(2, 0, 0), wanted, 3);
  std::vector<std::byte> good;
  reduced.encode(good);
  ASSERT_TRUE(Reduced::decode(good, wanted));
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_FALSE(Reduced::decode(Bytes(good).first(cut), wanted)) << cut;
  EXPECT_FALSE(Reduced::decode(good, reductions({"sum(power)"})));
  std::vector<std::byte> more_than_members = good;
  store(more_than_members.data(), std::uint32_t{1});
  EXPECT_FALSE(Reduced::decode(more_than_members, wanted));
  std::vector<std::byte> huge = good;  // the largest possible sums do no harm
  std::fill(huge.begin() + 40, huge.begin() + 56, std::byte{0x7F});
  auto read = Reduced::decode(huge, wanted);
  ASSERT_TRUE(read);
  Reduced twice = *read;
  twice.merge(*read, wanted);
  EXPECT_EQ(twice.members(), 4u);
}

}  // namespace
}  // namespace offpath::exchange
