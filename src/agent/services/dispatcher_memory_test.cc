// Channels whose requests find no memory, and the effect on other channels.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "agent/services/dispatcher.h"
#include "channel/ring.h"
#include "wire/messages/pool_messages.h"

namespace offpath::agent {
namespace {

constexpr wire::ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};

// A program's memory and the events that it received.
struct Program {
  std::vector<std::byte> memory = std::vector<std::byte>(layout.total_bytes());
  channel::RingWriter requests{memory.data() + wire::ChannelLayout::request_ring, layout.request_slots};
  bool lacks_memory = false;  // from now on its link has no memory
  std::vector<Failure> refusals;

  void list_pool() {
    std::vector<std::byte> payload;
    wire::encode(wire::PoolList{"local:/none", "*", "*", 0}, payload);
    requests.write(static_cast<std::uint8_t>(wire::EntryKind::pool_list), requests.position() + 1, payload);
    const std::uint64_t tail = requests.position();
    std::memcpy(memory.data() + wire::ChannelLayout::tail_line, &tail, sizeof tail);
  }
};

class MappedLink final : public link::AgentLink {
 public:
  explicit MappedLink(Program& program) : program_(program) {}
  [[nodiscard]] const link::LinkTraits& traits() const override { return traits_; }
  Status attach_range(link::RegionId, std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t) override {
    return {};
  }
  Status detach_range(link::RegionId, std::uint32_t) override { return {}; }
  [[nodiscard]] MutableBytes mapped(link::RegionId) override { return program_.memory; }
  void read(std::uint64_t, std::span<const link::ReadPiece>) override {}
  void write(std::uint64_t, std::span<const link::WritePiece>) override {}
  void wake() override {}
  std::size_t poll(TimeNs, std::span<link::LinkEvent>) override {
    if (program_.lacks_memory) throw std::bad_alloc();
    return 0;
  }
  [[nodiscard]] int event_fd() const override { return -1; }
  void refuse(const Failure& why) override { program_.refusals.push_back(why); }
  void close() override {}

 private:
  Program& program_;
  link::LinkTraits traits_{.name = "test", .one_sided = true, .reason = {}};
};

bool memory_is_there = true;

class DispatcherMemory : public testing::Test {
 protected:
  static DispatcherOptions options() {
    DispatcherOptions made;
    made.memory_is_there = [] { return memory_is_there; };
    return made;
  }
  void connect(Program& program) {
    service::Client client;
    client.program = "test";
    dispatcher_.add_channel(std::make_unique<MappedLink>(program), layout, client, now_);
  }
  void poll(int rounds = 4) {
    for (int i = 0; i < rounds; ++i) dispatcher_.poll(++now_);
  }
  [[nodiscard]] std::uint64_t answered() const {
    std::uint64_t replies = 0;
    for (const auto& each : dispatcher_.channels()) replies += each.counters.replies;
    return replies;
  }
  TimeNs now_ = 1;
  Dispatcher dispatcher_{options(), [](std::uint64_t, const std::function<Status()>&) {}};
};

TEST_F(DispatcherMemory, AChannelWithoutMemoryForItsRequestEndsAndNoOtherOne) {
  Program hungry, other;
  connect(hungry);
  connect(other);
  hungry.lacks_memory = true;
  poll();
  EXPECT_EQ(dispatcher_.channels().size(), 1u);
  ASSERT_EQ(hungry.refusals.size(), 1u);
  EXPECT_EQ(hungry.refusals.front().code, Error::no_memory);
  other.list_pool();
  poll();
  EXPECT_EQ(answered(), 1u);
}

TEST_F(DispatcherMemory, RequestsWaitUntilThereIsMemoryAgain) {
  Program program;
  connect(program);
  memory_is_there = false;
  program.list_pool();
  poll();
  EXPECT_EQ(answered(), 0u);
  memory_is_there = true;
  poll();
  EXPECT_EQ(answered(), 1u);
}

}  // namespace
}  // namespace offpath::agent
