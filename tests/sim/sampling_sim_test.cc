// One agent and hosts whose datagrams are lost, late, doubled and out of order, whose samplers are killed and started
// again, and whose clocks are set by an hour; in virtual time, under seeds. Invariants of samples:
//
//   - a sample never goes back: of one host each is read later than the one before
//   - where a datagram gets through in time now and then, the host's values are never older than a few intervals
//   - the age that the agent computes is right to within half of the delay, an hour's jump of the clock included
//   - nothing waits without a deadline, and when all is well again every host is heard of
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "seeds.h"
#include "telemetry/sampling.h"
#include "testing/telemetry/host.h"

namespace offpath::exchange {
namespace {

constexpr TimeNs longest_way_ns = 12 * millisecond_ns;  // of a datagram, under all faults

class Network {
 public:
  struct Faults {
    double lost = 0, doubled = 0;
    TimeNs least_ns = 10 * microsecond_ns, most_ns = 50 * microsecond_ns;  // each way
  };
  struct Datagram {
    bool to_host;
    std::vector<std::byte> bytes;
  };

  explicit Network(std::uint64_t seed) : random_(seed) {}
  void send(TimeNs now, bool to_host, Bytes bytes, const Faults& faults) {
    const int copies = chance(faults.lost) ? 0 : chance(faults.doubled) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const TimeNs way = std::uniform_int_distribution<TimeNs>(faults.least_ns, faults.most_ns)(random_);
      under_way_.emplace(now + way, Datagram{to_host, {bytes.begin(), bytes.end()}});
    }
  }
  [[nodiscard]] TimeNs next() const { return under_way_.empty() ? never : under_way_.begin()->first; }
  Datagram take() {
    Datagram first = std::move(under_way_.begin()->second);
    under_way_.erase(under_way_.begin());
    return first;
  }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
  std::multimap<TimeNs, Datagram> under_way_;
};

struct World {
  explicit World(std::uint64_t seed)
      : network(seed),
        sampling({.producer = "node",
                  .interval_ns = 10 * millisecond_ns,
                  .deadline_ns = 50 * millisecond_ns,
                  .retry_ns = millisecond_ns,
                  .silent_after_ns = 300 * millisecond_ns,
                  .key = TestHost::key(),
                  .session = seed | 1},
                 0) {}

  // Until then, one event after another.
  void run_until(TimeNs end) {
    for (;;) {
      // Due in the past: a round that began while an answer of the one before was awaited.
      const TimeNs next = std::max(std::min(sampling.next_deadline(), network.next()), now);
      if (next > end) break;
      ASSERT_LT(++events, 10'000'000);
      now = next;
      if (network.next() <= now) {
        const Network::Datagram datagram = network.take();
        if (datagram.to_host) {
          if (alive) {
            // Its clock may show this time twice, after being set back: an answer can only have the newest values.
            read_at_[TestHost::epoch_ns + now + host.clock_ahead_ns] = now;
            if (const auto answer = host.answer(datagram.bytes, now); !answer.empty())
              network.send(now, false, answer, faults);
          }
        } else {
          const std::uint64_t before = sampling.counters().samples;
          sampling.on_datagram(datagram.bytes, now, TestHost::epoch_ns + now, effects);
          if (sampling.counters().samples != before) check_sample();
        }
      } else {
        sampling.on_time(now, effects);
        ASSERT_GT(sampling.next_deadline(), now);
      }
      for (const SamplerRequest& each : std::exchange(effects.requests, {})) network.send(now, true, each, faults);
    }
    now = end;
  }

  // The host answers at once, so values were read when its answer left, regardless of its clock.
  void check_sample() {
    const TimeNs read_at = read_at_.at(sampling.newest().source_ns);
    EXPECT_GE(read_at, last_read_at_);
    last_read_at_ = read_at;
    EXPECT_LE(sampling.newest_at(), now);
    EXPECT_LE(std::abs(sampling.newest_at() - read_at), longest_way_ns + sampling.clock().bound_ns(now))
        << "at " << now;
  }

  Network network;
  TestHost host;
  Sampling sampling;
  SamplingEffects effects;
  Network::Faults faults;
  bool alive = true;
  TimeNs now = 0;
  int events = 0;

 private:
  std::map<std::int64_t, TimeNs> read_at_;  // by the host's clock: when it was
  TimeNs last_read_at_ = 0;
};

void run(std::uint64_t seed) {
  World world(seed);
  auto& random = world.network.random();
  for (int phase = 0; phase < 20; ++phase) {
    const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
    world.faults = {0.15 * pick(3), 0.25 * pick(3), 10 * microsecond_ns, (1 + pick(3)) * 3 * millisecond_ns};
    switch (pick(5)) {
      case 0:
        world.alive = false;
        break;
      case 1:
        world.host.start();
        break;
      case 2:
        world.host.clock_ahead_ns += (pick(1) == 0 ? 3600 : -3600) * second_ns;
        break;
      default:
        break;
    }
    const std::uint64_t samples = world.sampling.counters().samples;
    world.run_until(world.now + second_ns);
    if (::testing::Test::HasFatalFailure()) return;
    if (!world.alive) {
      EXPECT_TRUE(world.sampling.silent(world.now));
      world.alive = true;
      world.host.start();
    } else {
      EXPECT_FALSE(world.sampling.silent(world.now));
      EXPECT_GT(world.sampling.counters().samples, samples + 10);
    }
  }
  world.faults = {};
  world.run_until(world.now + second_ns);
  const std::uint64_t samples = world.sampling.counters().samples, missed = world.sampling.counters().missed;
  world.run_until(world.now + second_ns);
  EXPECT_NEAR(static_cast<double>(world.sampling.counters().samples - samples), 100, 2);
  EXPECT_EQ(world.sampling.counters().missed, missed);
  EXPECT_FALSE(world.sampling.silent(world.now));
  EXPECT_LE(world.sampling.clock().bound_ns(world.now), 100 * microsecond_ns);
}

TEST(SamplingSim, SamplesGetThroughUnderFaults) { sim::each_seed(40, run); }

TEST(SamplingSim, AClockSetByAnHourCostsNoSampleAndNoWrongAge) {
  World world(1);
  world.run_until(second_ns);
  const std::uint64_t missed = world.sampling.counters().missed;
  for (const std::int64_t jump : {3600 * second_ns, -7200 * second_ns}) {
    world.host.clock_ahead_ns += jump;
    world.run_until(world.now + second_ns);
  }
  EXPECT_EQ(world.sampling.counters().missed, missed);
  EXPECT_EQ(world.sampling.clock().jumps(), 2u);
  EXPECT_GE(world.sampling.counters().samples, 295u);
}

}  // namespace
}  // namespace offpath::exchange
