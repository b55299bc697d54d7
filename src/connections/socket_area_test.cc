#include "connections/socket_area.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <string>

#include "testing/sockets/area_script.h"
#include "testing/sockets/instructions.h"

namespace offpath::channel {
namespace {

using wire::TcpCommandKind;
using wire::TcpError;
using wire::TcpEvent;
namespace event = wire::tcp_event;
using Handle = SocketArea::Handle;

class SocketAreaTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t ring_bytes = 4096;

  SocketAreaTest() {
    area_.emplace(memory(), options_, [this](std::uint32_t) { ++wakes_; });
    agent_.word(wire::tcp_word::agent_asleep).store(1);
  }
  ~SocketAreaTest() override { munmap(memory_, layout_.bytes); }

  MutableBytes memory() const { return {static_cast<std::byte*>(memory_), layout_.bytes}; }
  // The commands since the last call, of this kind.
  std::vector<wire::TcpCommand> commands(TcpCommandKind kind) {
    std::vector<wire::TcpCommand> all = agent_.commands();
    agent_.take_commands();
    std::erase_if(all, [&](const wire::TcpCommand& command) { return command.kind != kind; });
    return all;
  }
  void tell(Handle handle, std::uint8_t what, std::uint64_t received = 0, std::uint64_t acknowledged = 0,
            TcpError error = TcpError::none) {
    TcpEvent told{};
    told.handle = handle;
    told.what = what;
    told.error = error;
    told.received = received;
    told.acknowledged = acknowledged;
    agent_.tell(told);
  }
  struct Flow {
    Handle handle;
    wire::TcpCommand rings;
  };
  Flow connected() {
    const Handle handle = area_->connect({wire::ipv4(0x0a000001), 80}).value();
    const auto posted = commands(TcpCommandKind::connect);
    tell(handle, event::connected);
    return {handle, posted.at(0)};
  }
  // Bytes arrive in the flow's ring, from `position` on.
  void arrive(const Flow& flow, std::uint64_t position, std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i)
      memory()[flow.rings.receive_at + (position + i) % ring_bytes] = static_cast<std::byte>(text[i]);
    tell(flow.handle, event::received, position + text.size());
  }
  std::string receive(Handle flow, std::size_t bytes) {
    std::string text(bytes, '-');
    const auto got = area_->receive(flow, std::as_writable_bytes(std::span(text)));
    if (!got) return fmt::format("{}: {}", static_cast<int>(got.error().code), got.error().message);
    return text.substr(0, *got);
  }

