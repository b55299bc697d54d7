#include "exchange/interval_watch.h"

#include <gtest/gtest.h>

#include "testing/exchange/loopback_members.h"

namespace offpath::exchange {
namespace {

// The judgements of member 0's views.
class Watched {
 public:
  Watched(TimeNs interval_ns, std::size_t count)
      : members_(options(interval_ns), *parse_shape("grouped_allgather(4)"), count, 1),
        watch_(interval_ns, interval_ns / 2) {}

  void run_for(TimeNs time) {
    members_.run_until(members_.now() + time, [&](TimeNs) {
      for (const ViewPtr& view : members_[0].views) {
        const auto judged = watch_.on_view(*view, [&](MemberIndex member) { return !dead[member]; });
        if (judged) judgements.push_back(*judged);
      }
      members_[0].views.clear();
      return true;
    });
  }
  LoopbackMembers& members() { return members_; }

  std::vector<IntervalWatch::Judged> judgements;
  std::array<bool, 16> dead{};

 private:
  static ExchangeOptions options(TimeNs interval_ns) {
    ExchangeOptions made;
    made.name = "load";
    made.interval_ns = interval_ns;
    made.deadline_ns = interval_ns / 2;
    return made;
  }
  LoopbackMembers members_;
  IntervalWatch watch_;
};

void delay(Watched& watched, TimeNs least, TimeNs most) {
  LoopbackFabric::Faults faults;
  faults.delay_min_ns = least;
  faults.delay_max_ns = most;
  watched.members().fabric().set_faults(faults);
}

TEST(IntervalWatch, AnIntervalThatIsHeldIsNotRemarked) {
  Watched watched(10 * millisecond_ns, 12);
  watched.run_for(3 * second_ns);
  ASSERT_GE(watched.judgements.size(), 4u);
  for (const auto& each : watched.judgements) EXPECT_EQ(each.holds_ns, 0) << each.complete;
}

// A network that needs longer than the deadline of 5 ms for three hops.
TEST(IntervalWatch, TheIntervalThatIsNamedIsHeld) {
  Watched tight(10 * millisecond_ns, 12);
  delay(tight, 3 * millisecond_ns, 4 * millisecond_ns);
  tight.run_for(5 * second_ns);
  ASSERT_GE(tight.judgements.size(), 2u);
  const IntervalWatch::Judged& judged = tight.judgements.back();
  EXPECT_LT(judged.complete * 100, judged.views * 95);
  EXPECT_TRUE(judged.is_measured);
  ASSERT_GT(judged.holds_ns, 10 * millisecond_ns);
  EXPECT_LE(judged.holds_ns, 200 * millisecond_ns);
  Watched held(judged.holds_ns, 12);
  delay(held, 3 * millisecond_ns, 4 * millisecond_ns);
  held.run_for(80 * 3 * judged.holds_ns);
  ASSERT_GE(held.judgements.size(), 2u);
  EXPECT_EQ(held.judgements.back().holds_ns, 0) << held.judgements.back().complete;
}

TEST(IntervalWatch, AMemberThatIsGoneIsNotLate) {
  Watched watched(10 * millisecond_ns, 12);
  const auto expect_nobody_late = [&](const char* when) {
    watched.judgements.clear();
    watched.run_for(3 * second_ns);
    ASSERT_GE(watched.judgements.size(), 2u) << when;
    for (const auto& each : watched.judgements) EXPECT_EQ(each.holds_ns, 0) << when << ": " << each.complete;
  };
  expect_nobody_late("all are there");
  watched.members().kill(7);
  expect_nobody_late("one was killed, and nobody is told");
  watched.members().start(7);
  expect_nobody_late("it is back");
  watched.members().kill(3);
  watched.dead[3] = true;
  expect_nobody_late("another one was killed");
}

}  // namespace
}  // namespace offpath::exchange
