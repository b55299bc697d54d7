#include "connections/area/area_rings.h"

#include <gtest/gtest.h>

#include <bit>

#include "testing/sockets/area_script.h"

namespace offpath::channel {
namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;
namespace word = wire::tcp_word;

class AreaRingsTest : public ::testing::Test {
 protected:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  static wire::TcpAreaLayout layout() {
    wire::TcpAreaLayout layout;
    layout.command_slots = layout.event_slots = 16;
    layout.flows = 64;
    return layout;
  }
  static TcpCommand command(std::uint32_t handle, TcpCommandKind kind = TcpCommandKind::finish) {
    TcpCommand command{};
    command.kind = kind;
    command.handle = handle;
    return command;
  }
  std::vector<std::uint32_t> take_all(std::uint32_t core = 0) {
    std::vector<std::uint32_t> handles;
    const bool any = rings_.take_all(core, [&](const TcpEvent& event) { handles.push_back(event.handle); });
    EXPECT_EQ(any, !handles.empty());
    return handles;
  }
  void set(std::uint64_t offset, std::uint64_t value) { agent_.word(offset).store(value); }
  void link() {
    set(word::linked, 1);
    rings_.learn();
  }

  std::vector<Line> memory_{layout().own() / sizeof(Line)};
  AreaRingsState state_{};
  std::vector<std::uint32_t> woken_;
  AreaRings rings_{{memory_.front().bytes, layout().own()}, layout(), state_, [this](std::uint32_t core) {
                     woken_.push_back(core);
                   }};
  AreaScript agent_{{memory_.front().bytes, layout().own()}, layout()};
};

TEST_F(AreaRingsTest, CommandsArriveInOrderRoundTheRing) {
  for (std::uint32_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(rings_.room(0));
    rings_.post(0, command(i), 0);
    const auto posted = agent_.commands();
    ASSERT_EQ(posted.size(), 1u);
    EXPECT_EQ(posted[0].handle, i);
    agent_.take_commands();
  }
  EXPECT_EQ(rings_.posted(), 40u);
}

TEST_F(AreaRingsTest, AFullRingHasNoRoomUntilTheAgentHasTakenCommands) {
  for (std::uint32_t i = 0; i < 16; ++i) {
    ASSERT_TRUE(rings_.room(0));
    rings_.post(0, command(i), 0);
  }
  EXPECT_FALSE(rings_.room(0));
  EXPECT_TRUE(rings_.waits_for_room());
  EXPECT_FALSE(rings_.look_before_sleep()) << "there is no room still";
  EXPECT_FALSE(rings_.room(0));
  EXPECT_EQ(agent_.commands().size(), 16u);
  agent_.take_commands();
  EXPECT_TRUE(rings_.look_before_sleep()) << "the room came between the command and the sleep";
  EXPECT_FALSE(rings_.waits_for_room());
}

TEST_F(AreaRingsTest, OnlyASleepingCoreWithCommandsIsWoken) {
  set(word::cores, 3);
  rings_.learn();
  ASSERT_EQ(rings_.cores(), 3u);
  for (const std::uint32_t core : {0u, 1u}) set(word::of_core(core) + word::agent_asleep, 1);
  rings_.post(1, command(1), 0);
  rings_.post(2, command(2), 0);
  rings_.tell_agent();
  EXPECT_EQ(woken_, std::vector<std::uint32_t>{1});
  EXPECT_EQ(agent_.word(word::of_core(1) + word::agent_asleep).load(), 0u);
  rings_.tell_agent();
  EXPECT_EQ(woken_.size(), 1u);
}

TEST_F(AreaRingsTest, EventsAreTakenOnce) {
  for (std::uint32_t round = 0; round < 3; ++round) {
    std::vector<std::uint32_t> told;
    for (std::uint32_t i = 0; i < 10; ++i) {
      TcpEvent event{};
      event.handle = round * 10 + i;
      agent_.tell(event);
      told.push_back(event.handle);
    }
    EXPECT_TRUE(rings_.has_events());
    EXPECT_TRUE(rings_.look_before_sleep());
    EXPECT_EQ(take_all(), told);
    EXPECT_FALSE(rings_.has_events());
    EXPECT_FALSE(rings_.look_before_sleep());
    EXPECT_EQ(agent_.word(word::events_taken).load(), (round + 1) * 10u);
  }
}

TEST_F(AreaRingsTest, AnAgentThatSleepsUntilEventsAreTakenIsWoken) {
  set(word::agent_asleep, 2);
  agent_.tell({});
  EXPECT_EQ(take_all().size(), 1u);
  EXPECT_EQ(woken_, std::vector<std::uint32_t>{0});
}

TEST_F(AreaRingsTest, ALinkedAgentGetsTheBytesOfASmallSendWithinCommands) {
  link();
  ASSERT_TRUE(rings_.is_linked());
  const std::string sent(wire::tcp_entry_payload + 3, 's');
  rings_.post_offer(0, 7, 1000, bytes_of(sent), 55);
  const auto posted = agent_.commands();
  ASSERT_EQ(posted.size(), 2u);
  const auto first = std::bit_cast<wire::TcpOffer>(posted[0]), second = std::bit_cast<wire::TcpOffer>(posted[1]);
  EXPECT_EQ(first.kind, TcpCommandKind::payload);
  EXPECT_EQ(first.count, wire::tcp_entry_payload);
  EXPECT_EQ(first.position, 997u);
  EXPECT_EQ(second.kind, TcpCommandKind::offer);
  EXPECT_EQ(second.count, 3u);
  EXPECT_EQ(second.position, 1000u);
  EXPECT_EQ(posted[1].send_at, 55u) << "with it goes what was read";
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(posted[i].stamp, wire::tcp_stamp(posted[i], i));
}

TEST_F(AreaRingsTest, WithoutALinkAnOfferIsOneCommandWithoutBytes) {
  rings_.post_offer(0, 7, 1000, bytes_of("hello"), 55);
  const auto posted = agent_.commands();
  ASSERT_EQ(posted.size(), 1u);
  EXPECT_EQ(posted[0].kind, TcpCommandKind::offer);
  EXPECT_EQ(posted[0].position, 1000u);
  EXPECT_EQ(std::bit_cast<wire::TcpOffer>(posted[0]).count, 0u);
}

TEST_F(AreaRingsTest, ASleepIsToldToALinkedAgentOnceUntilSomethingHasChanged) {
  link();
  AreaRings::KnownSleep known{};
  EXPECT_TRUE(rings_.post_sleep(2, false, known));
  EXPECT_TRUE(rings_.post_sleep(2, false, known));
  auto posted = agent_.commands();
  ASSERT_EQ(posted.size(), 1u);
  EXPECT_EQ(posted[0].kind, TcpCommandKind::sleep);
  EXPECT_EQ(posted[0].listener, 2u);
  EXPECT_TRUE(rings_.post_sleep(2, true, known));
  posted = agent_.commands();
  ASSERT_EQ(posted.size(), 1u);
  EXPECT_EQ(posted[0].flags, 2u) << "it waits for room as well";
  set(word::process_woken(2), 1);
  EXPECT_TRUE(rings_.post_sleep(2, true, known));
  EXPECT_EQ(agent_.commands().size(), 1u) << "the agent has woken it since";
}

}  // namespace
}  // namespace offpath::channel
