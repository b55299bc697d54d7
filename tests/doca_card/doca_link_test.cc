// Failures of a card's driver, of its engine and of the program beside it. The conformance suite runs over the
// software card as well (doca_conformance_test); here are its failures, one by one.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>

#include "link/card/card_device.h"
#include "link/doca/doca_device.h"
#include "link/doca/doca_link.h"
#include "link/lasting_memory.h"
#include "software_card.h"
#include "testing/link/connected_pair.h"
#include "testing/link/seeded_random.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using ::testing::HasSubstr;
using wire::ControlType;

constexpr wire::ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};

SoftwareCard& card() {
  static SoftwareCard* const found = [] {
    void* library = dlopen(OFFPATH_SOFTWARE_CARD, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    OFP_ASSERT(library != nullptr);
    return reinterpret_cast<SoftwareCard* (*)()>(dlsym(library, "software_card"))();
  }();
  return *found;
}

class DocaLink : public testing::Test {
 protected:
  DocaLink() {
    options_.layout = layout;
    options_.key_file = directory_.write("key", "a key for these tests only, long enough");
    auto key = SharedKey::load(options_.key_file);
    OFP_ASSERT(key);
    listening_.policy.key = std::move(*key);
  }
  ~DocaLink() override {
    link_.reset();
    host_.reset();
    for (std::atomic<int>* count : {&card().opens_fail, &card().maps_fail, &card().exports_fail, &card().imports_fail,
                                    &card().starts_fail, &card().submits_fail})
      *count = 0;
    card().tasks_until_failure = -1;
    card().gone = false;
    EXPECT_EQ(card().misuses, 0u);
  }

  Status meet() {
    auto [host, arrival] = listening_.meet(options_);
    host_ = host ? std::move(*host) : nullptr;
    link_ = std::move(arrival.link);
    if (!host) return tl::unexpected<Failure>(std::move(host).error());
    if (!link_) return tl::unexpected<Failure>(std::move(arrival.failure));
    return {};
  }
  // The agent's loop, beside a call of the program.
  template <class Call>
  auto beside(Call call) {
    std::atomic<bool> done = false;
    decltype(call()) result{};
    std::thread program([&] {
      result = call();
      done = true;
    });
    while (!done) link_->poll(monotonic_ns(), {});
    program.join();
    return result;
  }
  Status announce(RegionId range, std::uint32_t generation, const std::vector<std::byte>& array) {
    Result<std::uint32_t> key =
        beside([&] { return host_->announce_range(range, generation, array.data(), array.size()); });
    if (!key) return tl::unexpected<Failure>(std::move(key).error());
    return link_->attach_range(range, generation, reinterpret_cast<std::uint64_t>(array.data()), array.size(), *key);
  }
  // Every operation's outcome, and why the link closed.
  std::map<std::uint64_t, Status> until_closed(Status& why) {
    std::map<std::uint64_t, Status> ended;
    await_event(*link_, [&](const LinkEvent& event) {
      if (event.kind == LinkEvent::Kind::closed) {
        why = event.status;
        return true;
      }
      if (event.kind != LinkEvent::Kind::woken) {
        EXPECT_TRUE(ended.emplace(event.token, event.status).second) << event.token << " ended twice";
      }
      return false;
    });
    return ended;
  }

  TestDirectory directory_;
  TestAgent listening_{"doca:127.0.0.1:0"};
  HostOptions options_;
  std::unique_ptr<HostLink> host_;
  std::unique_ptr<AgentLink> link_;
};

std::vector<std::byte> pattern(std::size_t length, unsigned kind) {
  std::vector<std::byte> made(length);
  for (std::size_t i = 0; i < length; ++i) made[i] = static_cast<std::byte>(i * 7 + i / 251 + kind);
  return made;
}

TEST_F(DocaLink, TheDeviceIsTheFirstThatCanOrTheOneThatIsNamed) {
  const auto opened = [](const std::string& wanted) { return open_doca_device(DocaRole::imports, wanted); };
  EXPECT_TRUE(opened(""));
  EXPECT_TRUE(opened("0000:03:00.1"));
  EXPECT_TRUE(opened("03:00.1"));
  for (const char* wanted : {"0000:05:00.0", "0000:77:00.0", "nonsense"}) {
    const auto device = opened(wanted);
    ASSERT_FALSE(device) << wanted;
    EXPECT_EQ(device.error().code, Error::unsupported);
    EXPECT_THAT(device.error().message, HasSubstr(wanted));
    EXPECT_THAT(device.error().message, HasSubstr("0000:05:00.0, 0000:03:00.0, 0000:03:00.1"));
  }
}

TEST_F(DocaLink, WhatTheDriverRefusesWhileConnectingIsSaidOnBothSides) {
  const struct {
    const char* name;
    std::atomic<int>& fails;
  } cases[] = {{"opening", card().opens_fail},
               {"starting", card().starts_fail},
               {"mapping", card().maps_fail},
               {"exporting", card().exports_fail},
               {"importing", card().imports_fail}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    one.fails = 1;
    const Status met = meet();
    ASSERT_FALSE(met);
    EXPECT_NE(met.error().code, Error::timeout) << met.error().message;
    EXPECT_FALSE(met.error().message.empty());
    EXPECT_EQ(one.fails, 0);
    ASSERT_TRUE(meet()) << "the next one gets through";
  }
}

TEST_F(DocaLink, ARangeThatCannotBeImportedIsRefusedAndTheLinkGoesOn) {
  ASSERT_TRUE(meet());
  const auto array = pattern(5000, 1);
  for (std::atomic<int>* fails : {&card().imports_fail, &card().exports_fail, &card().maps_fail}) {
    *fails = 1;
    const Status announced = announce(6, 1, array);
    ASSERT_FALSE(announced);
    EXPECT_THAT(announced.error().message, HasSubstr("range 6"));
  }
  ASSERT_TRUE(announce(6, 1, array));
  std::vector<std::byte> seen(array.size());
  ASSERT_TRUE(read_one(*link_, {6, 1, 0, seen.data(), seen.size()}));
  EXPECT_EQ(seen, array);
}

TEST_F(DocaLink, TheRingMayNameOnlyWhatWasExported) {
  ASSERT_TRUE(meet());
  const auto array = pattern(5000, 1);
  const auto base = reinterpret_cast<std::uint64_t>(array.data());
  const Result<std::uint32_t> key = beside([&] { return host_->announce_range(6, 1, array.data(), array.size()); });
  ASSERT_TRUE(key) << key.error().message;
  for (const Status& attached :
       {link_->attach_range(7, 1, base, 5000, *key), link_->attach_range(6, 2, base, 5000, *key),
        link_->attach_range(6, 1, base + 1, 5000, *key), link_->attach_range(6, 1, base, 5001, *key),
        link_->attach_range(6, 1, base, 5000, *key + 1)}) {
    ASSERT_FALSE(attached);
    EXPECT_EQ(attached.error().code, Error::unannounced);
  }
  ASSERT_TRUE(link_->attach_range(6, 1, base, 5000, *key));
}

// Reads overtake writes and each other, writes never one another: of those to one place the last one posted stays.
TEST_F(DocaLink, WritesKeepTheirOrderWhereTheEngineKeepsNone) {
  const std::uint64_t overtaken = card().overtaken;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    card().seed = seed;
    ASSERT_TRUE(meet());
    const auto array = pattern(300'000, 3);
    ASSERT_TRUE(announce(1, 1, array));
    SeededRandom random(seed);
    std::vector<std::vector<std::byte>> seen(60), sent(60);
    std::vector<std::byte> expected(9000);
    std::map<std::uint64_t, std::size_t> offsets;
    for (std::uint64_t i = 0; i < 60; ++i) {
      if (random.between(0, 2) == 0) {
        offsets[i] = static_cast<std::size_t>(random.between(0, 100'000));
        seen[i].resize(static_cast<std::size_t>(random.between(1, 200'000)));
        const ReadPiece piece{1, 1, offsets[i], seen[i].data(), seen[i].size()};
        link_->read(i, {&piece, 1});
      } else {
        const auto at = static_cast<std::size_t>(random.between(0, 4000));
        sent[i] = pattern(static_cast<std::size_t>(random.between(1, 5000)), static_cast<unsigned>(i));
        std::ranges::copy(sent[i], expected.begin() + static_cast<std::ptrdiff_t>(at));
        const WritePiece piece{wire::channel_segment, at, sent[i].data(), sent[i].size()};
        link_->write(i, {&piece, 1});
      }
    }
    std::map<std::uint64_t, Status> ended;
    await_event(*link_, [&](const LinkEvent& event) {
      EXPECT_TRUE(event.status) << event.status.error().message;
      EXPECT_TRUE(ended.emplace(event.token, event.status).second);
      return ended.size() == 60;
    });
    for (const auto& [token, offset] : offsets)
      EXPECT_TRUE(
          std::equal(seen[token].begin(), seen[token].end(), array.begin() + static_cast<std::ptrdiff_t>(offset)));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), host_->channel_memory().begin()));
  }
  EXPECT_GT(card().overtaken, overtaken) << "the engine was in order";
}

TEST_F(DocaLink, WhatCannotBeMappedGoesThroughTheBounceBuffer) {
  ASSERT_TRUE(meet());
  const auto array = pattern(3'000'000, 5);
  ASSERT_TRUE(announce(1, 1, array));
  std::vector<std::byte> seen(array.size());
  card().maps_fail = 1000;
  ASSERT_TRUE(read_one(*link_, {1, 1, 0, seen.data(), seen.size()}));
  EXPECT_LT(card().maps_fail, 1000);
  EXPECT_EQ(seen, array);
}

// A frame that lasts is mapped once: not for each operation, and not for each channel of the agent.
TEST_F(DocaLink, MemoryThatLastsIsMappedOnce) {
  auto lasting = std::make_shared<LastingMemory>();
  auto devices = std::make_shared<CardDevices>(lasting);
  listening_.policy.devices = devices;
  ASSERT_TRUE(meet());
  auto first_host = std::move(host_);
  auto first_link = std::move(link_);
  const auto array = pattern(1'000'000, 5);
  ASSERT_TRUE(meet());
  ASSERT_TRUE(announce(1, 1, array));
  EXPECT_EQ(devices->figures().devices, 1u);
  EXPECT_EQ(devices->figures().pinned_bytes, BouncePool::block_bytes) << "of both channels";
  std::vector<std::byte> seen(array.size());
  lasting->add(seen.data(), seen.size());
  ASSERT_TRUE(read_one(*link_, {1, 1, 0, seen.data(), seen.size()}));
  card().maps_fail = 1000;
  std::ranges::fill(seen, std::byte{0});
  ASSERT_TRUE(read_one(*link_, {1, 1, 0, seen.data(), seen.size()}));
  EXPECT_EQ(card().maps_fail, 1000) << "mapped again";
  EXPECT_EQ(seen, array);
  EXPECT_EQ(devices->figures().frame_bytes, seen.size());

  card().maps_fail = 0;
  std::swap(host_, first_host);
  std::swap(link_, first_link);
  ASSERT_TRUE(announce(1, 1, array));
  card().maps_fail = 1000;
  std::ranges::fill(seen, std::byte{0});
  ASSERT_TRUE(read_one(*link_, {1, 1, 0, seen.data(), seen.size()}));
  EXPECT_EQ(card().maps_fail, 1000) << "mapped again for another channel";
  EXPECT_EQ(seen, array);
  lasting->remove(seen.data());
}

TEST_F(DocaLink, AnAgentThatSleepsIsWokenByCompletions) {
  ASSERT_TRUE(meet());
  const auto array = pattern(1'000'000, 5);
  ASSERT_TRUE(announce(1, 1, array));
  std::vector<std::byte> seen(array.size());
  for (std::uint64_t round = 0; round < 20; ++round) {
    const ReadPiece piece{1, 1, 0, seen.data(), seen.size()};
    link_->read(round, {&piece, 1});
    std::array<LinkEvent, 4> events;
    bool done = false;
    while (!done) {
      pollfd look{link_->event_fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&look, 1, patience_ms()), 1) << "nothing woke it in round " << round;
      done = link_->poll(monotonic_ns(), events) == 1;
    }
    EXPECT_EQ(events[0].token, round);
  }
}

TEST_F(DocaLink, AFailedTaskEndsTheLinkWithTheReasonOnBothSides) {
  ASSERT_TRUE(meet());
  std::vector<std::byte> seen(20 * 64);
  card().tasks_until_failure = 3;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const ReadPiece piece{wire::channel_segment, 0, 64 * i, seen.data() + 64 * i, 64};
    link_->read(i, {&piece, 1});
  }
  Status why;
  const auto ended = until_closed(why);
  ASSERT_FALSE(why);
  EXPECT_EQ(why.error().code, Error::io);
  EXPECT_THAT(why.error().message, HasSubstr("a DMA task failed"));
  EXPECT_EQ(ended.size(), 20u);
  EXPECT_LE(std::ranges::count_if(ended, [](const auto& each) { return each.second.has_value(); }), 19);
  const auto looked = [&] { return host_->look(); };
  Status said;
  for (const TimeNs deadline = soon(); (said = looked()) && monotonic_ns() < deadline;) {
  }
  ASSERT_FALSE(said);
  EXPECT_THAT(said.error().message, HasSubstr("a DMA task failed"));
}

TEST_F(DocaLink, AContextThatStopsEndsTheLink) {
  ASSERT_TRUE(meet());
  card().gone = true;
  Status why;
  until_closed(why);
  ASSERT_FALSE(why);
  EXPECT_EQ(why.error().code, Error::io);
  EXPECT_THAT(why.error().message, HasSubstr("context stopped"));
}

TEST_F(DocaLink, ATaskThatIsRefusedEndsTheLink) {
  ASSERT_TRUE(meet());
  card().submits_fail = 1;
  std::array<std::byte, 64> seen{};
  const ReadPiece piece{wire::channel_segment, 0, 0, seen.data(), seen.size()};
  link_->read(1, {&piece, 1});
  Status why;
  const auto ended = until_closed(why);
  ASSERT_FALSE(why);
  EXPECT_THAT(why.error().message, HasSubstr("posting a DMA task"));
  ASSERT_TRUE(ended.contains(1));
  EXPECT_FALSE(ended.at(1));
}

// ---- a program of this test, which sends arbitrary messages

class ForgedExport : public DocaLink {
 protected:
  static constexpr std::uint64_t channel_bytes = 64 * 1024;

  void SetUp() override {
    std::array<int, 2> ends;
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    program_ = ControlSocket(Fd(ends[0]), ControlSocket::Kind::network);
    SegmentLimits limits;
    limits.bytes_max = 2 * channel_bytes;
    auto accepted =
        accept_doca(ControlSocket(Fd(ends[1]), ControlSocket::Kind::network), channel_bytes, limits, nullptr, soon());
    ASSERT_TRUE(accepted) << accepted.error().message;
    link_ = std::move(*accepted);
    auto device = open_doca_device(DocaRole::exports, "");
    ASSERT_TRUE(device);
    device_ = std::move(*device);
    auto map = map_memory(device_, memory_.data(), memory_.size(), DOCA_ACCESS_FLAG_PCI_READ_WRITE);
    ASSERT_TRUE(map);
    map_ = std::move(*map);
    auto descriptor = export_map(device_, map_.get());
    ASSERT_TRUE(descriptor);
    descriptor_.assign(descriptor->begin(), descriptor->end());
  }
  void TearDown() override {
    link_.reset();
    map_.reset();
  }

  [[nodiscard]] wire::MemoryExport good(RegionId region, std::uint32_t generation, std::uint32_t key) {
    return {region, generation, reinterpret_cast<std::uint64_t>(memory_.data()), memory_.size(), key, descriptor_};
  }
  // The agent's answer; peer_lost, protocol and others: it ended the link.
  Status say(const wire::MemoryExport& exported) {
    std::vector<std::byte> payload;
    wire::encode(exported, payload);
    OFP_TRY(program_.send(ControlType::memory_export, payload));
    std::array<LinkEvent, 4> events;
    for (const TimeNs deadline = soon(); monotonic_ns() < deadline;) {
      const std::size_t count = link_->poll(monotonic_ns(), events);
      for (std::size_t i = 0; i < count; ++i)
        if (events[i].kind == LinkEvent::Kind::closed) {
          closed_ = true;
          return events[i].status;
        }
      ControlSocket::Frame frame;
      OFP_ASSIGN(const bool there, program_.next(frame));
      if (!there) continue;
      EXPECT_EQ(frame.type, ControlType::imported);
      OFP_ASSIGN(const wire::Outcome outcome, wire::decode_outcome(frame.payload));
      EXPECT_EQ(outcome.token, exported.key);
      return outcome.status;
    }
    return fail(Error::timeout, "no answer");
  }
  void expect_end(const Status& said) {
    ASSERT_FALSE(said);
    EXPECT_TRUE(closed_) << said.error().message;
    EXPECT_EQ(said.error().code, Error::protocol) << said.error().message;
  }

  ControlSocket program_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(channel_bytes);
  DocaDevice device_;
  DocaMap map_;
  std::vector<std::byte> descriptor_;
  bool closed_ = false;
};

TEST_F(ForgedExport, ADescriptorThatIsNoneIsRefusedAndTheLinkGoesOn) {
  std::vector<std::byte> junk = descriptor_;
  junk[20] ^= std::byte{1};
  wire::MemoryExport exported = good(wire::channel_segment, 0, 1);
  for (const Bytes bytes : {Bytes(junk), Bytes(descriptor_).first(5)}) {
    exported.descriptor = bytes;
    const Status said = say(exported);
    ASSERT_FALSE(said);
    EXPECT_FALSE(closed_);
    EXPECT_THAT(said.error().message, HasSubstr("cannot import"));
  }
  EXPECT_TRUE(say(good(wire::channel_segment, 0, 1)));
}

TEST_F(ForgedExport, OfOtherMemoryThanWasSaidEndsTheLink) {
  wire::MemoryExport exported = good(wire::channel_segment, 0, 1);
  exported.address += 4096;
  expect_end(say(exported));
}

TEST_F(ForgedExport, BeforeTheChannelSegmentEndsTheLink) { expect_end(say(good(3, 1, 1))); }

TEST_F(ForgedExport, OfTheChannelSegmentTwiceEndsTheLink) {
  ASSERT_TRUE(say(good(wire::channel_segment, 0, 1)));
  expect_end(say(good(wire::channel_segment, 0, 2)));
}

TEST_F(ForgedExport, OfOneKeyTwiceEndsTheLink) {
  ASSERT_TRUE(say(good(wire::channel_segment, 0, 1)));
  ASSERT_TRUE(say(good(3, 1, 2)));
  expect_end(say(good(4, 1, 2)));
}

TEST_F(ForgedExport, OfOneRangeTwiceEndsTheLink) {
  ASSERT_TRUE(say(good(wire::channel_segment, 0, 1)));
  ASSERT_TRUE(say(good(3, 1, 2)));
  ASSERT_TRUE(say(good(3, 2, 3)));
  expect_end(say(good(3, 1, 4)));
}

TEST_F(ForgedExport, SegmentsBeyondTheLimitEndTheLink) {
  ASSERT_TRUE(say(good(wire::channel_segment, 0, 1)));
  ASSERT_TRUE(say(good(wire::segment_flag | 1, 0, 2)));
  const Status said = say(good(wire::segment_flag | 2, 0, 3));
  ASSERT_FALSE(said);
  EXPECT_TRUE(closed_);
  EXPECT_EQ(said.error().code, Error::too_large);
}

// A program may unmap, or end an export, before it announces that: its own link ends.
TEST_F(ForgedExport, AnExportThatEndedFailsItsTasks) {
  ASSERT_TRUE(say(good(wire::channel_segment, 0, 1)));
  map_.reset();
  std::array<std::byte, 64> seen{};
  const ReadPiece piece{wire::channel_segment, 0, 0, seen.data(), seen.size()};
  link_->read(1, {&piece, 1});
  Status why;
  const auto ended = until_closed(why);
  ASSERT_FALSE(why);
  EXPECT_EQ(why.error().code, Error::io) << why.error().message;
  EXPECT_TRUE(ended.contains(1) && !ended.at(1));
}

}  // namespace
}  // namespace offpath::link