  SocketOptions options_{.flows = 64, .send_bytes = ring_bytes, .receive_bytes = ring_bytes};
  wire::TcpAreaLayout layout_ = SocketArea::layout_of(options_);
  void* memory_ =
      mmap(nullptr, layout_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  AreaScript agent_{memory(), layout_};
  int wakes_ = 0;
  std::optional<SocketArea> area_;
};

TEST_F(SocketAreaTest, AConnectionIsACommandWithItsRingsAndAnEvent) {
  const Flow flow = connected();
  EXPECT_EQ(wakes_, 1);
  const auto asked = std::bit_cast<wire::TcpConnect>(flow.rings);
  EXPECT_EQ(asked.remote_address, wire::ipv4(0x0a000001));
  EXPECT_EQ(asked.remote_port, 80);
  EXPECT_TRUE(wire::check_tcp_ring(layout_, flow.handle, flow.rings.send_at, flow.rings.send_bytes));
  EXPECT_TRUE(wire::check_tcp_ring(layout_, flow.handle, flow.rings.receive_at, flow.rings.receive_bytes));
  EXPECT_FALSE(area_->known(flow.handle)->connected);
  EXPECT_TRUE(area_->take_in());
  EXPECT_TRUE(area_->known(flow.handle)->connected);
  EXPECT_EQ(area_->take_changed(), flow.handle);
  EXPECT_EQ(area_->take_changed(), std::nullopt);
}

TEST_F(SocketAreaTest, SettingsAreInTheCommandThatBeginsAConnection) {
  const FlowSettings settings{.congestion = wire::TcpCongestion::dctcp,
                              .keepalive_idle_s = 5,
                              .traffic_class4 = 0xb8,
                              .traffic_class6 = 0x20,
                              .user_timeout_ms = 700};
  const Handle four = area_->connect({wire::ipv4(0x0a000001), 80}, 0, 0, &settings).value();
  area_->set_flow_settings(four, settings);  // no news
  const auto connects = commands(TcpCommandKind::connect);
  ASSERT_EQ(connects.size(), 1u);
  EXPECT_EQ(wire::tcp_congestion_of(connects[0].flags), wire::TcpCongestion::dctcp);
  EXPECT_EQ(wire::tcp_traffic_class_of(connects[0].flags), 0xb8);
  EXPECT_EQ(connects[0].keepalive_idle_s, 5);
  EXPECT_EQ(connects[0].user_timeout_ms, 700u);
  EXPECT_EQ(connects[0].flags & 3, wire::tcp_no_delay | wire::tcp_keepalive);
  EXPECT_EQ(std::bit_cast<wire::TcpConnect>(connects[0]).remote_port, 80);
  static_cast<void>(area_->listen(81, 1, wire::tcp_families, wire::tcp_no_handle, &settings));
  const auto listens = commands(TcpCommandKind::listen);
  ASSERT_EQ(listens.size(), 1u);
  EXPECT_EQ(wire::tcp_traffic_class_of(listens[0].flags), 0xb8);
  EXPECT_EQ(listens[0].traffic_class6, 0x20);
  EXPECT_EQ(listens[0].flags & wire::tcp_families, wire::tcp_families);
}

TEST_F(SocketAreaTest, ARefusedConnectionSaysSo) {
  const Handle handle = area_->connect({wire::ipv4(0x0a000001), 80}).value();
  tell(handle, event::closed | event::gone, 0, 0, TcpError::refused);
  const auto sent = area_->send(handle, bytes_of("x"));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().message, "the connection was refused");
}

TEST_F(SocketAreaTest, BytesGoRoundTheRingsInBothDirections) {
  const Flow flow = connected();
  std::uint64_t position = 0;
  for (int round = 0; round < 10; ++round, position += 1500) {
    const std::string text(1500, static_cast<char>('a' + round));
    ASSERT_EQ(area_->send(flow.handle, bytes_of(text)), text.size());
    const auto offers = commands(TcpCommandKind::offer);
    ASSERT_EQ(offers.size(), 1u);
    EXPECT_EQ(offers[0].position, position + 1500);
    for (std::uint64_t i = 0; i < 1500; ++i)
      ASSERT_EQ(memory()[flow.rings.send_at + (position + i) % ring_bytes], static_cast<std::byte>(text[0]));
    tell(flow.handle, event::acknowledged, 0, position + 1500);
    arrive(flow, position, text);
    EXPECT_EQ(receive(flow.handle, 2000), text);
  }
  EXPECT_FALSE(area_->undelivered());
}

TEST_F(SocketAreaTest, AFullSendRingTakesWhatFitsAndThenBlocks) {
  const Flow flow = connected();
  const std::string text(ring_bytes + 1, 'x');
  EXPECT_EQ(area_->send(flow.handle, bytes_of(text)), ring_bytes);
  EXPECT_EQ(area_->send(flow.handle, bytes_of("y")).error().code, Error::would_block);
  EXPECT_FALSE(area_->look(flow.handle)->writable);
  tell(flow.handle, event::acknowledged, 0, ring_bytes);
  EXPECT_EQ(area_->send(flow.handle, bytes_of("y")), 1u);
}

TEST_F(SocketAreaTest, TheEndOfTheStreamComesAfterTheBytes) {
  const Flow flow = connected();
  arrive(flow, 0, "last");
  tell(flow.handle, event::finished, 4);
  EXPECT_EQ(receive(flow.handle, 10), "last");
  EXPECT_EQ(receive(flow.handle, 10), "");
}

