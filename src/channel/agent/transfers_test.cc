#include "channel/agent/transfers.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "testing/channel/fake_agent_link.h"

namespace offpath::channel {
namespace {

// Notes what it is to do, and ends nothing by itself.
class FakeTransferLink final : public link::FakeAgentLink {
 public:
  struct Posted {
    std::uint64_t token;
    std::vector<link::ReadPiece> pieces;
    [[nodiscard]] std::uint64_t number() const { return token & ((1ull << 56) - 1); }
    [[nodiscard]] std::uint64_t bytes() const {
      return std::accumulate(pieces.begin(), pieces.end(), std::uint64_t{0},
                             [](std::uint64_t sum, const link::ReadPiece& piece) { return sum + piece.length; });
    }
  };
  void read(std::uint64_t token, std::span<const link::ReadPiece> pieces) override {
    reads.push_back({token, {pieces.begin(), pieces.end()}});
  }
  void write(std::uint64_t token, std::span<const link::WritePiece>) override { writes.push_back({token, {}}); }

  std::vector<Posted> reads, writes;
};

class TransfersTest : public testing::Test {
 protected:
  link::ReadPiece piece(std::uint64_t offset, std::uint64_t length) {
    return {1, 0, offset, memory.data() + offset, length};
  }
  bool post(std::uint64_t budget) { return transfers.post(budget); }
  void end(std::size_t read, Status status = {}) {
    transfers.end_slice(link.reads.at(read).number(), std::move(status));
  }

  std::array<std::byte, 1000> memory{};
  FakeTransferLink link;
  AgentEndCounters counters;
  Transfers transfers{link, counters, {.slice_bytes = 100, .slices_outstanding = 3, .in_the_call = false}};
};

TEST_F(TransfersTest, APullIsReadBySlicesAcrossItsPieces) {
  transfers.pull(7, {piece(0, 30), piece(500, 0), piece(100, 120), piece(400, 10)});
  EXPECT_TRUE(post(1000));
  ASSERT_EQ(link.reads.size(), 2u);
  EXPECT_EQ(link.reads[0].bytes(), 100u);
  EXPECT_EQ(link.reads[0].pieces.size(), 2u) << "none of no length";
  EXPECT_EQ(link.reads[1].bytes(), 60u);
  EXPECT_EQ(link.reads[1].pieces[0].offset, 170u);
  EXPECT_EQ(link.reads[1].pieces[0].to, memory.data() + 170);
  EXPECT_EQ(counters.bytes_pulled, 160u);
  end(0);
  EXPECT_FALSE(transfers.take_pulled());
  end(1);
  const auto ended = transfers.take_pulled();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->token, 7u);
  EXPECT_TRUE(ended->status);
  EXPECT_FALSE(transfers.pulling());
}

TEST_F(TransfersTest, NoMoreSlicesAreUnderWayThanTheLimit) {
  transfers.pull(1, {piece(0, 250)});
  transfers.pull(2, {piece(300, 250)});
  EXPECT_TRUE(post(1000));
  EXPECT_EQ(link.reads.size(), 3u);
  EXPECT_FALSE(post(1000));
  end(1);
  EXPECT_TRUE(post(1000));
  EXPECT_EQ(link.reads.size(), 4u);
  EXPECT_EQ(link.reads[3].pieces[0].offset, 300u) << "the second one, since all of the first is posted";
}

TEST_F(TransfersTest, ALinkThatReadsInTheCallIsGivenNoMoreThanTheBudget) {
  Transfers mapped(link, counters, {.slice_bytes = 100, .slices_outstanding = 64, .in_the_call = true});
  mapped.pull(1, {piece(0, 900)});
  std::uint64_t budget = 250;
  EXPECT_TRUE(mapped.post(budget));
  EXPECT_EQ(budget, 0u);
  EXPECT_EQ(counters.bytes_pulled, 250u);
  EXPECT_FALSE(mapped.post(budget));
}

TEST_F(TransfersTest, PullsEndInTheirOrder) {
  transfers.pull(1, {piece(0, 50)});
  transfers.pull(2, {piece(100, 50)});
  transfers.pull(3, {});
  EXPECT_TRUE(post(1000));
  end(1);
  EXPECT_FALSE(transfers.take_pulled());
  end(0);
  for (const std::uint64_t token : {1, 2, 3}) EXPECT_EQ(transfers.take_pulled()->token, token);
}

TEST_F(TransfersTest, AFailureEndsTheRestOnceItsSlicesHaveEnded) {
  transfers.pull(1, {piece(0, 500)});
  EXPECT_TRUE(post(1000));
  end(1, fail(Error::peer_lost, "the first"));
  end(2, fail(Error::closed, "the second"));
  EXPECT_FALSE(post(1000)) << "the rest is not read";
  EXPECT_FALSE(transfers.take_pulled()) << "a slice may still write to its memory";
  end(0);
  const auto ended = transfers.take_pulled();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status.error().message, "the first");
}

TEST_F(TransfersTest, OnlyWhatIsNotPostedIsCancelled) {
  transfers.pull(1, {piece(0, 500)});
  transfers.pull(2, {piece(500, 100)});
  EXPECT_TRUE(post(150));
  transfers.cancel(1);
  transfers.cancel(3);
  for (std::size_t read = 0; read < link.reads.size(); ++read) end(read);
  const auto ended = transfers.take_pulled();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status.error().code, Error::cancelled);
  EXPECT_FALSE(transfers.take_pulled()) << "the other one goes on";
}

TEST_F(TransfersTest, FetchesAndPushesBeginAtOnce) {
  const link::ReadPiece small = piece(0, 8);
  const link::WritePiece write{1, 0, memory.data(), 16};
  transfers.pull(1, {piece(0, 500)});
  transfers.fetch(2, {&small, 1});
  transfers.push(3, {&write, 1});
  ASSERT_EQ(link.reads.size(), 1u);
  ASSERT_EQ(link.writes.size(), 1u);
  EXPECT_EQ(transfers.end_push(link.writes[0].number()), 3u);
  EXPECT_EQ(transfers.end_fetch(link.reads[0].number()), 2u);
  EXPECT_EQ(counters.pushes, 1u);
  EXPECT_EQ(counters.bytes_pushed, 16u);
}

TEST_F(TransfersTest, WhatHasNotEndedIsAbandonedOnce) {
  const link::WritePiece write{1, 0, memory.data(), 16};
  transfers.pull(1, {piece(0, 500)});
  transfers.push(2, {&write, 1});
  transfers.pull(3, {piece(0, 500)});
  EXPECT_EQ(transfers.abandon(), (std::vector<std::uint64_t>{1, 3, 2}));
  EXPECT_TRUE(transfers.abandon().empty());
}

}  // namespace
}  // namespace offpath::channel
