// Threads of one program that wait at once for different things, over a real link: each is notified. The agent's end
// runs on a thread of its own, and the program's waits have no slices: a lost wake stays lost.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "channel/agent_end.h"
#include "channel/host_end.h"
#include "testing/link/connected_pair.h"
#include "wire/messages/replies.h"

namespace offpath::channel {
namespace {

using wire::EntryKind;

constexpr int rounds = 500;

class WaitsOfThreads : public testing::Test, protected link::ConnectedPair, public AgentEvents {
 protected:
  void SetUp() override {
    meet({.name = "threads"});
    agent_end = std::make_unique<AgentEnd>(1, "program", std::move(there), hello.layout, *this);
    serving = std::thread([this] { serve(); });
    end = std::make_unique<HostEnd>(std::move(host), hello.layout);
    wire::OpenStream open{.stream = 0,
                          .destination = {},
                          .rows_max = 1,
                          .keep = 0,
                          .ranks = 1,
                          .rank = 0,
                          .name = "s",
                          .pool = "p",
                          .schema = {}};
    ASSERT_TRUE(end->open_stream(open, soon_enough()));
    stream = open.stream;
  }
  void TearDown() override {
    stopped = true;
    if (serving.joinable()) serving.join();
    end.reset();
    agent_end.reset();
  }

  // Later than any answer. A wait that ends no earlier has lost its wake, and looked only at its deadline.
  static TimeNs soon_enough() { return link::soon(); }

  // Slower than a wait spins, so that the waits sleep. A descriptor arrives right after the wakes of the next turn: the
  // call that waits for it and the sleeping thread wake at once, and either may read the socket.
  void serve() {
    std::vector<std::uint64_t> handing_over;
    while (!stopped) {
      handing_over.swap(gets);
      if (!handing_over.empty()) end_step();
      agent_end->poll(monotonic_ns());
      for (const std::uint64_t ticket : handing_over) EXPECT_TRUE(agent_end->hand_over(ticket, file.get()));
      handing_over.clear();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void on_request(AgentEnd& channel, const Entry& request, TimeNs) override {
    switch (static_cast<EntryKind>(request.kind)) {
      case EntryKind::open_stream:
        channel.reset_line(0);
        channel.set_credit(0, 1);
        return channel.reply(wire::ReplyKind::opened, request.ticket, wire::Opened{0, 1});
      case EntryKind::pool_get:
        gets.push_back(request.ticket);
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{});
      case EntryKind::need_credit:
        if (grants) channel.set_credit(0, ++credit);
        return;
      case EntryKind::step_end:
        step = request.ticket;
        if (!steps_end_with_gets) end_step();
        return;
      default:
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{});
    }
  }
  void end_step() {
    agent_end->set_pulled(0, step);
    agent_end->set_stored(0, step);
  }
  void on_transfer(AgentEnd&, std::uint64_t, Status, TimeNs) override {}
  void on_offer(AgentEnd&, std::uint64_t, Result<Fd>, TimeNs) override {}
  void on_closed(AgentEnd&, const Failure&, TimeNs) override {}

  // ---- ways to wait

  Status get_descriptor() {
    OFP_ASSIGN(const Reply reply, end->call(EntryKind::pool_get, {}, soon_enough()));
    OFP_ASSIGN([[maybe_unused]] const Fd fd, end->take_descriptor(reply.ticket, soon_enough()));
    return {};
  }
  Status answer() {
    OFP_ASSIGN(const std::uint64_t ticket, end->ask(EntryKind::pool_drop, {}, soon_enough()));
    const TimeNs deadline = soon_enough();
    while (!end->take_reply(ticket)) {
      OFP_ASSIGN(const auto found, end->wait_reply({&ticket, 1}, deadline));
      if (!found && monotonic_ns() >= deadline) return fail(Error::timeout, "the answer was not told");
    }
    return {};
  }
  Status progress(Progress progress) {
    std::uint64_t ticket = 0;
    {
      auto posting = end->begin();
      OFP_ASSIGN(ticket, end->post_data(posting, EntryKind::step_end, stream, {}, 0, 0, {}, soon_enough()));
    }
    return end->wait(stream, ticket, progress, soon_enough());
  }
  Status credited() {
    auto posting = end->begin();
    auto posted = end->post_data(posting, EntryKind::step_end, stream, {}, 1, 0, {}, soon_enough());
    return posted ? Status() : tl::unexpected(std::move(posted).error());
  }
  // As a program's own event loop does: by the event descriptor alone.
  Status polled() {
    OFP_ASSIGN(const std::uint64_t ticket, end->post(EntryKind::step_end, {}, soon_enough()));
    OFP_TRY(end->arm(stream, ticket, Progress::stored));
    const TimeNs deadline = soon_enough();
    while (end->stored(stream) < ticket) {
      if (monotonic_ns() >= deadline) return fail(Error::timeout, "the event descriptor did not tell");
      pollfd event{end->event_fd(), POLLIN, 0};
      (void)link::poll_until({&event, 1}, deadline);
      OFP_TRY(end->poll());
    }
    return {};
  }

