// Bounce buffers of channels that share a device: what they pin, and who waits for whom.
#include "link/card/bounce_buffer.h"

#include <gtest/gtest.h>

#include <deque>

namespace offpath::link {
namespace {

constexpr std::uint64_t block_bytes = BouncePool::block_bytes;
constexpr std::uint64_t limit_bytes = BounceBuffer::blocks_max * block_bytes;

// Counts what is registered, and registers no more than it may.
class CountingRegistrar final : public Registrar {
 public:
  Result<std::unique_ptr<Registration>> register_own(const void*, std::uint64_t length, bool) override {
    if (bytes + length > bytes_max) return fail(Error::no_memory, "{} bytes are the limit", bytes_max);
    ++made;
    return std::make_unique<Counted>(*this, length);
  }

  std::uint64_t bytes = 0, bytes_max = UINT64_MAX, made = 0;

 private:
  class Counted final : public Registration {
   public:
    Counted(CountingRegistrar& registrar, std::uint64_t length)
        : Registration(registrar.made), registrar_(registrar), length_(length) {
      registrar_.bytes += length_;
    }
    ~Counted() override { registrar_.bytes -= length_; }

   private:
    CountingRegistrar& registrar_;
    std::uint64_t length_;
  };
};

class Bounce : public testing::Test {
 protected:
  // As much as there is room for, in pieces of one block.
  std::uint64_t fill(BounceBuffer& buffer) {
    std::uint64_t taken = 0;
    while (buffer.take(block_bytes, now_)) taken += block_bytes;
    return taken;
  }

  CountingRegistrar registrar_;
  BouncePool pool_{registrar_};
  TimeNs now_ = 5 * second_ns;
};

TEST_F(Bounce, AChannelPinsWhatItsRequestsNeedAndNothingWithoutThem) {
  BounceBuffer one(pool_), other(pool_);
  EXPECT_EQ(registrar_.bytes, 0u);
  ASSERT_TRUE(one.take(100, now_));
  EXPECT_EQ(registrar_.bytes, block_bytes);
  EXPECT_EQ(fill(one), limit_bytes - block_bytes) << "up to the limit of one channel";
  EXPECT_EQ(registrar_.bytes, limit_bytes);
  EXPECT_EQ(one.refused(), nullptr) << "its own completions make room";
  one.give_back_to(one.position());
  EXPECT_EQ(one.blocks(), 0u);
  EXPECT_EQ(fill(other), limit_bytes);
  EXPECT_EQ(registrar_.bytes, limit_bytes) << "the other channel uses the same blocks";
}

TEST_F(Bounce, BlocksOfABurstAreReleasedAfterAWhile) {
  std::deque<BounceBuffer> channels;
  for (int i = 0; i < 4; ++i) channels.emplace_back(pool_);
  for (BounceBuffer& each : channels) ASSERT_EQ(fill(each), limit_bytes);
  for (BounceBuffer& each : channels) each.give_back_to(each.position());
  EXPECT_EQ(registrar_.bytes, 4 * limit_bytes) << "the next burst may follow at once";
  EXPECT_EQ(pool_.next_rest(), now_ + BouncePool::rest_ns);
  pool_.rest(now_ + BouncePool::rest_ns - 1);
  EXPECT_EQ(registrar_.bytes, 4 * limit_bytes);
  pool_.rest(now_ + BouncePool::rest_ns);
  EXPECT_EQ(registrar_.bytes, BouncePool::kept_max * block_bytes);
  EXPECT_EQ(pool_.next_rest(), never);
}

TEST_F(Bounce, AStuckChannelHoldsItsOwnBlocksAlone) {
  BounceBuffer stuck(pool_), other(pool_);
  ASSERT_EQ(fill(stuck), limit_bytes);
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(fill(other), limit_bytes);
    other.give_back_to(other.position());
  }
}

TEST_F(Bounce, PiecesLieWithinABlockAndDoNotOverlap) {
  BounceBuffer buffer(pool_);
  std::deque<std::pair<std::byte*, std::uint64_t>> held;
  std::deque<std::uint64_t> positions;
  std::uint64_t random = 1;
  for (int round = 0; round < 20'000; ++round) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t length = (random >> 33) % (round % 7 == 0 ? block_bytes : 3000) + 1;
    const auto piece = buffer.take(length, now_);
    if (!piece || (round % 5 == 0 && !held.empty())) {
      ASSERT_FALSE(held.empty()) << "no room in an empty buffer";
      buffer.give_back_to(positions.front());
      positions.pop_front();
      held.pop_front();
      if (!piece) continue;
    }
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(piece->memory) % 8, 0u);
    for (const auto& [memory, bytes] : held)
      ASSERT_TRUE(piece->memory + length <= memory || memory + bytes <= piece->memory) << "round " << round;
    piece->memory[0] = piece->memory[length - 1] = std::byte{1};
    held.emplace_back(piece->memory, length);
    positions.push_back(buffer.position());
  }
  buffer.give_back_to(buffer.position());
  EXPECT_EQ(buffer.blocks(), 0u);
}

TEST_F(Bounce, WithoutMemoryAChannelGoesOnInTheBlocksThatThereAre) {
  ASSERT_TRUE(pool_.prepare(now_));
  registrar_.bytes_max = block_bytes;
  BounceBuffer one(pool_), other(pool_);
  EXPECT_EQ(fill(one), block_bytes);
  EXPECT_EQ(one.refused(), nullptr);
  EXPECT_FALSE(other.take(64, now_));
  ASSERT_NE(other.refused(), nullptr) << "nothing of its own will make room";
  EXPECT_EQ(other.refused()->code, Error::no_memory);
  one.give_back_to(one.position());
  EXPECT_TRUE(other.take(64, now_));
  EXPECT_EQ(other.refused(), nullptr);
}

TEST_F(Bounce, BlocksOfACardThatStoppedAreNotUsedAgain) {
  BounceBuffer stopped(pool_);
  ASSERT_EQ(fill(stopped), limit_bytes);
  stopped.drop();
  EXPECT_EQ(registrar_.bytes, 0u);
  EXPECT_EQ(registrar_.made, BounceBuffer::blocks_max);
  EXPECT_TRUE(stopped.take(64, now_));
  EXPECT_EQ(registrar_.made, BounceBuffer::blocks_max + 1);
}

}  // namespace
}  // namespace offpath::link