TEST_F(SocketAreaTest, AQuarterOfTheWindowThatWasReadIsAllowedAgain) {
  const Flow flow = connected();
  arrive(flow, 0, std::string(ring_bytes, 'x'));
  static_cast<void>(commands(TcpCommandKind::allow));
  EXPECT_EQ(receive(flow.handle, ring_bytes / 4 - 1).size(), ring_bytes / 4 - 1);
  EXPECT_TRUE(commands(TcpCommandKind::allow).empty());
  EXPECT_EQ(receive(flow.handle, 1), "x");
  const auto allowed = commands(TcpCommandKind::allow);
  ASSERT_EQ(allowed.size(), 1u);
  EXPECT_EQ(allowed[0].position, ring_bytes + ring_bytes / 4);
}

TEST_F(SocketAreaTest, ConnectionsAreAcceptedInTheOrderInWhichTheyBegan) {
  const Handle listener = area_->listen(80, 4).value();
  const auto slots = commands(TcpCommandKind::accept_slot);
  ASSERT_EQ(slots.size(), 4u);
  EXPECT_EQ(area_->accept(listener).error().code, Error::would_block);
  for (const std::size_t i : {2u, 0u}) {
    TcpEvent told{};
    told.handle = slots[i].handle;
    told.what = event::accepted;
    told.listener = listener;
    told.begun = 100 - i;
    agent_.tell(told);
  }
  EXPECT_TRUE(area_->look(listener)->readable);
  EXPECT_EQ(area_->accept(listener).value(), slots[2].handle);
  EXPECT_EQ(area_->accept(listener).value(), slots[0].handle);
  EXPECT_EQ(commands(TcpCommandKind::accept_slot).size(), 2u) << "an accepted connection gives its slot back";
}

// The local address is the agent's own one of the peer's family.
TEST_F(SocketAreaTest, AddressesAreOfEitherFamily) {
  const wire::IpAddress own{{0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}}, peer{{0xfe, 0x80, 15, 1}};
  EXPECT_TRUE(area_->agent().own_address(wire::IpFamily::v6).is_unspecified());
  auto* const line = reinterpret_cast<wire::TcpAgentLine*>(memory().data() + wire::tcp_word::agent_line);
  line->address4 = 0x0a000002;
  line->address6 = own;
  EXPECT_EQ(area_->agent().own_address(wire::IpFamily::v6), own);
  const Handle listener = area_->listen(80, 1, wire::tcp_for_ipv4 | wire::tcp_for_ipv6).value();
  TcpEvent told{};
  told.handle = commands(TcpCommandKind::accept_slot).at(0).handle;
  told.what = event::accepted;
  told.listener = listener;
  told.port = 80;
  told.remote_address = peer;
  told.remote_port = 1234;
  agent_.tell(told);
  const auto accepted = area_->look(area_->accept(listener).value());
  EXPECT_EQ(accepted->remote.address, peer);
  EXPECT_EQ(accepted->remote.port, 1234);
  EXPECT_EQ(accepted->local.address, own);
  EXPECT_EQ(accepted->local.port, 80);
  EXPECT_EQ(accepted->acknowledged, 0u) << "the peer's address is in its place";
  EXPECT_EQ(area_->look(connected().handle)->local.address, wire::ipv4(0x0a000002));
}

TEST_F(SocketAreaTest, APortIsOfOneFamilyAtLeast) {
  EXPECT_EQ(area_->bind(80, wire::tcp_reuse_port).error().code, Error::invalid);
  EXPECT_EQ(area_->listen(80, 1, 0).error().code, Error::invalid);
}

TEST_F(SocketAreaTest, UnreadBytesMakeACloseAReset) {
  const Flow read = connected(), unread = connected();
  arrive(unread, 0, "x");
  EXPECT_TRUE(area_->take_in());
  area_->close(read.handle);
  const auto released = commands(TcpCommandKind::release);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].handle, read.handle);
  area_->close(unread.handle);
  const auto aborted = commands(TcpCommandKind::abort);
  ASSERT_EQ(aborted.size(), 1u);
  EXPECT_EQ(aborted[0].handle, unread.handle);
}

