// Looks over a link that maps nothing: one read fetches tail and slots, in no order. Here the test sets what each read
// returns; tests/sim produces the orders at random.
#include "channel/agent_end.h"
#include "testing/channel/fake_agent_link.h"
#include "wire/messages/replies.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>

namespace offpath::channel {
namespace {

using link::LinkEvent;
using wire::ChannelLayout;

constexpr ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};

// Reads wait until the test completes them; writes complete at once.
class RemoteLink final : public link::FakeAgentLink {
 public:
  explicit RemoteLink(std::vector<std::byte>& memory) : memory_(memory) {}

  [[nodiscard]] bool reads() const noexcept { return read_under_way_; }
  [[nodiscard]] std::uint64_t slots_read() const noexcept {
    std::uint64_t bytes = 0;
    for (const link::ReadPiece& piece : pieces_) bytes += piece.length;
    return (bytes - sizeof(wire::TailLine)) / wire::slot_bytes;
  }
  [[nodiscard]] bool reads_outside() const noexcept {
    return read_under_way_ && pieces_.size() == 1 && pieces_[0].offset == layout.outside();
  }
  void end_read_outside() {
    ASSERT_TRUE(reads_outside());
    read_under_way_ = false;
    std::memcpy(pieces_[0].to, memory_.data() + pieces_[0].offset, pieces_[0].length);
    events_.push_back({LinkEvent::Kind::read_done, read_token_, {}, Fd()});
  }
  // Completes the read: it returned tail `tail`, and the slots as they are in memory now.
  void end_read(std::uint64_t tail) {
    ASSERT_TRUE(read_under_way_);
    read_under_way_ = false;
    for (const link::ReadPiece& piece : pieces_) std::memcpy(piece.to, memory_.data() + piece.offset, piece.length);
    std::memcpy(pieces_[0].to, &tail, sizeof tail);
    events_.push_back({LinkEvent::Kind::read_done, read_token_, {}, Fd()});
  }

  void read(std::uint64_t token, std::span<const link::ReadPiece> pieces) override {
    ASSERT_FALSE(read_under_way_) << "one look at a time";
    read_under_way_ = true;
    read_token_ = token;
    pieces_.assign(pieces.begin(), pieces.end());
  }
  void write(std::uint64_t token, std::span<const link::WritePiece> pieces) override {
    ++writes;
    for (const link::WritePiece& piece : pieces) std::memcpy(memory_.data() + piece.offset, piece.from, piece.length);
    events_.push_back({LinkEvent::Kind::write_done, token, {}, Fd()});
  }
  std::size_t poll(TimeNs, std::span<LinkEvent> events) override {
    std::size_t count = 0;
    for (; count < events.size() && !events_.empty(); ++count, events_.pop_front())
      events[count] = std::move(events_.front());
    return count;
  }

  void host_wakes(std::vector<std::byte> requests) {
    events_.push_back({LinkEvent::Kind::woken, 0, {}, Fd(), std::move(requests)});
  }
  // From now on reads and writes take effect in the order of posting.
  void keep_order() { kind.ordered = true; }

  unsigned writes = 0;

 private:
  std::vector<std::byte>& memory_;
  std::deque<LinkEvent> events_;
  bool read_under_way_ = false;
  std::uint64_t read_token_ = 0;
  std::vector<link::ReadPiece> pieces_;
};

class UnmappedLook : public testing::Test, public AgentEvents {
 protected:
  void on_request(AgentEnd& channel, const Entry& request, TimeNs) override {
    served.push_back(request.ticket);
    channel.set_background(background);
    if (answers) channel.reply(wire::ReplyKind::probed, request.ticket, wire::Probed{});
    payload.assign(request.payload.begin(), request.payload.end());
  }
  void on_transfer(AgentEnd&, std::uint64_t, Status, TimeNs at) override { transferred_at = at; }
  void on_rest_ended(AgentEnd&) noexcept override { ++rests_ended; }
  void on_offer(AgentEnd&, std::uint64_t, Result<Fd>, TimeNs) override {}
  void on_closed(AgentEnd&, const Failure& failure, TimeNs) override { why = failure.message; }

