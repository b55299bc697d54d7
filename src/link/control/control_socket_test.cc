#include "link/control/control_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <random>

#include "base/sent_fds.h"
#include "testing/link/emulated.h"

namespace offpath::link {
namespace {

using wire::ControlHeader;
using wire::ControlType;

std::pair<Fd, Fd> connected(int type = SOCK_STREAM) {
  int fds[2];
  OFP_ASSERT(socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

class ControlSockets : public testing::Test {
 protected:
  ControlSockets() {
    auto [a, b] = connected();
    raw = a.get();
    left = ControlSocket(std::move(a), ControlSocket::Kind::unix_socket);
    right = ControlSocket(std::move(b), ControlSocket::Kind::unix_socket);
  }
  // Sends raw bytes with descriptors, bypassing the framing.
  void send_raw(Bytes bytes, std::span<const int> descriptors = {}) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    ASSERT_EQ(send_with_descriptors(raw, {&piece, 1}, descriptors, 0), static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::byte> frame(ControlHeader header, Bytes payload = {}) {
    std::vector<std::byte> bytes(sizeof header);
    store(bytes.data(), header);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
  }
  Failure next_failure() {
    ControlSocket::Frame got;
    for (int i = 0; i < 10; ++i)
      if (auto there = right.next(got); !there) return there.error();
    ADD_FAILURE() << "the frame was taken";
    return {Error::cancelled, ""};
  }

  int raw = -1;
  ControlSocket left, right;
};

TEST_F(ControlSockets, FramesArriveWholeAndInOrder) {
  ControlSocket::Frame got;
  EXPECT_EQ(right.next(got), false);
  const std::vector<std::byte> large(60'000, std::byte{7});
  ASSERT_TRUE(left.send(ControlType::challenge, large));
  ASSERT_TRUE(left.send(ControlType::wake, {}));
  ASSERT_TRUE(left.send(ControlType::refusal, bytes_of("no")));
  ASSERT_EQ(right.next(got), true);
  EXPECT_EQ(got.type, ControlType::challenge);
  EXPECT_TRUE(std::ranges::equal(got.payload, large));
  ASSERT_EQ(right.next(got), true);
  EXPECT_EQ(got.type, ControlType::wake);
  ASSERT_EQ(right.next(got), true);
  EXPECT_EQ(text_of(got.payload), "no");
  EXPECT_EQ(right.next(got), false);
}

TEST_F(ControlSockets, FramesArriveByteByByte) {
  const auto bytes = frame({5, ControlType::refusal, 0}, bytes_of("hello"));
  ControlSocket::Frame got;
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    send_raw(Bytes(bytes).subspan(i, 1));
    ASSERT_EQ(right.next(got), false) << i;
  }
  send_raw(Bytes(bytes).last(1));
  ASSERT_EQ(right.next(got), true);
  EXPECT_EQ(text_of(got.payload), "hello");
}

TEST_F(ControlSockets, DescriptorsComeWithTheirFrame) {
  const Fd first(memfd_create("first", MFD_CLOEXEC)), second(memfd_create("second", MFD_CLOEXEC));
  ASSERT_EQ(pwrite(first.get(), "1", 1, 0), 1);
  ASSERT_EQ(pwrite(second.get(), "2", 1, 0), 1);
  const std::uint64_t number = 1;
  const Bytes payload = std::as_bytes(std::span(&number, 1));
  ASSERT_TRUE(left.send(ControlType::wake, {}));
  ASSERT_TRUE(left.send(ControlType::offer, payload, first.get()));
  ASSERT_TRUE(left.send(ControlType::wake, {}));
  ASSERT_TRUE(left.send(ControlType::offer, payload, second.get()));
  ControlSocket::Frame got;
  for (const char* expected : {"", "1", "", "2"}) {
    ASSERT_EQ(right.next(got), true);
    const Fd fd = right.take_descriptor();
    ASSERT_EQ(static_cast<bool>(fd), *expected != 0);
    char text = 0;
    if (fd) {
      ASSERT_EQ(pread(fd.get(), &text, 1, 0), 1);
    }
    EXPECT_EQ(text, *expected);
  }
}

TEST_F(ControlSockets, RefusesWrongHeaders) {
  const struct {
    ControlHeader header;
    std::string message;
  } cases[] = {
      {{0, static_cast<ControlType>(0), 0},
       fmt::format("a frame of type 0, known types are 1 to {}", wire::control_types)},
      {{0, static_cast<ControlType>(wire::control_types + 1), 0},
       fmt::format("a frame of type {}", wire::control_types + 1)},
      {{0, ControlType::wake, 9}, "wake: the reserved field of its header is 9"},
      {{64 * 1024 + 1, ControlType::segment, 0}, "segment: 65537 bytes, at most 65536 are allowed"},
      {{16, ControlType::read_data, 0}, "read_data: unexpected frame on this link"},
  };
  for (const auto& [header, message] : cases) {
    auto [a, b] = connected();
    left = ControlSocket(std::move(a), ControlSocket::Kind::unix_socket);
    right = ControlSocket(std::move(b), ControlSocket::Kind::unix_socket);
    raw = left.fd();
    send_raw(frame(header));
    const Failure failure = next_failure();
    EXPECT_EQ(failure.code, Error::protocol);
    EXPECT_NE(failure.message.find(message), std::string::npos) << failure.message;
  }
}

TEST_F(ControlSockets, RefusesDescriptorsThatDoNotBelong) {
  OFP_NEEDS_KERNEL("messages whose descriptors are cut off");
  const Fd memory(memfd_create("memory", MFD_CLOEXEC));
  const std::vector<int> many(20, memory.get());
  const std::uint64_t number = 1;
  const Bytes payload = std::as_bytes(std::span(&number, 1));
  const struct {
    ControlType type;
    std::size_t descriptors;
    const char* message;
  } cases[] = {
      {ControlType::wake, 1, "wake: came with 1 descriptors, expected 0"},
      {ControlType::offer, 0, "offer: came with 0 descriptors, expected 1"},
      {ControlType::offer, 2, "offer: came with 2 descriptors, expected 1"},
      {ControlType::offer, 20, "descriptors were lost"},
  };
  for (const auto& [type, descriptors, message] : cases) {
    auto [a, b] = connected();
    left = ControlSocket(std::move(a), ControlSocket::Kind::unix_socket);
    right = ControlSocket(std::move(b), ControlSocket::Kind::unix_socket);
    raw = left.fd();
    const Bytes content = type == ControlType::wake ? Bytes{} : payload;
    send_raw(frame({static_cast<std::uint32_t>(content.size()), type, 0}, content), std::span(many).first(descriptors));
    const Failure failure = next_failure();
    EXPECT_EQ(failure.code, Error::protocol);
    EXPECT_NE(failure.message.find(message), std::string::npos) << failure.message;
  }
}

TEST_F(ControlSockets, LeavesNoDescriptorOpenThatNobodyTook) {
  const Fd memory(memfd_create("memory", MFD_CLOEXEC));
  const int before = dup(memory.get());
  ::close(before);
  const std::uint64_t number = 1;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(left.send(ControlType::offer, std::as_bytes(std::span(&number, 1)), memory.get()));
    ControlSocket::Frame got;
    ASSERT_EQ(right.next(got), true);
  }
  ControlSocket::Frame got;
  ASSERT_EQ(right.next(got), false);
  const int after = dup(memory.get());
  ::close(after);
  EXPECT_EQ(after, before);
}

TEST_F(ControlSockets, OutputIsBounded) {
  const std::vector<std::byte> payload(60'000);
  Status sent;
  int frames = 0;
  while ((sent = left.send(ControlType::challenge, payload))) ASSERT_LT(++frames, 1000);
  EXPECT_EQ(sent.error().code, Error::would_block);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(left.send_wake());
  ControlSocket::Frame got;
  for (int i = 0; i < frames;) {
    ASSERT_TRUE(left.flush());
    auto there = right.next(got);
    ASSERT_TRUE(there) << there.error().message;
    if (*there && got.type == ControlType::challenge) ++i;
  }
  ASSERT_TRUE(left.flush());
  EXPECT_FALSE(left.output_waits());
}

TEST_F(ControlSockets, TheOtherEndsDeathIsAnErrorAndNoSignal) {
  ASSERT_TRUE(left.send(ControlType::refusal, bytes_of("last words")));
  left.close();
  Status sent;
  for (int i = 0; i < 3 && sent; ++i) sent = right.send(ControlType::wake, {});
  EXPECT_EQ(sent.error().code, Error::peer_lost);
  ControlSocket::Frame got;
  ASSERT_EQ(right.next(got), true);
  EXPECT_EQ(text_of(got.payload), "last words");
  EXPECT_EQ(right.next(got).error().code, Error::peer_lost);
}

TEST_F(ControlSockets, AwaitingEndsAtTheDeadline) {
  EXPECT_EQ(await_frame(right, monotonic_ns() + millisecond_ns).error().code, Error::timeout);
  ASSERT_TRUE(left.send(ControlType::wake, {}));
  EXPECT_EQ(await_frame(right, soon())->type, ControlType::wake);
}

class StreamedFrames : public testing::TestWithParam<unsigned> {};

// Any mixture of frames and streamed frames, in pieces of any size at both ends, arrives as it was sent.
TEST_P(StreamedFrames, ArriveBetweenOthers) {
  std::mt19937 random(GetParam());
  const auto below = [&](std::size_t bound) { return random() % bound; };
  auto [a, b] = connected();
  ControlSocket left(std::move(a), ControlSocket::Kind::network), right(std::move(b), ControlSocket::Kind::network);
  right.allow_streamed(ControlType::read_data);

  std::vector<std::byte> source(3'000'000), target;
  for (auto& byte : source) byte = static_cast<std::byte>(random());
  std::size_t sent = 0, token = 0, tokens = 0, texts_sent = 0, texts = 0;
  std::vector<std::byte> into(70'000);
  ControlSocket::Frame got;
  while (target.size() < source.size() || texts < texts_sent) {
    if (left.streams()) {
      const std::size_t length = 1 + below(50'000);
      const std::size_t at = sent;
      const std::size_t end = std::min(source.size(), at + std::min<std::size_t>(length, left.stream_left()));
      const std::size_t middle = at + below(end - at + 1);
      const iovec pieces[] = {{&source[at], middle - at}, {source.data() + middle, end - middle}};
      auto moved = left.stream(pieces, below(2) == 0);
      ASSERT_TRUE(moved) << moved.error().message;
      sent += *moved;
    } else if (!left.output_waits() && sent < source.size() && below(2) == 0) {
      const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(source.size() - sent, below(300'000)));
      left.begin_stream(ControlType::read_data, token++, length);
    }
    if (below(4) == 0 && left.output_room() > 1000 && left.send(ControlType::refusal, Bytes(source).first(below(900))))
      ++texts_sent;
    ASSERT_TRUE(left.flush());

    if (right.streamed_left() > 0) {
      const std::size_t length = 1 + below(into.size());
      const std::size_t middle = below(length + 1);
      const iovec pieces[] = {{into.data(), middle}, {into.data() + middle, length - middle}};
      auto moved = right.receive(pieces);
      ASSERT_TRUE(moved) << moved.error().message;
      target.insert(target.end(), into.begin(), into.begin() + static_cast<std::ptrdiff_t>(*moved));
    } else if (auto there = right.next(got); *there) {
      if (got.type == ControlType::read_data) {
        ASSERT_EQ(load<std::uint64_t>(got.payload.data()), tokens++);
      } else {
        ASSERT_EQ(got.type, ControlType::refusal);
        ASSERT_TRUE(std::equal(got.payload.begin(), got.payload.end(), source.begin()));
        ++texts;
      }
    }
  }
  EXPECT_EQ(source, target);
}
INSTANTIATE_TEST_SUITE_P(Seeds, StreamedFrames, testing::Range(0u, 12u));

TEST(ControlSocketMemory, UnreachableMemoryIsAnErrorThatLosesNothing) {
  OFP_NEEDS_KERNEL("EFAULT for what it copies itself");
  auto [a, b] = connected();
  ControlSocket left(std::move(a), ControlSocket::Kind::network), right(std::move(b), ControlSocket::Kind::network);
  right.allow_streamed(ControlType::write_data);
  void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  const iovec nowhere{hole, 4096};
  left.begin_stream(ControlType::write_data, 5, 4096);
  EXPECT_EQ(left.stream({&nowhere, 1}).error().code, Error::unreadable);
  ASSERT_TRUE(left.stream({}));  // only the header
  ControlSocket::Frame got;
  ASSERT_EQ(right.next(got), true);
  ASSERT_EQ(right.streamed_left(), 4096u);

  std::vector<std::byte> bytes(4096, std::byte{3}), into(4096);
  const iovec from{bytes.data(), bytes.size()}, to{into.data(), into.size()};
  while (left.streams()) ASSERT_TRUE(left.stream({&from, 1}));
  EXPECT_EQ(right.receive({&nowhere, 1}).error().code, Error::unreadable);
  EXPECT_EQ(right.receive({&to, 1}), 4096u);
  EXPECT_EQ(into, bytes);
  munmap(hole, 4096);
}

// Random bytes end in frames or in an error, never in anything else.
TEST(ControlSocketGarbage, IsRefusedOrTaken) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    auto [a, b] = connected();
    ControlSocket right(std::move(b), ControlSocket::Kind::unix_socket);
    std::vector<std::byte> bytes(random() % 2000);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random() % (seed % 2 == 0 ? 256 : 18));
    ASSERT_EQ(::send(a.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    a.reset();
    std::size_t taken = 0;
    for (ControlSocket::Frame got;;) {
      auto there = right.next(got);
      if (!there) {
        EXPECT_TRUE(there.error().code == Error::protocol || there.error().code == Error::peer_lost) << seed;
        break;
      }
      if (*there) taken += sizeof(ControlHeader) + got.payload.size();
      ASSERT_LE(taken, bytes.size()) << seed;
    }
  }
}

}  // namespace
}  // namespace offpath::link
