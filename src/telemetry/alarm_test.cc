#include "telemetry/alarm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace offpath::exchange {
namespace {

const Schema memory{"memory",
                    {{"available", FieldType::u64, FieldKind::gauge, "bytes", ""},
                     {"faults", FieldType::u64, FieldKind::counter, "", ""},
                     {"load", FieldType::f64, FieldKind::gauge, "", ""}}};

AlarmRule above(double limit, double clears_at, TimeNs hold) {
  return {.name = "busy",
          .schema = "memory",
          .kind = AlarmKind::above,
          .field = "load",
          .limit = limit,
          .clears_at = clears_at,
          .hold_ns = hold};
}
AlarmRule stale(TimeNs hold) {
  return {.name = "silent", .schema = "memory", .kind = AlarmKind::stale, .hold_ns = hold};
}

// Rules, a clock in seconds, and the resulting changes.
class AlarmTest : public testing::Test {
 protected:
  void watch(std::vector<AlarmRule> rules) {
    for (const AlarmRule& rule : rules) ASSERT_TRUE(check(rule)) << rule.name;
    alarms_.emplace(std::move(rules));
  }
  // The changes: "+busy host1", "-busy host1".
  std::string load(double second, double value, const std::string& host = "host1") {
    Sample sample = sample_at(second, host);
    sample.values.set(2, value);
    return say(second, sample);
  }
  std::string faults(double second, std::uint64_t count) {
    Sample sample = sample_at(second, "host1");
    sample.values.set(1, count);
    return say(second, sample);
  }
  std::string nothing(double second) { return say(second, sample_at(second, "host1")); }
  std::string time(double second) {
    std::vector<AlarmChange> changes;
    alarms_->on_time(at(second), changes);
    return text(changes);
  }
  static TimeNs at(double second) { return static_cast<TimeNs>(second * 1e9); }
  std::string text(const std::vector<AlarmChange>& changes) const {
    std::string all;
    for (const AlarmChange& each : changes) {
      all += (all.empty() ? "" : " ") + std::string(each.is_raised ? "+" : "-") + alarms_->rules()[each.rule].name +
             "@" + each.producer;
    }
    return all;
  }

  std::optional<Alarms> alarms_;

