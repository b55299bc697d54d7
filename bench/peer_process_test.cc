#include "peer_process.h"

#include <gtest/gtest.h>

#include "machine.h"
#include "measure.h"

namespace offpath::bench {
namespace {

TEST(PeerProcess, RawReaderReadsThisProcessAndNamesBadAddresses) {
  auto peer = PeerProcess::start(0, make_raw_reader());
  if (!peer && peer.error().code == Error::denied) GTEST_SKIP() << peer.error().message;
  ASSERT_TRUE(peer) << peer.error().message;
  auto buffers = RotatedBuffers::make(64 << 10, 1 << 20);
  ASSERT_TRUE(buffers);
  Pull turn{.source = reinterpret_cast<std::uint64_t>(buffers->at(0)),
            .stride_bytes = 64 << 10,
            .buffers = buffers->count(),
            .column_bytes = 64 << 10,
            .columns = 4,
            .outstanding = 3,
            .repeats = 5};
  const auto cost = peer->pull(turn);
  if (!cost && cost.error().code == Error::denied) GTEST_SKIP() << cost.error().message;
  ASSERT_TRUE(cost) << cost.error().message;
  EXPECT_GT(*cost, 0);
  turn.source = 64;
  EXPECT_FALSE(peer->pull(turn));
  turn.source = reinterpret_cast<std::uint64_t>(buffers->at(0));
  EXPECT_TRUE(peer->pull(turn)) << "a bad address fails one turn only";
}

TEST(PeerProcess, TheReasonAPeerCannotStartIsTold) {
  const auto peer = PeerProcess::start(
      0, []() -> Result<std::unique_ptr<Puller>> { return fail(Error::not_found, "no such library"); });
  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().message, "no such library");
}

TEST(PeerProcess, APeerThatDiesIsAnErrorNotAHang) {
  class Dying final : public Puller {
    Result<double> pull(const Pull&) override { _exit(0); }
  };
  auto peer = PeerProcess::start(0, []() -> Result<std::unique_ptr<Puller>> { return std::make_unique<Dying>(); });
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pull({}).error().code, Error::peer_lost);
}

TEST(PeerProcess, UcxReadsWhereItIsThere) {
  auto peer = start_ucx_reader(0, 0, 1 << 20);
  if (!peer) GTEST_SKIP() << peer.error().message;
  const auto cost =
      peer->pull({.stride_bytes = 4096, .buffers = 256, .column_bytes = 4096, .columns = 16, .repeats = 5});
  ASSERT_TRUE(cost) << cost.error().message;
  EXPECT_GT(*cost, 0);
}

TEST(Pull, OffsetsComeRound) {
  const Pull turn{.stride_bytes = 100, .buffers = 6, .start = 1, .columns = 4};
  EXPECT_EQ(turn.offset_of(0, 0), 100u);
  EXPECT_EQ(turn.offset_of(1, 0), 500u);
  EXPECT_EQ(turn.offset_of(1, 3), 200u);
}

}  // namespace
}  // namespace offpath::bench