  // Requests of one slot each, complete in the ring, but with an unpublished tail.
  void post(unsigned count) {
    for (; count > 0; --count) ring.write(static_cast<std::uint8_t>(wire::EntryKind::send), ++posted, {});
  }
  void post_outside(std::span<const std::byte> bytes) {
    std::memcpy(memory.data() + layout.outside(), bytes.data(), bytes.size());
    ring.write_outside(static_cast<std::uint8_t>(wire::EntryKind::send), ++posted,
                       {static_cast<std::uint32_t>(bytes.size()), crc32c(bytes)});
  }
  [[nodiscard]] std::uint64_t head() const { return load<std::uint64_t>(memory.data() + ChannelLayout::agent_line); }
  [[nodiscard]] bool program_sees_sleep() const {
    return load<std::uint64_t>(memory.data() + ChannelLayout::agent_line + offsetof(wire::AgentLine, asleep)) == 1;
  }
  void damage(std::uint64_t position) {
    memory[ChannelLayout::request_ring + position % layout.request_slots * wire::slot_bytes + 20] ^= std::byte{1};
  }
  // The slots that a program sends with a wake: from `position` on, as in memory now.
  [[nodiscard]] std::vector<std::byte> sent(std::uint64_t position, std::uint64_t tail, std::uint64_t slots) const {
    std::vector<std::byte> bytes(sizeof(wire::SentRequests) + slots * wire::slot_bytes);
    store(bytes.data(), wire::SentRequests{position, tail, 0});
    for (std::uint64_t i = 0; i < slots; ++i)
      std::memcpy(
          bytes.data() + sizeof(wire::SentRequests) + i * wire::slot_bytes,
          memory.data() + ChannelLayout::request_ring + (position + i) % layout.request_slots * wire::slot_bytes,
          wire::slot_bytes);
    return bytes;
  }
  void fall_asleep() {
    for (unsigned round = 0; round < 1000 && !end.asleep(); ++round) {
      end.poll(now += 10 * microsecond_ns);
      if (link->reads()) link->end_read(posted);
      (void)end.fall_asleep(now);
    }
    ASSERT_TRUE(end.asleep());
  }
  void wake(std::vector<std::byte> requests) {
    link->host_wakes(std::move(requests));
    end.poll(now += 100);
  }
  // One look, whose read returns this tail.
  void look(std::uint64_t tail) {
    for (unsigned round = 0; round < 100 && !link->reads(); ++round) end.poll(now += 100);
    link->end_read(tail);
    end.poll(now += 100);
    end.poll(now += 100);  // ends the channel if it has to end
  }
  [[nodiscard]] std::vector<std::uint64_t> tickets_to(std::uint64_t last) const {
    std::vector<std::uint64_t> tickets;
    for (std::uint64_t ticket = 1; ticket <= last; ++ticket) tickets.push_back(ticket);
    return tickets;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(layout.total_bytes());
  RingWriter ring{memory.data() + ChannelLayout::request_ring, layout.request_slots};
  std::uint64_t posted = 0;
  TimeNs now = 1000;
  TimeNs transferred_at = 0;
  unsigned rests_ended = 0;
  std::vector<std::uint64_t> served;
  bool background = false;         // of requests that are served
  bool answers = false;            // at once
  std::vector<std::byte> payload;  // of the last one
  std::string why;
  RemoteLink* link = new RemoteLink(memory);  // the channel's
  AgentEnd end{1, "program", std::unique_ptr<link::AgentLink>(link), layout, *this};
};

TEST_F(UnmappedLook, SlotsThatAreThereBeforeTheirTailAreServedOnce) {
  post(3);
  look(0);
  EXPECT_EQ(served, tickets_to(3));
  look(1);
  look(3);  // now the tail includes them
  look(3);
  EXPECT_EQ(served, tickets_to(3));
  post(1);
  look(4);
  EXPECT_EQ(served, tickets_to(4));
  EXPECT_EQ(why, "");
}

// Pulls may be made by the poll that ends them. Other operations keep the round's time, which is that of the pollers
// after this one as well: LookTiming compares such times.
TEST_F(UnmappedLook, PullsEndAtTheTimeAfterThePollThatMadeThemAndPushesAtThatOfTheRound) {
  AgentEndOptions options;
  options.clock = [] { return 3 * second_ns; };
  auto remote = std::make_unique<RemoteLink>(memory);
  RemoteLink& pulled = *remote;
  AgentEnd timed(2, "program", std::move(remote), layout, *this, options);
  constexpr TimeNs at = 2 * second_ns;  // long after the last post: this round does not look at the ring
  std::uint64_t there = 1;
  timed.pull(1, {{wire::channel_segment, 0, layout.outside(), reinterpret_cast<std::byte*>(&there), sizeof there}});
  timed.poll(at);
  pulled.end_read_outside();
  timed.poll(at);
  EXPECT_EQ(there, 0u);
  EXPECT_EQ(transferred_at, 3 * second_ns);
  const std::uint64_t word = 7;
  timed.push(2, {{wire::channel_segment, layout.outside(), reinterpret_cast<const std::byte*>(&word), sizeof word}});
  timed.poll(at);
  timed.poll(at);
  EXPECT_EQ(load<std::uint64_t>(memory.data() + layout.outside()), word);
  EXPECT_EQ(transferred_at, at);
}

// Otherwise an agent over RDMA would never sleep, since each look ends with an event.
// A sleeping program may have asked for a wake by a request that is not taken while answers find no room.
TEST_F(UnmappedLook, AFullReplyRingWakesItsReaderOnce) {
  const auto work = [&] {
    for (unsigned round = 0; round < 10; ++round) look(0);
  };
  for (std::uint64_t ticket = 1; ticket < layout.reply_slots; ++ticket)
    end.reply(wire::ReplyKind::done, ticket, wire::Done{});
  work();
  EXPECT_EQ(link->wakes, 0u) << "there is room for one more";
  for (std::uint64_t ticket = 0; ticket < 10; ++ticket)
    end.reply(wire::ReplyKind::done, layout.reply_slots + ticket, wire::Done{});
  work();
  EXPECT_EQ(link->wakes, 1u);
  store(memory.data() + ChannelLayout::tail_line + offsetof(wire::TailLine, reply_head),
        std::uint64_t{layout.reply_slots});
  work();
  EXPECT_EQ(link->wakes, 1u) << "all answers are written";
  EXPECT_EQ(why, "");
}

// A reply may be outstanding while more requests are posted than 32 bits can count.
TEST_F(UnmappedLook, RepliesNameTheWholeTicket) {
  const std::uint64_t asked[] = {5, 7ull << 32 | 5, ~0ull - 1};
  for (const std::uint64_t each : asked) end.reply(wire::ReplyKind::done, each, wire::Done{each});
  for (unsigned round = 0; round < 5; ++round) look(0);
  EntryReader replies(layout.reply_slots, EntryReader::Tickets::given);
  const std::uint64_t tail = load<std::uint64_t>(memory.data() + ChannelLayout::reply_tail_line);
  std::vector<std::uint64_t> tickets, numbers;
  while (replies.position() < tail) {
    const auto slot = load<wire::Slot>(memory.data() + layout.reply_ring() + replies.position() * wire::slot_bytes);
    ASSERT_TRUE(replies.verifies(slot));
    Entry entry;
    ASSERT_TRUE(replies.take(slot, entry).value());
    wire::Done done{};
    ASSERT_TRUE(wire::decode(entry.payload, done));
    tickets.push_back(entry.ticket);
    numbers.push_back(done.value);
  }
  EXPECT_EQ(tickets, std::vector<std::uint64_t>(std::begin(asked), std::end(asked)));
  EXPECT_EQ(numbers, tickets);
}

TEST_F(UnmappedLook, LooksThatFindNothingKeepNobodyAwake) {
  post(1);
  look(1);
  const std::uint64_t looks = end.counters().looks;
  const TimeNs until = now + 2 * AgentEndOptions().idle_before_sleep_ns;
  for (unsigned round = 0; now < until; now += 1000, ++round) {
    const bool did = end.poll(now);
    if (link->reads()) link->end_read(1);
    if (!did) (void)end.fall_asleep(now);
  }
  EXPECT_TRUE(end.asleep());
  EXPECT_LT(end.counters().looks - looks, 400u) << "an idle ring is looked at less often";
}

// The tail may stay behind for many laps of the ring: a tail behind the taken slots is not an error.
TEST_F(UnmappedLook, ATailThatIsAlwaysBehindEndsNothing) {
  while (posted < 3 * layout.request_slots) {
    post(1);
    look(posted < 5 ? 0 : posted - 5);
    ASSERT_EQ(why, "") << posted;
    ASSERT_EQ(served.size(), posted);
    ASSERT_EQ(link->slots_read(), 15u) << "nothing more is known to be there";
  }
  look(posted);
  look(posted);
  EXPECT_EQ(served, tickets_to(posted));
  EXPECT_EQ(why, "");
}

TEST_F(UnmappedLook, ASlotThatIsNotWholeIsReadAgain) {
  post(3);
  damage(1);
  look(3);  // the tail of the same read does not prove that slot 1 had arrived
  EXPECT_EQ(served, tickets_to(1));
  damage(1);  // complete again
  look(3);
  EXPECT_EQ(served, tickets_to(3));
  EXPECT_EQ(why, "");
}

TEST_F(UnmappedLook, ASlotThatIsNotWholeBelowATailSeenBeforeEndsTheChannel) {
  post(3);
  damage(1);
  look(3);
  EXPECT_EQ(why, "");
  look(3);
  EXPECT_EQ(served, tickets_to(1));
  EXPECT_NE(why.find("ring slot 1"), std::string::npos) << why;
  EXPECT_EQ(link->told, why);
}

TEST_F(UnmappedLook, AChannelThatEndsInOrderIsToldOfIfTheReasonMatters) {
  end.close({Error::peer_lost, "another agent of its name took over"}, true);
  end.poll(now);
  EXPECT_EQ(why, "another agent of its name took over");
  EXPECT_EQ(link->told, why);
}

TEST_F(UnmappedLook, AChannelThatEndsInOrderEndsWithoutAWord) {
  end.close({Error::closed, "the agent was stopped"});
  end.poll(now);
  EXPECT_EQ(why, "the agent was stopped");
  EXPECT_EQ(link->told, "");
}

TEST_F(UnmappedLook, ATailThatGoesBackEndsTheChannel) {
  post(3);
  look(3);
  look(2);
  EXPECT_NE(why.find("tail is 2; it was 3, 3 slots are taken, the ring has 64"), std::string::npos) << why;
}

TEST_F(UnmappedLook, ATailBeyondTheRingEndsTheChannel) {
  look(65);
  EXPECT_NE(why.find("tail is 65; it was 0, 0 slots are taken, the ring has 64"), std::string::npos) << why;
}

// Its slot is released, and the next request taken, after its payload has been copied.
TEST_F(UnmappedLook, ARequestOutsideOfTheRingIsFetchedBeforeWhatIsBehindIt) {
  std::vector<std::byte> bytes(200'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  post(1);
  post_outside(bytes);
  post(1);
  look(3);
  EXPECT_EQ(served, tickets_to(1));
  for (unsigned round = 0; round < 50; ++round) end.poll(now += 100);
  ASSERT_TRUE(link->reads_outside());
  EXPECT_EQ(head(), 1u);
  EXPECT_TRUE(end.fall_asleep(now + second_ns)) << "the read's end wakes it";
  EXPECT_FALSE(end.asleep());
  link->end_read_outside();
  end.poll(now += 100);
  EXPECT_EQ(served, tickets_to(2));
  EXPECT_EQ(payload, bytes);
  look(3);
  EXPECT_EQ(served, tickets_to(3));
  EXPECT_EQ(head(), 3u);
  EXPECT_EQ(why, "");
}

TEST_F(UnmappedLook, WhatChangesOutsideOfTheRingEndsTheChannel) {
  post_outside(std::vector<std::byte>(5000, std::byte{3}));
  memory[layout.outside() + 4999] = std::byte{4};
  look(1);
  end.poll(now += 100);
  link->end_read_outside();
  end.poll(now += 100);
  end.poll(now += 100);
  EXPECT_TRUE(served.empty());
  EXPECT_NE(why.find("its bytes outside of the ring have"), std::string::npos) << why;
}

TEST_F(UnmappedLook, MoreThanThereIsOutsideOfTheRingEndsTheChannel) {
  ring.write_outside(static_cast<std::uint8_t>(wire::EntryKind::send), ++posted, {wire::entry_bytes_max + 1, 0});
  look(1);
  EXPECT_NE(why.find("is stored outside of the ring with 524289 bytes; at most 524288 are allowed"), std::string::npos)
      << why;
}

// The look after the write of the flag decides about sleeping; slots that it finds without their tail count too.
TEST_F(UnmappedLook, ItRestsWhenItSleepsAndNothingIsUnderWay) {
  end.may_rest();
  bool rests = false;
  for (unsigned round = 0; round < 1000 && !rests; ++round) {
    end.poll(now += 10 * microsecond_ns);
    rests = end.rest(now);
    if (!link->reads()) continue;
    ASSERT_FALSE(rests) << "a look is under way";
    link->end_read(posted);
    ASSERT_FALSE(end.rest(now));
  }
  ASSERT_TRUE(rests);
  EXPECT_TRUE(end.asleep());
  EXPECT_TRUE(program_sees_sleep());
  EXPECT_EQ(rests_ended, 0u);

  end.reply(wire::ReplyKind::probed, 1, wire::Probed{});
  EXPECT_EQ(rests_ended, 1u);
  EXPECT_FALSE(end.rest(now)) << "an answer waits";
  end.poll(++now);
  EXPECT_FALSE(end.rest(now)) << "it is being written";
  end.poll(++now);
  EXPECT_TRUE(end.rest(now));

  std::array<std::byte, 64> bytes;
  const link::ReadPiece piece{wire::channel_segment, 0, 0, bytes.data(), bytes.size()};
  end.fetch(7, {&piece, 1});
  end.poll(++now);
  EXPECT_FALSE(end.rest(now)) << "a transfer is under way";
  link->end_read(posted);
  end.poll(++now);
  EXPECT_FALSE(end.rest(now)) << "another request may follow soon";
  end.poll(now += 10 * millisecond_ns);
  EXPECT_TRUE(end.rest(now));

  end.set_stored(1, 4);
  EXPECT_EQ(rests_ended, 3u);
  EXPECT_FALSE(end.rest(now)) << "a line is due";
}

TEST_F(UnmappedLook, AChannelThatIsHeldOrNotWatchedDoesNotRest) {
  fall_asleep();
  EXPECT_FALSE(end.rest(now));
  end.may_rest();
  end.hold_requests(true);
  EXPECT_FALSE(end.rest(now)) << "its full ring is noted by polls";
  end.hold_requests(false);
  EXPECT_TRUE(end.rest(now));
}

TEST_F(UnmappedLook, ASlotFoundByTheLastLookKeepsItAwake) {
  look(0);
  now += second_ns;
  for (unsigned round = 0; round < 100 && !link->reads(); ++round) {
    (void)end.fall_asleep(now += 100);
    if (!link->reads()) end.poll(now += 100);
  }
  post(1);
  link->end_read(0);
  end.poll(now += 100);
  EXPECT_EQ(served, tickets_to(1));
  EXPECT_FALSE(end.asleep());
  look(1);
  EXPECT_EQ(served, tickets_to(1));
  EXPECT_EQ(why, "");
}

TEST_F(UnmappedLook, RequestsThatComeWithAWakeAreServedWithoutARead) {
  fall_asleep();
  const std::uint64_t looks = end.counters().looks;
  post(3);
  wake(sent(0, 3, 3));
  EXPECT_EQ(served, tickets_to(3));
  EXPECT_EQ(end.counters().looks, looks + 1) << "the one that comes after them, and is under way";
  look(3);
  EXPECT_EQ(served, tickets_to(3));
  EXPECT_EQ(why, "");
}

TEST_F(UnmappedLook, RequestsThatDidNotFitIntoAWakeAreReadAfterIt) {
  fall_asleep();
  post(20);
  wake(sent(0, 20, wire::sent_requests_max));
  EXPECT_EQ(served, tickets_to(15));
  look(20);
  EXPECT_EQ(served, tickets_to(20));
  EXPECT_EQ(why, "");
}

// A late or repeated wake has known slots.
TEST_F(UnmappedLook, RequestsThatCameBeforeAreNotServedTwice) {
  fall_asleep();
  post(2);
  const auto old = sent(0, 2, 2);
  post(1);
  wake(sent(0, 3, 3));
  EXPECT_EQ(served, tickets_to(3));
  fall_asleep();
  wake(old);
  wake(sent(0, 3, 3));
  post(1);
  fall_asleep();
  EXPECT_EQ(served, tickets_to(4));
  EXPECT_EQ(why, "");
}

// The look that is under way may have read the ring before or after the wake was sent.
TEST_F(UnmappedLook, RequestsThatComeWhileALookIsUnderWayAreLeftToIt) {
  for (unsigned round = 0; round < 100 && !link->reads(); ++round) end.poll(now += 100);
  post(2);
  wake(sent(0, 2, 2));
  EXPECT_TRUE(served.empty());
  link->end_read(2);
  end.poll(now += 100);
  EXPECT_EQ(served, tickets_to(2));
  EXPECT_EQ(why, "");
}

TEST_F(UnmappedLook, ADamagedRequestInAWakeEndsTheChannel) {
  fall_asleep();
  post(2);
  damage(1);
  wake(sent(0, 2, 2));
  end.poll(now += 100);
  EXPECT_EQ(served, tickets_to(1));
  EXPECT_NE(why.find("ring slot 1"), std::string::npos) << why;
}

TEST_F(UnmappedLook, AWakeFromBeyondWhatWasTakenEndsTheChannel) {
  fall_asleep();
  post(2);
  wake(sent(1, 2, 1));
  end.poll(now += 100);
  EXPECT_EQ(why, "a wake with requests from slot 1 on; the agent has taken 0");
}

TEST_F(UnmappedLook, AWakeWithATailBeyondTheRingEndsTheChannel) {
  fall_asleep();
  wake(sent(0, 65, 3));
  end.poll(now += 100);
  EXPECT_NE(why.find("tail is 65; it was 0"), std::string::npos) << why;
}

// A wake that says nothing: a look finds the request, and then the answer, the flag of the sleep and the look after it
// take one round trip.
TEST_F(UnmappedLook, ARequestAfterWhichNoOtherIsLikelyCostsOneReadAfterThatWhichFoundIt) {
  link->keep_order();
  background = true;
  fall_asleep();
  post(1);
  const std::uint64_t looks = end.counters().looks;
  wake({});
  ASSERT_TRUE(link->reads());
  link->end_read(1);
  end.poll(now += 100);
  EXPECT_EQ(served, tickets_to(1));
  ASSERT_TRUE(link->reads());
  link->end_read(1);
  end.poll(now += 100);
  end.poll(now += 100);
  EXPECT_TRUE(end.asleep());
  EXPECT_EQ(end.counters().looks, looks + 2);
}

// The program keeps seeing that the agent sleeps, so its next post comes with a wake too: nothing is read, and one
// write answers.
TEST_F(UnmappedLook, ARequestAfterWhichNoOtherIsLikelyIsServedAsleepIfItComesWithItsWake) {
  link->keep_order();
  background = answers = true;
  fall_asleep();
  for (std::uint64_t round = 1; round <= 200; ++round) {  // around both rings
    post(1);
    const unsigned writes = link->writes;
    std::vector<std::byte> requests = sent(round - 1, round, 1);
    store(requests.data() + offsetof(wire::SentRequests, reply_head), round - 1);  // it has read all replies
    wake(std::move(requests));
    ASSERT_EQ(served, tickets_to(round)) << why;
    ASSERT_FALSE(link->reads()) << round;
    ASSERT_EQ(link->writes, writes + 1);
    ASSERT_EQ(head(), round);
    ASSERT_TRUE(program_sees_sleep());
    ASSERT_TRUE(end.fall_asleep(now));
    ASSERT_TRUE(end.asleep());
  }
  // A request after which others are likely wakes the channel.
  background = false;
  post(1);
  wake(sent(200, 201, 1));
  EXPECT_EQ(served, tickets_to(201));
  EXPECT_FALSE(end.asleep());
  EXPECT_FALSE(program_sees_sleep());
}

// Nothing else may happen before the loop sleeps: the poll that writes an answer wakes the program that waits for it.
TEST_F(UnmappedLook, AnAnswerWhileTheAgentSleepsWakesItsProgramInTheSamePoll) {
  link->keep_order();
  background = true;
  fall_asleep();
  std::vector<std::byte> wake_request;
  wire::encode(wire::WakeAt{0, wire::WakeWord::replies, 0}, wake_request);
  ring.write(static_cast<std::uint8_t>(wire::EntryKind::wake_at), ++posted, wake_request);
  wake(sent(0, 1, 1));
  fall_asleep();
  ASSERT_EQ(link->wakes, 0u);
  end.reply(wire::ReplyKind::done, 7, wire::Done{});
  end.poll(now += 100);
  EXPECT_EQ(link->wakes, 1u);
}

// Three writes where only whole writes are ordered.
TEST_F(UnmappedLook, AnAnswerIsWrittenInThreeStepsIfPiecesAreNotOrdered) {
  background = answers = true;
  fall_asleep();
  post(1);
  const unsigned writes = link->writes;
  wake(sent(0, 1, 1));
  EXPECT_EQ(served, tickets_to(1));
  EXPECT_EQ(link->writes, writes + 3);
}

// More came than the wake carries.
TEST_F(UnmappedLook, AWakeThatCarriesAPartOfTheRequestsIsFollowedByALook) {
  link->keep_order();
  background = true;
  fall_asleep();
  post(2);
  wake(sent(0, 2, 1));
  EXPECT_EQ(served, tickets_to(1));
  look(2);
  EXPECT_EQ(served, tickets_to(2));
}

// Only a look shows whether the program has read its replies.
TEST_F(UnmappedLook, AnAnswerWithoutRoomEndsTheSleep) {
  link->keep_order();
  background = answers = true;
  fall_asleep();
  for (std::uint64_t round = 1; round <= layout.reply_slots + 1; ++round) {
    post(1);
    wake(sent(round - 1, round, 1));  // none of the replies was read
  }
  EXPECT_EQ(served.size(), layout.reply_slots + 1);
  EXPECT_FALSE(end.asleep());
  const std::uint64_t read = layout.reply_slots;
  std::memcpy(memory.data() + ChannelLayout::tail_line + offsetof(wire::TailLine, reply_head), &read, sizeof read);
  look(posted);
  const auto replies = load<std::uint64_t>(memory.data() + ChannelLayout::reply_tail_line);
  EXPECT_EQ(replies, layout.reply_slots + 1);
}

}  // namespace
}  // namespace offpath::channel
