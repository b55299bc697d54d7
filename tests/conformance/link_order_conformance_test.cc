// Order and wakes, on which the rings rely, with both ends at work at once.
#include <gmock/gmock.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "link_pair.h"
#include "testing/link/seeded_random.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using Kind = LinkEvent::Kind;

class OrderConformance : public OverEveryLink {
 protected:
  [[nodiscard]] std::uint64_t rounds() const { return GetParam().real_time ? 500 : 300; }
};
INSTANTIATE_TEST_SUITE_P(, OrderConformance, testing::ValuesIn(every_link()), kind_name);

std::atomic_ref<std::uint64_t> word(MutableBytes memory, std::uint64_t offset) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory.data() + offset));
}

// Payload, then the tail that says it is there: two writes posted one after another.
TEST_P(OrderConformance, APayloadIsThereBeforeItsTail) {
  constexpr std::uint64_t words = 500, payload_at = 4096, tail_at = 128;
  const MutableBytes memory = host().channel_memory();
  std::atomic<std::uint64_t> checked = 0;
  std::array<std::uint64_t, words> payload;
  std::uint64_t tail = 0, under_way = 0;
  std::atomic<bool> failed = false;
  const auto program = [&] {
    for (std::uint64_t round = 1; round <= rounds(); ++round) {
      if (!pair->until([&] { return word(memory, tail_at).load(std::memory_order_acquire) == round || failed; })) break;
      for (std::uint64_t i = 0; i < words; ++i) {
        const std::uint64_t seen = word(memory, payload_at + 8 * i).load(std::memory_order_relaxed);
        ASSERT_EQ(seen, round * 1000 + i) << "word " << i << " when the tail was " << round;
      }
      checked = round;
    }
  };
  const auto round = [&] {
    pair->poll();
    for (; !pair->events.empty(); pair->events.pop_front(), --under_way) {
      if (!pair->events.front().status) failed = true;
    }
    if (under_way > 0 || checked != tail || tail == rounds()) return;
    ++tail;
    for (std::uint64_t i = 0; i < words; ++i) payload[i] = tail * 1000 + i;
    const WritePiece first{wire::channel_segment, payload_at, bytes(static_cast<const void*>(payload.data())),
                           sizeof payload};
    const WritePiece second{wire::channel_segment, tail_at, bytes(static_cast<const void*>(&tail)), 8};
    under_way = 2;
    agent().write(2 * tail, std::span(&first, 1));
    agent().write(2 * tail + 1, std::span(&second, 1));
  };
  pair->beside(program, round);
  EXPECT_FALSE(failed);
  EXPECT_EQ(checked, rounds());
}

// A completed write is visible: the sleeping rule needs this for a remote flag.
TEST_P(OrderConformance, ACompletedWriteIsVisible) {
  for (std::uint64_t value = 1; value <= 200; ++value) {
    ASSERT_TRUE(pair->write({wire::channel_segment, 72, bytes(static_cast<const void*>(&value)), 8}));
    ASSERT_EQ(word(host().channel_memory(), 72).load(), value);
  }
}

TEST_P(OrderConformance, AWakeReachesTheAgent) {
  host().wake();
  pair->await(Kind::woken);
  for (int i = 0; i < 100; ++i) host().wake();  // may be counted as one
  pair->await(Kind::woken);
  expect_usable();
}

bool readable(int fd, int wait_ms) {
  pollfd look{fd, POLLIN, 0};
  return ::poll(&look, 1, wait_ms) == 1;
}

TEST_P(OrderConformance, AWakeReachesTheHost) {
  ASSERT_TRUE(host().look());
  agent().wake();
  bool woken = false;
  pair->beside(
      [&] {
        // Spurious returns are allowed, so the descriptor decides.
        for (const TimeNs deadline = pair->soon(); !woken && pair->now() < deadline;) {
          host().wait(deadline);
          woken = readable(host().event_fd(), 0);
        }
      },
      [&] { pair->poll(); });
  EXPECT_TRUE(woken);
  // Looking clears it, once all wakes have come.
  for (const TimeNs deadline = pair->soon(); readable(host().event_fd(), 0) && pair->now() < deadline; pair->pass()) {
    ASSERT_TRUE(host().look());
  }
  EXPECT_FALSE(readable(host().event_fd(), 0));
}

TEST_P(OrderConformance, AWaitEndsAtItsDeadline) {
  const TimeNs deadline = pair->now() + 2 * millisecond_ns;
  // A machine may keep a thread from its core for seconds; virtual time advances only for the link's own work.
  const TimeNs latest = GetParam().real_time ? pair->soon() : deadline + millisecond_ns;
  while (pair->now() < deadline) host().wait(deadline);
  EXPECT_LE(pair->now(), latest);
  ASSERT_TRUE(host().look());
  expect_usable();
}