 private:
  static Sample sample_at(double second, const std::string& host) {
    Sample sample{.schema = memory.id(), .producer = host, .source_ns = at(second)};
    sample.values.reset(memory.fields.size());
    return sample;
  }
  std::string say(double second, const Sample& sample) {
    std::vector<AlarmChange> changes;
    alarms_->on_sample(memory, sample, at(second), changes);
    return text(changes);
  }
};

TEST_F(AlarmTest, AValueHasToStayBeyondItsLimit) {
  watch({above(4, 4, 2 * second_ns)});
  EXPECT_EQ(load(0, 5), "");
  EXPECT_EQ(load(1, 3), "");  // a short peak
  EXPECT_EQ(load(2, 5), "");
  EXPECT_EQ(load(3.9, 5), "");
  EXPECT_EQ(load(4, 6), "+busy@host1");
  EXPECT_EQ(load(5, 7), "");
  ASSERT_EQ(alarms_->active().size(), 1u);
  EXPECT_EQ(alarms_->active()[0].value, 7);
  EXPECT_EQ(alarms_->active()[0].since, at(2));
  EXPECT_EQ(load(6, 4), "-busy@host1");
  EXPECT_TRUE(alarms_->active().empty());
}

TEST_F(AlarmTest, WithoutAHoldItIsRaisedAtOnce) {
  watch({above(4, 4, 0)});
  EXPECT_EQ(load(0, 4), "");  // has to be above the limit
  EXPECT_EQ(load(1, 4.5), "+busy@host1");
}

TEST_F(AlarmTest, IsClearedWhereTheRuleSays) {
  watch({above(4, 2, 0)});
  EXPECT_EQ(load(0, 5), "+busy@host1");
  EXPECT_EQ(load(1, 3), "");
  EXPECT_EQ(load(2, 5), "");
  EXPECT_EQ(load(3, 2), "-busy@host1");
}

TEST_F(AlarmTest, BelowIsTheSameTheOtherWayRound) {
  AlarmRule rule = above(4, 6, 0);
  rule.kind = AlarmKind::below;
  watch({rule});
  EXPECT_EQ(load(0, 5), "");
  EXPECT_EQ(load(1, 3), "+busy@host1");
  EXPECT_EQ(load(2, 5), "");
  EXPECT_EQ(load(3, 6), "-busy@host1");
}

TEST_F(AlarmTest, EachHostIsJudgedAlone) {
  watch({above(4, 4, 0)});
  EXPECT_EQ(load(0, 5, "host1"), "+busy@host1");
  EXPECT_EQ(load(0, 5, "host2"), "+busy@host2");
  EXPECT_EQ(load(1, 1, "host1"), "-busy@host1");
  ASSERT_EQ(alarms_->active().size(), 1u);
  EXPECT_EQ(alarms_->active()[0].producer, "host2");
}

TEST_F(AlarmTest, ACounterIsJudgedByItsRate) {
  AlarmRule rule = above(100, 100, 0);
  rule.field = "faults";
  watch({rule});
  EXPECT_EQ(faults(0, 1'000'000), "");  // one sample gives no rate
  EXPECT_EQ(faults(2, 1'000'150), "");
  EXPECT_EQ(faults(4, 1'000'500), "+busy@host1");
  EXPECT_EQ(alarms_->active()[0].value, 175);
  EXPECT_EQ(faults(5, 3), "");       // starts again with a first sample
  EXPECT_EQ(faults(4.5, 4000), "");  // its clock was set back
  EXPECT_EQ(faults(5.5, 4010), "-busy@host1");
}

TEST_F(AlarmTest, AMissingValueSaysNothing) {
  watch({above(4, 4, 2 * second_ns)});
  EXPECT_EQ(load(0, 5), "");
  EXPECT_EQ(nothing(1), "");
  EXPECT_EQ(load(1.5, std::nan("")), "");
  EXPECT_EQ(load(2, 5), "+busy@host1");
  EXPECT_EQ(nothing(3), "");
  EXPECT_EQ(alarms_->active().size(), 1u);
}

TEST_F(AlarmTest, SilenceIsNoticedByTime) {
  watch({stale(5 * second_ns)});
  EXPECT_EQ(alarms_->next_deadline(), never);
  EXPECT_EQ(load(1, 1), "");
  EXPECT_EQ(alarms_->next_deadline(), at(6));
  EXPECT_EQ(time(5.9), "");
  EXPECT_EQ(time(6), "+silent@host1");
  EXPECT_EQ(time(7), "");
  EXPECT_EQ(alarms_->active()[0].value, 6);
  EXPECT_EQ(alarms_->next_deadline(), never);
  EXPECT_EQ(nothing(8), "-silent@host1");
  EXPECT_EQ(alarms_->next_deadline(), at(13));
}

TEST_F(AlarmTest, WhoNeverSaidAnythingIsMissed) {
  watch({stale(5 * second_ns)});
  alarms_->expect("memory", "host1", at(1));
  alarms_->expect("other", "host2", at(1));
  EXPECT_EQ(alarms_->next_deadline(), at(6));
  EXPECT_EQ(time(6), "+silent@host1");
  EXPECT_EQ(nothing(7), "-silent@host1");
}

TEST_F(AlarmTest, WhoHasLeftIsForgotten) {
  watch({stale(5 * second_ns), above(4, 4, 0)});
  EXPECT_EQ(load(0, 5), "+busy@host1");
  EXPECT_EQ(time(5), "+silent@host1");
  std::vector<AlarmChange> changes;
  alarms_->forget("host1", changes);
  EXPECT_EQ(text(changes), "-silent@host1 -busy@host1");
  EXPECT_EQ(time(100), "");
}

TEST_F(AlarmTest, ManyProducersTakeBoundedMemory) {
  watch({stale(5 * second_ns)});
  load(0, 1, "first");
  EXPECT_EQ(time(5), "+silent@first");
  for (std::size_t i = 0; i <= Alarms::producers_max; ++i)
    load(6 + static_cast<double>(i) * 1e-6, 1, "host" + std::to_string(i));
  EXPECT_EQ(alarms_->active()[0].producer, "first");  // raised alarms are kept
  std::vector<AlarmChange> changes;
  alarms_->on_time(at(20), changes);
  EXPECT_EQ(changes.size(), Alarms::producers_max - 1);
}

TEST(AlarmRule, IsReadFromText) {
  const AlarmRule above = parse_alarm("network_received_bytes{device=\"<a>\"} > 1.5e9").value();
  EXPECT_EQ(above.kind, AlarmKind::above);
  EXPECT_EQ(above.field, "network_received_bytes{device=\"<a>\"}");
  EXPECT_EQ(above.limit, 1.5e9);
  EXPECT_EQ(above.clears_at, 1.5e9);
  EXPECT_EQ(parse_alarm("load1<-8").value().kind, AlarmKind::below);
  EXPECT_EQ(parse_alarm("load1<-8").value().limit, -8);
  EXPECT_EQ(parse_alarm("silent").value().kind, AlarmKind::stale);
  for (const char* text : {"", "load1", "load1 >", "silence"}) {
    EXPECT_EQ(parse_alarm(text).error().message,
              "'" + std::string(text) + "' is neither 'FIELD > NUMBER' nor 'FIELD < NUMBER' nor 'silent'");
  }
  EXPECT_EQ(parse_alarm("load1 > much").error().message, "'load1 > much': 'much' is not a number");
  EXPECT_EQ(parse_alarm("load1 > 8 for 10s").error().message, "'load1 > 8 for 10s': '8 for 10s' is not a number");
}

TEST(AlarmRule, SaysWhatIsWrong) {
  const auto wrong = [](AlarmRule rule) { return check(rule).error().message; };
  AlarmRule rule = above(4, 5, 0);
  EXPECT_EQ(wrong(rule), "the alarm busy is raised above 4 and cleared at 5, where it would be raised again");
  rule = above(4, 4, 0);
  rule.field.clear();
  EXPECT_EQ(wrong(rule), "the alarm busy names no field");
  rule = above(std::numeric_limits<double>::infinity(), 0, 0);
  EXPECT_EQ(wrong(rule), "a limit of the alarm busy is not a number");
  EXPECT_EQ(wrong(stale(0)), "the alarm silent needs a time after which samples count as missing");
  rule = stale(second_ns);
  rule.field = "load";
  EXPECT_EQ(wrong(rule), "the alarm silent is about missing samples, but names the field load");
  rule = above(4, 4, -1);
  EXPECT_EQ(wrong(rule), "the alarm busy holds for a negative time");
  rule.schema.clear();
  EXPECT_EQ(wrong(rule), "the alarm busy names no source");
  rule.name.clear();
  EXPECT_EQ(wrong(rule), "an alarm has no name");
}

}  // namespace
}  // namespace offpath::exchange