TEST_F(SocketAreaTest, AConnectionEndsWithTheLastProcessThatHoldsIt) {
  const Flow flow = connected();
  const std::uint32_t child = area_->add_process().value();
  area_->close(flow.handle);
  EXPECT_TRUE(commands(TcpCommandKind::release).empty()) << "the child holds it";
  EXPECT_FALSE(area_->holds(flow.handle));
  TcpEvent ended{};
  ended.handle = wire::tcp_no_handle;
  ended.listener = child;
  agent_.tell(ended);  // the child was killed
  EXPECT_TRUE(area_->take_in());
  EXPECT_EQ(commands(TcpCommandKind::release).size(), 1u);
}

TEST_F(SocketAreaTest, AnotherMappingOfTheAreaContinuesWithIt) {
  const Flow flow = connected();
  const std::uint32_t number = area_->add_process().value();
  SocketArea other(memory(), options_, [](std::uint32_t) {}, number);
  arrive(flow, 0, "to both");
  EXPECT_TRUE(other.take_in());
  EXPECT_TRUE(area_->has_events()) << "the other process took the event in for this one";
  EXPECT_EQ(area_->take_changed(), flow.handle);
  EXPECT_EQ(receive(flow.handle, 3), "to ");
  std::string rest(9, '-');
  EXPECT_EQ(other.receive(flow.handle, std::as_writable_bytes(std::span(rest))), 4u);
  EXPECT_EQ(rest.substr(0, 4), "both");
}

TEST_F(SocketAreaTest, ASleepIsRefusedWhileThereAreEvents) {
  const Flow flow = connected();
  EXPECT_FALSE(area_->fall_asleep());
  EXPECT_TRUE(area_->take_in());
  EXPECT_TRUE(area_->fall_asleep());
  EXPECT_EQ(agent_.word(wire::tcp_word::process_asleep(0)).load(), 1u);
  area_->stay_awake();
  EXPECT_EQ(agent_.word(wire::tcp_word::process_asleep(0)).load(), 0u);
  EXPECT_TRUE(area_->holds(flow.handle));
}

TEST_F(SocketAreaTest, InvalidHandlesAreRefused) {
  for (const Handle handle : {Handle{0}, options_.flows, wire::tcp_no_handle}) {
    EXPECT_EQ(area_->send(handle, bytes_of("x")).error().code, Error::invalid) << handle;
    EXPECT_EQ(area_->accept(handle).error().code, Error::invalid) << handle;
    EXPECT_FALSE(area_->look(handle));
    area_->close(handle);
  }
  EXPECT_TRUE(agent_.commands().empty());
}

// One of many connections is accepted, and another one is closed.
TEST(SocketAreaCost, AcceptAndCloseDoNotDependOnTheNumberOfConnections) {
  constexpr std::uint64_t most = 200'000;
  const auto cost_among = [](std::uint32_t connections) {
    const SocketOptions options{.flows = 2 * connections, .send_bytes = 1024, .receive_bytes = 1024};
    const wire::TcpAreaLayout layout = SocketArea::layout_of(options);
    void* const memory = mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const MutableBytes bytes{static_cast<std::byte*>(memory), layout.bytes};
    SocketArea area(bytes, options, [](std::uint32_t) {});
    AreaScript agent(bytes, layout);
    Handle listener = 0, first = 0;
    const auto prepare = [&] {
      for (std::uint32_t i = 0; i < connections; ++i) {
        first = area.connect({wire::ipv4(0x0a000001), 80}).value();
        static_cast<void>(agent.commands());
        agent.take_commands();
      }
      listener = area.listen(80, 1).value();
      TcpEvent told{};
      told.what = event::accepted;
      told.handle = agent.commands().back().handle;
      told.listener = listener;
      agent.tell(told);
      static_cast<void>(area.take_in());
    };
    const auto calls = [&] {
      const bool accepted = area.accept(listener).has_value();
      area.close(first);
      static_cast<void>(area.take_in());
      if (!accepted) ::_exit(1);
    };
    const auto cost = instructions(most, prepare, calls);
    munmap(memory, layout.bytes);
    return cost;
  };
  const auto few = cost_among(100), many = cost_among(10'000);
  ASSERT_TRUE(few && many);
  if (*few > most / 2) GTEST_SKIP() << "a sanitizer's instructions are too many to be counted";
  EXPECT_LT(*many, *few + *few / 2) << "instructions";
}

}  // namespace
}  // namespace offpath::channel