// The agent's half of the sleeping rule: says that it sleeps, looks once more, sleeps until woken. It answers each
// new tail by a head, and then wakes the host.
class SleepyAgent {
 public:
  static constexpr std::uint64_t tail_at = 0, head_at = 64, asleep_at = 72;

  SleepyAgent(LinkPair& pair, bool mapped)
      : pair_(pair), memory_(pair.agent->mapped(wire::channel_segment)), mapped_(mapped) {
    EXPECT_EQ(memory_.empty(), !mapped);
    begin_look();
  }

  void round() {
    take_events();
    switch (step_) {
      case Step::looking:
        if (!done_) return;
        if (tail() > line_[0]) return answer();
        if (line_[1] == 1) {
          step_ = Step::asleep;
          return;
        }
        line_[1] = 1;
        return put_line(Step::falling_asleep);
      case Step::falling_asleep:
        if (done_) begin_look();
        return;
      case Step::answering:
        if (!done_) return;
        pair_.agent->wake();
        begin_look();
        return;
      case Step::asleep:
        if (!std::exchange(woken_, false)) {
          ++sleeps;
          return pair_.sleep();
        }
        begin_look();
        return;
    }
  }

  std::uint64_t sleeps = 0;
  bool failed = false;

 private:
  enum class Step { looking, falling_asleep, answering, asleep };

  [[nodiscard]] std::uint64_t tail() const {
    return mapped_ ? word(memory_, tail_at).load(std::memory_order_acquire) : tail_;
  }
  void take_events() {
    pair_.poll();
    for (; !pair_.events.empty(); pair_.events.pop_front()) {
      const LinkEvent& event = pair_.events.front();
      failed |= !event.status;
      woken_ |= event.kind == Kind::woken;
      done_ |= event.kind != Kind::woken && event.token == token_;
    }
  }
  void begin_look() {
    step_ = Step::looking;
    done_ = mapped_;
    if (mapped_) return;
    const ReadPiece piece{wire::channel_segment, 0, tail_at, bytes(&tail_), 8};
    pair_.agent->read(++token_, std::span(&piece, 1));
  }
  void answer() {
    line_ = {tail(), 0};
    put_line(Step::answering);
  }
  void put_line(Step step) {
    step_ = step;
    done_ = mapped_;
    if (mapped_) {
      word(memory_, head_at).store(line_[0], std::memory_order_release);
      word(memory_, asleep_at).store(line_[1], std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return;
    }
    const WritePiece piece{wire::channel_segment, head_at, bytes(static_cast<const void*>(line_.data())), 16};
    pair_.agent->write(++token_, std::span(&piece, 1));
  }

  LinkPair& pair_;
  MutableBytes memory_;
  bool mapped_;
  Step step_ = Step::looking;
  std::array<std::uint64_t, 2> line_{};  // head, asleep
  std::uint64_t tail_ = 0, token_ = 0;
  bool done_ = false, woken_ = false;
};

TEST_P(OrderConformance, NoWakeIsLost) {
  const MutableBytes memory = host().channel_memory();
  SleepyAgent sleepy(*pair, GetParam().mapped);
  SeededRandom random(99);
  std::uint64_t answered = 0, wakes = 0;
  const auto program = [&] {
    for (std::uint64_t ticket = 1; ticket <= rounds(); ++ticket) {
      // Now before, now while, now after the agent falls asleep.
      if (ticket % 10 != 0)
        pair->linger(random.between(0, 30'000));
      else if (!pair->until([&] { return word(memory, SleepyAgent::asleep_at).load() == 1; }))
        return;
      word(memory, SleepyAgent::tail_at).store(ticket, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (word(memory, SleepyAgent::asleep_at).load(std::memory_order_relaxed) == 1) {
        host().wake();
        ++wakes;
      }
      const TimeNs deadline = pair->soon();
      while (word(memory, SleepyAgent::head_at).load(std::memory_order_acquire) < ticket && pair->now() < deadline) {
        host().wait(deadline);
        if (!host().look()) return;
      }
      if (word(memory, SleepyAgent::head_at).load() < ticket) return;
      answered = ticket;
    }
  };
  pair->beside(program, [&] { sleepy.round(); });
  EXPECT_EQ(answered, rounds()) << "a wake was lost: " << wakes << " were sent, the agent slept " << sleepy.sleeps
                                << " times";
  EXPECT_FALSE(sleepy.failed);
  EXPECT_GE(wakes, rounds() / 10);
}

}  // namespace
}  // namespace offpath::link
