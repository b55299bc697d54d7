// Ends: a host that dies, ends that close, children that let go.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <map>

#include "link_pair.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using Kind = LinkEvent::Kind;

class LifeConformance : public OverEveryLink {
 protected:
  // Polls until `closed`; returns the events before it.
  std::vector<LinkEvent> until_closed(Status& why) {
    std::vector<LinkEvent> before;
    LinkEvent closed = pair->await(Kind::closed);
    why = std::move(closed.status);
    for (LinkEvent& event : pair->events) before.push_back(std::move(event));
    pair->events.clear();
    return before;
  }
  void expect_silence() {
    for (int i = 0; i < 20; ++i) {
      pair->pass();
      pair->poll();
    }
    EXPECT_TRUE(pair->events.empty()) << "something came after closed";
  }
};
INSTANTIATE_TEST_SUITE_P(, LifeConformance, testing::ValuesIn(every_link()), kind_name);

TEST_P(LifeConformance, TheDeathOfTheHostIsNoticed) {
  OFP_NEEDS_RANGES();
  pair.reset();  // so that no thread of this process is forked away
  pair = GetParam().connect_doomed();
  ASSERT_NE(pair, nullptr);
  using Host = DoomedHost;
  std::vector<std::byte> seen(Host::length);
  ReadPiece piece{Host::own_segment, 0, 0, seen.data(), seen.size()};
  ASSERT_TRUE(pair->read(piece));
  for (std::uint64_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], Host::byte_at(i));
  if (GetParam().ranges) {
    ASSERT_TRUE(agent().attach_range(Host::range, Host::generation, pair->doomed.base, Host::length, pair->doomed.key));
    piece = {Host::range, Host::generation, 0, seen.data(), seen.size()};
    std::ranges::fill(seen, std::byte{0});
    ASSERT_TRUE(pair->read(piece));
    for (std::uint64_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], Host::byte_at(i));
  }

  agent().read(1, std::span(&piece, 1));  // under way: may still succeed
  pair->kill_host();
  agent().read(2, std::span(&piece, 1));  // must not
  const WritePiece write{wire::channel_segment, 0, seen.data(), 100};
  agent().write(3, std::span(&write, 1));
  Status why;
  std::map<std::uint64_t, LinkEvent> completed;
  for (LinkEvent& event : until_closed(why)) {
    const std::uint64_t token = event.token;
    EXPECT_TRUE(completed.emplace(token, std::move(event)).second) << "operation " << token << " completed twice";
  }
  expect_error(why, Error::peer_lost);
  ASSERT_TRUE(completed.contains(1) && completed.contains(2) && completed.contains(3));
  if (!completed.at(1).status) expect_error(completed.at(1).status, Error::peer_lost);
  expect_error(completed.at(2).status, Error::peer_lost);

  agent().read(4, std::span(&piece, 1));
  agent().write(5, std::span(&write, 1));
  agent().wake();
  expect_silence();
}

TEST_P(LifeConformance, AHostThatClosesIsNoticed) {
  auto memory = host().allocate(100);
  ASSERT_TRUE(memory);
  host().close();
  Status why;
  EXPECT_TRUE(until_closed(why).empty());
  ASSERT_FALSE(why);
  EXPECT_TRUE(why.error().code == Error::peer_lost || why.error().code == Error::closed) << why.error().message;
  expect_error(host().look(), Error::closed);
  expect_error(host().announce_segment(segment(1), *memory, pair->soon()), Error::closed);
  host().wake();
  host().close();
  expect_silence();
}

TEST_P(LifeConformance, WhatIsUnderWayWhenTheHostClosesCompletesOnce) {
  std::vector<std::byte> to(64 * 1000);
  for (std::uint64_t token = 0; token < 1000; ++token) {
    const ReadPiece piece{wire::channel_segment, 0, 0, to.data() + 64 * token, 64};
    agent().read(token, std::span(&piece, 1));
  }
  host().close();
  Status why;
  std::vector<int> times(1000);
  for (const LinkEvent& event : until_closed(why)) {
    if (event.kind != Kind::read_done) continue;
    ++times[event.token];
    if (!event.status) {
      EXPECT_TRUE(event.status.error().code == Error::peer_lost || event.status.error().code == Error::closed)
          << event.status.error().message;
    }
  }
  EXPECT_EQ(times, std::vector<int>(1000, 1));
  expect_silence();
}

