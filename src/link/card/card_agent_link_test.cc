// Counts how much of a device the channels of one agent share, over a card that copies within this process.
#include "link/card/card_agent_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "testing/link/connected_pair.h"

namespace offpath::link {
namespace {

using wire::ControlType;

constexpr std::uint64_t rings_bytes = 56 << 10;
constexpr ChannelBytes channel_bytes{rings_bytes + (512 << 10), rings_bytes};

// Registrations have the number of the registration for a key.
class CountingDevice final : public CardDevice {
 public:
  using CardDevice::CardDevice;
  ~CountingDevice() override { release_memory(); }

  Result<std::unique_ptr<Registration>> register_own(const void*, std::uint64_t length, bool) override {
    if (fails) return fail(Error::no_memory, "{} bytes cannot be registered", length);
    ++made;
    return std::make_unique<Counted>(made, counters(), length);
  }

  std::uint64_t made = 0;
  bool fails = false;

 private:
  struct Counted final : Registration {
    Counted(std::uint64_t key, CardCounters& counters, std::uint64_t length)
        : Registration(key), count(counters, length) {}
    PinnedCount count;
  };
};

// Copies at once, and completes in the next poll.
class CopyingLink final : public CardAgentLink {
 public:
  CopyingLink(ControlSocket socket, std::shared_ptr<CardDevice> device)
      : CardAgentLink(std::move(socket), {}, WriteOrder::of_posting, channel_bytes, {}, never) {
    OFP_ASSERT(watch_descriptors());
    OFP_ASSERT(begin_posting({64, 1 << 20, 64}, std::move(device)));
  }
  ~CopyingLink() override { close(); }

  std::vector<std::uint32_t> keys;  // of the host, of all requests
  bool holds = false;               // nothing completes

 private:
  Status post(bool is_read, Chain&, std::span<const Request> requests) override {
    for (const Request& each : requests) {
      auto* const there = reinterpret_cast<std::byte*>(each.address);
      std::memcpy(is_read ? each.local : there, is_read ? there : each.local, each.length);
      keys.push_back(each.key);
    }
    return {};
  }
  Status take_completions() override {
    while (!holds && under_way()) {
      moved(oldest(), oldest().left);
      settle();
    }
    return {};
  }
  Status look_at(int) override { return {}; }
  Status take_announcement(const ControlSocket::Frame& frame) override {
    OFP_ASSIGN(const wire::SegmentNotice notice, wire::decode_segment_notice(frame.payload));
    if (notice.region == wire::outside_part) return attach_outside(notice.address, notice.length, notice.key);
    OFP_TRY(check_segment(notice.region, notice.length));
    return attach_segment(notice.region, notice.address, notice.length, notice.key);
  }
  Failure why_not_open() const override { return {Error::timeout, "not open"}; }
  void break_off() noexcept override {}
  void end_card() noexcept override {}
};

// A channel: the agent's link, and the program's socket and memory.
struct Channel {
  explicit Channel(std::shared_ptr<CardDevice> device) : memory(channel_bytes.all) {
    Address address;
    address.kind = Address::Kind::tcp;
    address.host = "127.0.0.1";
    Sockets sockets = connect_sockets(address);
    program = std::move(sockets.host);
    link = std::make_unique<CopyingLink>(std::move(sockets.agent), std::move(device));
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7 + i / 4096);
  }
  void announce(wire::RegionId region, std::uint64_t offset, std::uint64_t length, std::uint32_t key) {
    std::vector<std::byte> payload;
    wire::encode(wire::SegmentNotice{region, length, reinterpret_cast<std::uint64_t>(memory.data() + offset), key},
                 payload);
    OFP_ASSERT(program.send(ControlType::segment, payload));
  }
  void open() {
    announce(wire::channel_segment, 0, rings_bytes, 1);
    std::byte byte;
    OFP_ASSERT(read_one(*link, {wire::channel_segment, 0, 5, &byte, 1}));
    OFP_ASSERT(byte == memory[5]);
  }
  // Polls until the program has got a frame of this type.
  wire::Withdrawal await_withdrawn() {
    ControlSocket::Frame frame;
    for (const TimeNs deadline = soon(); monotonic_ns() < deadline;) {
      link->poll(monotonic_ns(), {});
      const auto there = program.next(frame);
      OFP_ASSERT(there);
      if (*there && frame.type == ControlType::withdrawn) return wire::decode_withdrawal(frame.payload).value();
    }
    ADD_FAILURE() << "no withdrawal was confirmed";
    return {};
  }
  void withdraw(wire::RegionId region) {
    std::vector<std::byte> payload;
    wire::encode(wire::Withdrawal{region, 0}, payload);
    OFP_ASSERT(program.send(ControlType::withdraw, payload));
  }

