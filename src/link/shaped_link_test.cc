#include "link/shaped_link.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "testing/link/emulated.h"
#include "testing/link/loopback_link.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using Kind = LinkEvent::Kind;
using ::testing::HasSubstr;

const wire::ChannelLayout small_layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};

// 1 GB/s and 10 us: a byte takes a nanosecond.
const Profile plain{.name = "plain", .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 10'000};

struct World {
  explicit World(const Profile& profile) : fabric(std::make_shared<LoopbackFabric>(1)), memory(1 << 20), to(1 << 20) {
    LoopbackOptions options;
    options.operation = options.control = {.min_ns = 0, .max_ns = 0};
    auto made = make_loopback(fabric, options, small_layout);
    EXPECT_TRUE(made);
    host = std::move(made->host);
    fate = made->fate;
    agent = std::make_unique<ShapedAgentLink>(std::move(made->agent), profile);
    EXPECT_TRUE(agent->attach_range(1, 1, reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), 0));
  }
  void read(std::uint64_t token, std::uint64_t bytes) {
    const std::array<ReadPiece, 2> pieces{{{1, 1, 0, to.data(), bytes / 2}, {1, 1, 0, to.data(), bytes - bytes / 2}}};
    agent->read(token, pieces);
  }
  void write(std::uint64_t token, std::uint64_t bytes) {
    const WritePiece piece{wire::channel_segment, 0, to.data(), bytes};
    agent->write(token, std::span(&piece, 1));
  }
  // (time, token) of every event up to `until`; wakes are token 1000, closed is 2000.
  std::vector<std::pair<TimeNs, std::uint64_t>> run(TimeNs until) {
    std::vector<std::pair<TimeNs, std::uint64_t>> seen;
    std::array<LinkEvent, 8> events;
    while (fabric->now() < until) {
      fabric->advance_to(fabric->now() + 1);
      const std::size_t count = agent->poll(fabric->now(), events);
      for (std::size_t i = 0; i < count; ++i)
        seen.emplace_back(fabric->now(), events[i].kind == Kind::woken    ? 1000
                                         : events[i].kind == Kind::closed ? 2000
                                                                          : events[i].token);
    }
    return seen;
  }

  std::shared_ptr<LoopbackFabric> fabric;
  std::shared_ptr<LoopbackFate> fate;
  std::unique_ptr<HostLink> host;
  std::unique_ptr<ShapedAgentLink> agent;
  std::vector<std::byte> memory, to;
};

using Seen = std::vector<std::pair<TimeNs, std::uint64_t>>;