  static Status told(const std::function<Status()>& way) {
    const TimeNs deadline = soon_enough();
    OFP_TRY(way());
    if (monotonic_ns() >= deadline) return fail(Error::timeout, "the wait was not told, and ended at its deadline");
    return {};
  }
  void run_beside_each_other(const std::vector<std::function<Status()>>& ways) {
    std::vector<std::thread> threads;
    for (const auto& way : ways) {
      threads.emplace_back([&way] {
        for (int round = 0; round < rounds; ++round) {
          const Status waited = told(way);
          ASSERT_TRUE(waited) << "round " << round << ": " << waited.error().message;
        }
      });
    }
    for (std::thread& each : threads) each.join();
  }

  Fd file{::memfd_create("handed over", MFD_CLOEXEC)};
  std::unique_ptr<AgentEnd> agent_end;
  std::unique_ptr<HostEnd> end;
  std::thread serving;
  std::atomic<bool> stopped = false;
  std::uint32_t stream = 0;
  // Used only by the agent's thread.
  std::uint64_t credit = 1;
  std::vector<std::uint64_t> gets;  // their descriptors are to be handed over
  std::uint64_t step = 0;           // the newest
  std::atomic<bool> steps_end_with_gets = false, grants = true;
};

// The wake arrives while the thread sleeps on the link and another call reads the same socket under the channel's lock.
TEST_F(WaitsOfThreads, ForProgressAreToldWhileACallTakesADescriptor) {
  steps_end_with_gets = true;
  for (int round = 0; round < 100 && !HasFailure(); ++round) {
    const std::uint64_t sleeps = end->counters().sleeps;
    std::thread waiting([&] {
      const Status waited = told([&] { return progress(Progress::stored); });
      EXPECT_TRUE(waited) << "round " << round << ": " << waited.error().message;
    });
    while (end->counters().sleeps == sleeps) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // between the count and the system call
    const auto ticket = end->post(EntryKind::pool_get, {}, soon_enough());
    ASSERT_TRUE(ticket);
    EXPECT_TRUE(end->take_descriptor(*ticket, soon_enough()));
    waiting.join();
  }
}

// The agent does not grant the credit. One thread sleeps on the link, the other ones behind it.
TEST_F(WaitsOfThreads, ForCreditEndWhenTheStreamIsClosed) {
  grants = false;
  const std::uint64_t sleeps = end->counters().sleeps;
  const TimeNs deadline = soon_enough();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i)
    waiting.emplace_back([this, deadline] {
      auto posting = end->begin();
      const auto posted = end->post_data(posting, EntryKind::step_end, stream, {}, 100, 0, {}, deadline);
      ASSERT_FALSE(posted);
      EXPECT_EQ(posted.error().code, Error::closed) << posted.error().message;
      EXPECT_LT(monotonic_ns(), deadline);
    });
  while (end->counters().sleeps < sleeps + waiting.size()) std::this_thread::yield();
  EXPECT_TRUE(end->close_stream(stream, deadline));
  for (std::thread& each : waiting) each.join();
}

TEST_F(WaitsOfThreads, ForDescriptorsAndProgressAreTold) {
  run_beside_each_other({[this] { return get_descriptor(); }, [this] { return get_descriptor(); },
                         [this] { return progress(Progress::stored); }});
}

TEST_F(WaitsOfThreads, ForAnswersProgressCreditAndEventsAreTold) {
  run_beside_each_other({[this] { return answer(); }, [this] { return progress(Progress::pulled); },
                         [this] { return progress(Progress::stored); }, [this] { return credited(); },
                         [this] { return polled(); }});
}

TEST_F(WaitsOfThreads, OfEachKindAtOnceAreTold) {
  run_beside_each_other({[this] { return get_descriptor(); }, [this] { return answer(); },
                         [this] { return progress(Progress::stored); }, [this] { return credited(); },
                         [this] { return polled(); }});
}

}  // namespace
}  // namespace offpath::channel