  std::vector<std::byte> memory;
  ControlSocket program;
  std::unique_ptr<CopyingLink> link;
};

class SharedDevice : public testing::Test {
 protected:
  std::shared_ptr<LastingMemory> lasting_ = std::make_shared<LastingMemory>();
  std::shared_ptr<CountingDevice> device_ = std::make_shared<CountingDevice>(lasting_);
};

TEST_F(SharedDevice, AFrameIsRegisteredOnceForAllChannels) {
  constexpr std::uint64_t length = 2 * KeptRegions::window_bytes + 300'000;  // three windows
  std::vector<std::byte> source(length, std::byte{3}), frame(length);
  lasting_->add(frame.data(), length);
  std::vector<Channel> channels;
  for (int i = 0; i < 5; ++i) {
    channels.emplace_back(device_).open();
    OFP_ASSERT(channels.back().link->attach_range(1, 1, reinterpret_cast<std::uint64_t>(source.data()), length, 9));
  }
  const std::uint64_t before = device_->made;
  for (Channel& each : channels) {
    std::ranges::fill(frame, std::byte{0});
    ASSERT_TRUE(read_one(*each.link, {1, 1, 0, frame.data(), length}));
    EXPECT_EQ(frame, source);
    EXPECT_EQ(device_->made, before + 3);
  }
  const std::uint64_t pinned = device_->counters().pinned_bytes;
  EXPECT_EQ(device_->kept().bytes(), length);
  lasting_->remove(frame.data());
  std::byte byte;
  ASSERT_TRUE(read_one(*channels[0].link, {1, 1, 0, &byte, 1}));
  EXPECT_EQ(device_->counters().pinned_bytes, pinned - length)
      << "any channel ends the windows of a frame that is gone";
  EXPECT_EQ(device_->kept().bytes(), 0u);
}

TEST_F(SharedDevice, IdleChannelsPinTheMemoryOfOne) {
  std::vector<Channel> channels;
  for (int i = 0; i < 20; ++i) channels.emplace_back(device_).open();
  std::vector<std::byte> ring(rings_bytes);
  for (Channel& each : channels) {
    ASSERT_TRUE(read_one(*each.link, {wire::channel_segment, 0, 0, ring.data(), ring.size()}));
    EXPECT_TRUE(std::equal(ring.begin(), ring.end(), each.memory.begin()));
  }
  EXPECT_EQ(device_->counters().pinned_bytes, BouncePool::block_bytes);
}

TEST_F(SharedDevice, AChannelWhoseCardIsStuckHoldsUpNoOther) {
  Channel stuck(device_), other(device_);
  stuck.open();
  other.open();
  stuck.link->holds = true;
  std::vector<std::byte> ring(rings_bytes);
  const ReadPiece piece{wire::channel_segment, 0, 0, ring.data(), ring.size()};
  for (std::uint64_t i = 0; i < 100; ++i) stuck.link->read(i, {&piece, 1});
  EXPECT_EQ(device_->counters().pinned_bytes, BounceBuffer::blocks_max * BouncePool::block_bytes);
  for (int round = 0; round < 100; ++round) ASSERT_TRUE(read_one(*other.link, piece));
  stuck.link->holds = false;
  await_event(*stuck.link, [](const LinkEvent& event) { return event.token == 99; });
}

TEST_F(SharedDevice, WithoutMemoryAChannelWaitsForWhatOthersReturnAndThenEndsWithTheReason) {
  Channel one(device_), other(device_);
  one.open();
  other.open();
  one.link->holds = true;
  device_->fails = true;
  std::vector<std::byte> ring(rings_bytes);
  const ReadPiece piece{wire::channel_segment, 0, 0, ring.data(), ring.size()};
  one.link->read(1, {&piece, 1});  // takes the only block
  other.link->read(2, {&piece, 1});
  std::array<LinkEvent, 4> events;
  EXPECT_EQ(other.link->poll(monotonic_ns(), events), 0u);
  one.link->holds = false;
  await_event(*one.link, [](const LinkEvent& event) { return event.token == 1; });
  const LinkEvent done = await_event(*other.link, [](const LinkEvent& event) { return event.token == 2; });
  EXPECT_TRUE(done.status);

  one.link->holds = true;
  one.link->read(3, {&piece, 1});
  other.link->read(4, {&piece, 1});
  const TimeNs begin = monotonic_ns();
  EXPECT_EQ(other.link->poll(begin, events), 0u);
  const std::size_t count = other.link->poll(begin + 2 * second_ns, events);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(events[0].status.error().code, Error::no_memory);
  EXPECT_EQ(events[1].kind, LinkEvent::Kind::closed);
  EXPECT_EQ(events[1].status.error().code, Error::no_memory);
}

TEST_F(SharedDevice, WhatLiesOutsideOfTheRingsIsReadOnceItIsAnnounced) {
  Channel channel(device_);
  channel.open();
  std::vector<std::byte> seen(100'000);
  const ReadPiece piece{wire::channel_segment, 0, rings_bytes - 50'000, seen.data(), seen.size()};
  const auto expected = channel.memory.begin() + static_cast<std::ptrdiff_t>(piece.offset);
  for (std::uint32_t round = 1; round <= 3; ++round) {
    channel.link->keys.clear();
    channel.link->read(round, {&piece, 1});
    std::array<LinkEvent, 4> events;
    for (int i = 0; i < 200; ++i) ASSERT_EQ(channel.link->poll(monotonic_ns(), events), 0u) << "it was not announced";
    channel.announce(wire::outside_part, rings_bytes, channel_bytes.all - rings_bytes, 100 + round);
    const LinkEvent done = await_event(*channel.link, [&](const LinkEvent& event) { return event.token == round; });
    ASSERT_TRUE(done.status);
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), expected));
    std::ranges::sort(channel.link->keys);
    EXPECT_EQ(channel.link->keys.front(), 1u);
    EXPECT_EQ(channel.link->keys.back(), 100 + round);
    channel.withdraw(wire::outside_part);
    EXPECT_EQ(channel.await_withdrawn().region, wire::outside_part);
  }
}