TEST_P(LifeConformance, AnAgentThatClosesIsNoticed) {
  auto memory = host().allocate(100);
  ASSERT_TRUE(memory);
  std::byte byte{};
  const ReadPiece piece{wire::channel_segment, 0, 0, &byte, 1};
  agent().read(1, std::span(&piece, 1));
  const MutableBytes view = agent().mapped(wire::channel_segment);
  agent().close();
  EXPECT_TRUE(agent().mapped(wire::channel_segment).empty());
  if (!view.empty()) view.back() = std::byte{1};  // valid until the link is destroyed
  agent().read(2, std::span(&piece, 1));
  agent().wake();
  expect_silence();
  Status looked;
  pair->beside(
      [&] {
        for (const TimeNs deadline = pair->soon(); looked && pair->now() < deadline;) {
          host().wait(deadline);
          looked = host().look();
        }
      },
      [] {});
  expect_error(looked, Error::peer_lost);
  expect_error(host().look(), Error::peer_lost);
  expect_error(host().announce_segment(segment(1), *memory, pair->soon()), Error::peer_lost);
  host().wake();
  host().retire_segment(segment(1));
  host().retire_range(1, 1);
  memory->data()[99] = std::byte{1};  // the program's own memory stays
}

// A link in one process has no words for a refusal, and its ends cannot be forked apart.
class TwoProcessesConformance : public LifeConformance {
 protected:
  void expect_told(Error code, std::string_view why) {
    Status looked;
    EXPECT_TRUE(pair->until([&] {
      looked = host().look();
      return !looked.has_value();
    }));
    expect_error(looked, code);
    EXPECT_NE(looked.error().message.find(why), std::string::npos) << looked.error().message;
  }
};
INSTANTIATE_TEST_SUITE_P(, TwoProcessesConformance,
                         testing::ValuesIn(links_where([](const LinkKind& kind) { return kind.real_time; })),
                         kind_name);

TEST_P(TwoProcessesConformance, AnAgentThatRefusesSaysWhy) {
  agent().refuse({Error::protocol, "ring slot 3: lap 7 where lap 1 was due"});
  agent().close();
  expect_told(Error::protocol, "ring slot 3: lap 7 where lap 1 was due");
}

// To the program its agent is lost then as well, as if it had been killed; but it is known why.
TEST_P(TwoProcessesConformance, AnAgentThatGivesWaySaysSo) {
  agent().refuse({Error::peer_lost, "another agent of its name took over"});
  agent().close();
  expect_told(Error::peer_lost, "another agent of its name took over");
}

// A program that posts and never waits has nothing but its wakes to find out by: the first may still go out, those
// after it meet a connection that ended, and the reason lies in front of that end.
TEST_P(TwoProcessesConformance, AnAgentThatRefusesIsHeardByAHostThatOnlyWakesIt) {
  agent().refuse({Error::protocol, "ring slot 3: lap 7 where lap 1 was due"});
  agent().close();
  for (int i = 0; i < 5; ++i) {
    host().wake();
    pair->linger(millisecond_ns);
  }
  expect_told(Error::protocol, "ring slot 3: lap 7 where lap 1 was due");
}

TEST_P(LifeConformance, AnAgentThatIsDestroyedIsNoticed) {
  pair->agent.reset();
  Status looked;
  for (const TimeNs deadline = pair->soon(); looked && pair->now() < deadline;) {
    host().wait(deadline);
    looked = host().look();
  }
  expect_error(looked, Error::peer_lost);
}

TEST_P(TwoProcessesConformance, AChildThatAbandonsTheLinkDisturbsNobody) {
  const pid_t child = ::fork();
  if (child == 0) {
    host().abandon();
    const bool usable = static_cast<bool>(host().look());
    host().wake();
    host().close();
    ::_exit(usable ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_TRUE(host().look());
  expect_usable();
  host().wake();
  pair->await(Kind::woken);
}

TEST_P(LifeConformance, OneHostsEndDisturbsNoOther) {
  auto other = GetParam().connect();
  ASSERT_NE(other, nullptr);
  host().close();
  Status why;
  until_closed(why);
  pair = std::move(other);
  expect_usable();
}

}  // namespace
}  // namespace offpath::link
