// A function's threads at one end of a socket, and an agent played by the test at the other: it answers in any order.
#include "plugin/worker_messages.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/memory_file.h"
#include "plugin/output_memory.h"

namespace offpath::plugin {
namespace {

class WorkerMessagesTest : public ::testing::Test {
 protected:
  WorkerMessagesTest() { messages_.begin(7); }
  static Fd connect(Fd& other) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    other = Fd(ends[1]);
    return Fd(ends[0]);
  }
  // The worker's next message, with its descriptor if there is one.
  FromWorker next(std::vector<Fd>* descriptors = nullptr) {
    auto packet = agent_reader_.receive(agent_.get(), Wait::yes);
    EXPECT_TRUE(packet && *packet);
    if (descriptors != nullptr) *descriptors = std::move((*packet)->descriptors);
    return *decode_from_worker((*packet)->bytes);
  }
  void answer(OperationNumber operation, Error error, std::string_view message, std::uint64_t bytes,
              bool enclosed = true, CallNumber call = 7) {
    AnswerPacket packet{
        call, operation, static_cast<std::int32_t>(error), error == Error{} ? "" : "the reason", bytes, enclosed, {}};
    std::vector<int> descriptors;
    Fd memory;
    if (enclosed) {
      packet.enclosed.assign(bytes_of(message).begin(), bytes_of(message).end());
    } else if (error == Error{}) {
      memory = *sealed_copy("test", bytes_of(message));
      descriptors.push_back(memory.get());
    }
    std::vector<std::byte> encoded;
    encode(packet, encoded);
    EXPECT_TRUE(send_packet(agent_.get(), encoded, descriptors, Wait::yes));
  }

  Fd agent_, worker_ = connect(agent_);
  PacketReader worker_reader_, agent_reader_;
  WorkerMessages messages_{worker_.get(), worker_reader_};
};

constexpr Error none{};

TEST_F(WorkerMessagesTest, SmallMessagesAreEnclosedAndLargeOnesSealed) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, message_enclosed_max, message_enclosed_max + 1}) {
    const std::string message(bytes, 'm');
    Status sent = fail(Error::io, "");
    std::thread function([&] { sent = messages_.send(3, 4, bytes_of(message)); });
    std::vector<Fd> descriptors;
    const FromWorker asked = next(&descriptors);
    const auto& notice = std::get<SendNotice>(asked);
    EXPECT_EQ(notice.call, 7u);
    EXPECT_EQ(notice.lane, 3u);
    EXPECT_EQ(notice.tag, 4u);
    EXPECT_EQ(notice.bytes, bytes);
    EXPECT_EQ(notice.is_enclosed, bytes <= message_enclosed_max);
    ASSERT_EQ(descriptors.size(), notice.is_enclosed ? 0u : 1u);
    for (const Fd& memory : descriptors) EXPECT_TRUE(check_output(memory.get(), bytes, "a message"));
    answer(notice.operation, none, "", 0);
    function.join();
    EXPECT_TRUE(sent);
  }
}

TEST_F(WorkerMessagesTest, WhatIsReadFromADescriptorIsSaidToBeTaken) {
  const std::string message(100'000, 'x');
  std::vector<std::byte> into(100'001);
  std::uint64_t bytes = 0;
  Status received = fail(Error::io, "");
  std::thread function([&] { received = messages_.receive(1, 2, into, bytes); });
  const FromWorker asked = next();
  const auto& notice = std::get<ReceiveNotice>(asked);
  EXPECT_EQ(notice.room, into.size());
  answer(notice.operation, none, "of another call", 15, true, 6);  // belongs to no call
  answer(notice.operation, none, message, message.size(), false);
  const FromWorker taken = next();
  EXPECT_EQ(std::get<TakenNotice>(taken).operation, notice.operation);
  function.join();
  ASSERT_TRUE(received);
  EXPECT_EQ(bytes, message.size());
  EXPECT_EQ(text_of(Bytes(into).first(bytes)), message);
}

TEST_F(WorkerMessagesTest, AFailureComesWithItsReasonAndTheSizeOfWhatDidNotFit) {
  std::uint64_t bytes = 0;
  Status received;
  std::thread function([&] { received = messages_.receive(1, 2, {}, bytes); });
  const FromWorker asked = next();
  answer(std::get<ReceiveNotice>(asked).operation, Error::too_large, "", 500, false);
  function.join();
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Error::too_large);
  EXPECT_EQ(received.error().message, "the reason");
  EXPECT_EQ(bytes, 500u);
}

// More threads than may have operations at a time; one of them reads for all.
TEST_F(WorkerMessagesTest, ThreadsGetTheirOwnAnswersInWhateverOrderTheyCome) {
  constexpr std::size_t threads = operations_max + 8;
  std::vector<std::string> got(threads);
  std::vector<std::thread> functions;
  for (std::size_t i = 0; i < threads; ++i) {
    functions.emplace_back([this, i, &got] {
      std::vector<std::byte> into(64);
      std::uint64_t bytes = 0;
      if (messages_.receive(0, static_cast<std::uint32_t>(i), into, bytes)) got[i] = text_of(Bytes(into).first(bytes));
    });
  }
  std::vector<ReceiveNotice> asked;
  for (std::size_t i = 0; i < operations_max; ++i) asked.push_back(std::get<ReceiveNotice>(next()));
  std::ranges::reverse(asked);
  for (const ReceiveNotice& each : asked) {
    const std::string message = fmt::format("tag {}", each.tag);
    answer(each.operation, none, message, message.size());
  }
  for (std::size_t i = operations_max; i < threads; ++i) {
    const FromWorker late = next();
    const auto& each = std::get<ReceiveNotice>(late);
    const std::string message = fmt::format("tag {}", each.tag);
    answer(each.operation, none, message, message.size());
  }
  for (std::thread& function : functions) function.join();
  for (std::size_t i = 0; i < threads; ++i) EXPECT_EQ(got[i], fmt::format("tag {}", i));
}

TEST_F(WorkerMessagesTest, WhenTheAgentIsGoneNobodyWaits) {
  std::vector<std::thread> functions;
  std::vector<Status> outcomes(3);
  for (Status& outcome : outcomes) {
    functions.emplace_back([this, &outcome] {
      std::uint64_t bytes = 0;
      outcome = messages_.receive(0, 0, {}, bytes);
    });
  }
  for (int i = 0; i < 3; ++i) (void)next();
  agent_ = {};
  for (std::thread& function : functions) function.join();
  for (const Status& outcome : outcomes) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, Error::peer_lost);
  }
}

}  // namespace
}  // namespace offpath::plugin