TEST_F(SharedDevice, AnAnnouncementOfTheOutsideThatIsWrongEndsTheChannel) {
  const struct {
    const char* name;
    bool opens, twice;
    std::uint64_t length;
  } cases[] = {{"before the rings", false, false, channel_bytes.all - rings_bytes},
               {"another length", true, false, 4096},
               {"twice", true, true, channel_bytes.all - rings_bytes}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    Channel channel(device_);
    if (one.opens) channel.open();
    for (int i = 0; i < (one.twice ? 2 : 1); ++i) channel.announce(wire::outside_part, rings_bytes, one.length, 7);
    const LinkEvent ended = await_kind(*channel.link, LinkEvent::Kind::closed);
    ASSERT_FALSE(ended.status);
    EXPECT_EQ(ended.status.error().code, Error::protocol);
  }
}

// A program announces its whole channel segment at once.
TEST_F(SharedDevice, AChannelSegmentMayBeAnnouncedWhole) {
  Channel channel(device_);
  channel.announce(wire::channel_segment, 0, channel_bytes.all, 1);
  std::vector<std::byte> seen(channel_bytes.all);
  ASSERT_TRUE(read_one(*channel.link, {wire::channel_segment, 0, 0, seen.data(), seen.size()}));
  EXPECT_EQ(seen, channel.memory);
}

}  // namespace
}  // namespace offpath::link
