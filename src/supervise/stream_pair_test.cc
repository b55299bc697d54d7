#include "supervise/stream_pair.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace offpath::supervise {
namespace {

struct StreamPairTest : testing::Test {
  StreamPairTest() : made(StreamPair::make(true).value()), pair(made.pair), program(made.programs.get()) {}

  short ready() const {
    pollfd asked{program, POLLIN | POLLOUT | POLLRDHUP, 0};
    ::poll(&asked, 1, 0);
    return asked.revents;
  }
  std::string taken() {
    std::vector<std::byte> bytes(pair.waiting());
    const std::size_t count = pair.take(bytes);
    return {reinterpret_cast<const char*>(bytes.data()), count};
  }
  ssize_t write(std::string_view bytes) const { return ::write(program, bytes.data(), bytes.size()); }
  std::string read() const {
    char bytes[64];
    const ssize_t got = ::read(program, bytes, sizeof bytes);
    return got < 0 ? std::strerror(errno) : std::string(bytes, static_cast<std::size_t>(got));
  }

  StreamPair::Made made;
  StreamPair& pair;
  int program;
};

TEST_F(StreamPairTest, CarriesBytesBothWays) {
  EXPECT_EQ(ready(), POLLOUT);
  EXPECT_EQ(pair.waiting(), 0u);
  EXPECT_EQ(write("a"), 1);
  EXPECT_EQ(pair.waiting(), 1u);
  EXPECT_EQ(taken(), "a");
  EXPECT_EQ(pair.waiting(), 0u);
  EXPECT_EQ(taken(), "");
  EXPECT_EQ(write("bcd"), 3);
  EXPECT_EQ(write("e"), 1);
  EXPECT_EQ(taken(), "bcde");
  const auto bytes = std::as_bytes(std::span("hello", 5));
  EXPECT_EQ(pair.give(bytes).bytes, 5u);
  EXPECT_EQ(read(), "hello");
}

// Urgent data is taken as any other, wherever it stands, and the last byte of it as well.
TEST_F(StreamPairTest, TakesUrgentData) {
  EXPECT_EQ(write("ab"), 2);
  EXPECT_EQ(::send(program, "c", 1, MSG_OOB), 1);
  EXPECT_EQ(write("de"), 2);
  std::string got;
  for (int i = 0; i < 5; ++i) got += taken();
  EXPECT_EQ(got, "abcde");
  EXPECT_EQ(::send(program, "f", 1, MSG_OOB), 1);
  EXPECT_EQ(taken(), "f");
  EXPECT_EQ(pair.waiting(), 0u);
  made.programs.reset();
  EXPECT_EQ(taken(), "");
}

// Pieces of any size, taken in parts of any size, with as many bytes waiting as there may be.
TEST_F(StreamPairTest, LosesNoByte) {
  std::minstd_rand random(testing::UnitTest::GetInstance()->random_seed());
  std::string sent, got;
  for (int i = 0; i < 2000; ++i) {
    std::string piece(1 + random() % 5000, 0);
    for (char& each : piece) each = static_cast<char>(random());
    if (const ssize_t written = write(piece); written > 0) sent.append(piece, 0, static_cast<std::size_t>(written));
    std::vector<std::byte> bytes(std::min<std::size_t>(random() % 6000, pair.waiting()));
    const std::size_t count = pair.take(bytes);
    got.append(reinterpret_cast<const char*>(bytes.data()), count);
  }
  got += taken();
  EXPECT_TRUE(sent == got) << sent.size() << " bytes sent, " << got.size() << " taken";
}

TEST_F(StreamPairTest, EndsWithAnErrorUnlessItIsClosed) {
  const auto bytes = std::as_bytes(std::span("end", 3));
  EXPECT_EQ(pair.give(bytes).bytes, 3u);
  pair.reset();
  EXPECT_EQ(read(), "end");
  EXPECT_EQ(read(), std::strerror(ECONNRESET));
  EXPECT_EQ(read(), "");
}

// As when the supervisor is killed: the kernel closes its end, with unsent data lost.
TEST_F(StreamPairTest, AfterBytesWereTakenItStillEndsWithAnError) {
  EXPECT_EQ(write("request"), 7);
  EXPECT_EQ(taken(), "request");
  pair.reset();
  EXPECT_EQ(read(), std::strerror(ECONNRESET));
}

TEST_F(StreamPairTest, ClosedItEndsWithoutAnError) {
  EXPECT_EQ(write("request"), 7);
  EXPECT_EQ(taken(), "request");
  pair.end_stream();
  EXPECT_EQ(ready() & (POLLIN | POLLRDHUP | POLLHUP), POLLIN | POLLRDHUP);
  pair.close();
  EXPECT_EQ(read(), "");
  EXPECT_EQ(ready() & (POLLHUP | POLLERR), POLLHUP);
}

TEST_F(StreamPairTest, IsNotWritableWhileAConnectionIsAttempted) {
  pair.fill(program);
  EXPECT_EQ(ready(), 0);
  EXPECT_EQ(write("x"), -1);
  EXPECT_EQ(errno, EAGAIN);
  pair.drain();
  EXPECT_EQ(ready(), POLLOUT);
  EXPECT_EQ(pair.waiting(), 0u);
  EXPECT_EQ(write("x"), 1);
  EXPECT_EQ(taken(), "x");
}

TEST_F(StreamPairTest, AFailedAttemptShowsAsTheKernels) {
  pair.fill(program);
  pair.reset();
  EXPECT_EQ(ready() & (POLLIN | POLLOUT | POLLERR | POLLHUP), POLLIN | POLLOUT | POLLERR | POLLHUP);
}

TEST_F(StreamPairTest, IsReadableWhileAConnectionWaits) {
  pair.show_readable();
  pair.show_readable();
  EXPECT_EQ(ready(), POLLIN | POLLOUT);
  pair.hide_readable(program);
  EXPECT_EQ(ready(), POLLOUT);
  EXPECT_FALSE(pair.shows_readable());
}

TEST_F(StreamPairTest, TellsWhetherTheProgramReadEverything) {
  const auto bytes = std::as_bytes(std::span("unread", 6));
  EXPECT_EQ(pair.give(bytes).bytes, 6u);
  EXPECT_FALSE(pair.was_left_unread());
  made.programs.reset();
  EXPECT_TRUE(pair.was_left_unread());
}

// A byte alone, of the largest piece, does not make the program's end unwritable.
TEST_F(StreamPairTest, IsWritableOnceItsBytesWereTaken) {
  const std::string much(1 << 20, 'm');
  const ssize_t written = write(much);
  ASSERT_GT(written, 0);
  EXPECT_EQ(ready(), 0);
  std::size_t left = static_cast<std::size_t>(written);
  while (left > 0) {
    std::vector<std::byte> bytes(std::min<std::size_t>(left, 64 << 10));
    const std::size_t count = pair.take(bytes);
    ASSERT_GT(count, 0u);
    left -= count;
  }
  EXPECT_EQ(ready(), POLLOUT);
}

}  // namespace
}  // namespace offpath::supervise