TEST(ShapedAgentLink, ATransferTakesItsBytesAndTheLatency) {
  World world(plain);
  world.run(100);
  world.read(1, 5000);
  EXPECT_EQ(world.run(30'000), (Seen{{100 + 5'000 + 10'000, 1}}));
}

TEST(ShapedAgentLink, TransfersOneWayQueueAndTheWaysDoNotDisturbEachOther) {
  World world(plain);
  world.read(1, 3000);
  world.read(2, 2000);
  world.write(3, 4000);
  world.read(4, 0);
  EXPECT_EQ(world.run(30'000), (Seen{{13'000, 1}, {14'000, 3}, {15'000, 2}, {15'000, 4}}));
  world.read(5, 1000);  // the pipe is free again
  EXPECT_EQ(world.run(60'000), (Seen{{41'000, 5}}));
}

TEST(ShapedAgentLink, SmallTransfersAddUpToTheBandwidth) {
  World world({.name = "odd", .bandwidth_bytes_per_s = 3'000'000'000, .latency_ns = 0});
  for (std::uint64_t token = 0; token < 300; ++token) world.read(token, 1);  // a third of a nanosecond each
  const Seen seen = world.run(200);
  ASSERT_EQ(seen.size(), 300u);
  EXPECT_EQ(seen.back().first, 100);
}

TEST(ShapedAgentLink, DataIsRightAndErrorsPass) {
  World world(plain);
  for (std::size_t i = 0; i < 4000; ++i) world.memory[i] = static_cast<std::byte>(i * 7);
  const ReadPiece good{1, 1, 100, world.to.data(), 3000};
  const ReadPiece bad{9, 1, 0, world.to.data(), 1};
  world.agent->read(1, std::span(&good, 1));
  world.agent->read(2, std::span(&bad, 1));
  std::array<LinkEvent, 4> events;
  world.fabric->advance_to(12'999);
  ASSERT_EQ(world.agent->poll(12'999, events), 0u);
  world.fabric->advance_to(13'001);
  ASSERT_EQ(world.agent->poll(13'001, events), 2u);
  EXPECT_TRUE(events[0].status);
  EXPECT_TRUE(std::equal(world.to.begin(), world.to.begin() + 3000, world.memory.begin() + 100));
  ASSERT_FALSE(events[1].status);
  EXPECT_EQ(events[1].status.error().code, Error::unannounced);
}

TEST(ShapedAgentLink, WakesTakeTheLatency) {
  World world(plain);
  world.host->wake();
  EXPECT_EQ(world.run(20'000), (Seen{{10'001, 1000}}));
  world.agent->wake();
  EXPECT_EQ(world.agent->next_event(), 30'000);
  world.run(29'999);
  const TimeNs before = world.fabric->now();
  world.host->wait(before);
  EXPECT_TRUE(world.host->look());
  world.run(30'000);
  world.host->wait(never);
  EXPECT_EQ(world.fabric->now(), 30'000);
}

TEST(ShapedAgentLink, ClosedComesAfterWhatIsUnderWay) {
  World world(plain);
  world.read(1, 5000);
  world.run(10);
  world.fate->kill_host();
  world.run(20);
  world.read(2, 10);  // the link has ended, but its owner does not know it
  EXPECT_EQ(world.run(40'000), (Seen{{21, 2}, {15'000, 1}, {15'000, 2000}}));
}

// Like the local link: an operation is complete when the call returns, and only poll reports it.
class QuietLink final : public AgentLink {
 public:
  QuietLink() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    silent_ = Fd(ends[0]);
    other_end_ = Fd(ends[1]);
  }
  const LinkTraits& traits() const override { return traits_; }
  Status attach_range(RegionId, std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t) override { return {}; }
  Status detach_range(RegionId, std::uint32_t) override { return {}; }
  MutableBytes mapped(RegionId) override { return {}; }
  void read(std::uint64_t token, std::span<const ReadPiece>) override {
    done_.push_back({Kind::read_done, token, {}, {}});
  }
  void write(std::uint64_t token, std::span<const WritePiece>) override {
    done_.push_back({Kind::write_done, token, {}, {}});
  }
  void wake() override {}
  Status hand_over(std::uint64_t, int) override { return {}; }
  std::size_t poll(TimeNs, std::span<LinkEvent> events) override {
    std::size_t count = 0;
    for (; count < events.size() && count < done_.size(); ++count) events[count] = std::move(done_[count]);
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  int event_fd() const override { return silent_.get(); }
  void refuse(const Failure&) override {}
  void close() override {}

 private:
  LinkTraits traits_;
  Fd silent_, other_end_;
  std::vector<LinkEvent> done_;
};

// A loop sleeps after it has posted, and does not poll until the descriptor is readable.
TEST(ShapedAgentLink, WhatIsDoneWakesALoopThatSleeps) {
  ShapedAgentLink link(std::make_unique<QuietLink>(), plain);
  std::array<LinkEvent, 4> events;
  EXPECT_EQ(link.poll(monotonic_ns(), events), 0u);
  std::byte place{};
  const ReadPiece read{1, 1, 0, &place, 1};
  const WritePiece write{wire::channel_segment, 0, &place, 1};
  for (int i = 0; i < 2; ++i) {
    if (i == 0)
      link.read(7, std::span(&read, 1));
    else
      link.write(7, std::span(&write, 1));
    pollfd sleeping{link.event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&sleeping, 1, patience_ms()), 1);
    ASSERT_EQ(link.poll(monotonic_ns(), events), 1u);
    EXPECT_EQ(events[0].token, 7u);
    ASSERT_EQ(::poll(&sleeping, 1, 0), 0);  // and then it is silent again
  }
}

TEST(Profiles, BlueField2) {
  const auto profile = find_profile("bluefield2");
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->bandwidth_bytes_per_s, 12'500'000'000u);
  EXPECT_EQ(profile->latency_ns, 2'000);
  EXPECT_NEAR(profile->cpu_quota(1), 0.208, 0.001);
  EXPECT_NEAR(profile->cpu_quota(8), 8 / 4.8, 0.001);
  EXPECT_NEAR(profile->cpu_quota(64), 8 / 4.8, 0.001) << "it has eight cores";
  World world(*profile);
  EXPECT_TRUE(world.agent->mapped(wire::channel_segment).empty());
  EXPECT_THAT(world.agent->traits().reason, HasSubstr("bluefield2"));
}

TEST(Profiles, None) {
  const auto profile = find_profile("none");
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->cpu_quota(3), 3);
  World world(*profile);
  EXPECT_FALSE(world.agent->mapped(wire::channel_segment).empty());
  world.read(1, 1 << 20);
  EXPECT_EQ(world.run(5), (Seen{{1, 1}}));
}

TEST(Profiles, AnUnknownNameListsTheKnownOnes) {
  const auto profile = find_profile("bluefeld");
  ASSERT_FALSE(profile);
  EXPECT_EQ(profile.error().code, Error::not_found);
  EXPECT_THAT(profile.error().message, HasSubstr("\"bluefeld\""));
  EXPECT_THAT(profile.error().message, HasSubstr("none, bluefield2"));
}

}  // namespace
}  // namespace offpath::link
