// The carriers of one process: loopback, and channels, whose requests go from one member's carrier to the other's
// reader here.
#include <gtest/gtest.h>

#include <deque>

#include <fmt/format.h>

#include "exchange/channel_carrier.h"
#include "exchange_carrier_suite.h"
#include "testing/exchange/loopback_carrier.h"

namespace offpath::conformance {
namespace {

using namespace exchange;

class OfOneProcess : public CarrierMembers {
 public:
  explicit OfOneProcess(std::size_t count) {
    for (MemberIndex i = 0; i < count; ++i) here_.push_back(i);
  }
  [[nodiscard]] std::size_t size() const override { return here_.size(); }
  [[nodiscard]] const std::vector<MemberIndex>& here() const override { return here_; }
  [[nodiscard]] TimeNs now() const override { return now_; }
  void pause() override { now_ += 100 * microsecond_ns; }
  void meet_after(const std::function<void()>&) override {}
  void meet() override {}

 private:
  std::vector<MemberIndex> here_;
  TimeNs now_ = second_ns;
};

class OverLoopback final : public OfOneProcess {
 public:
  explicit OverLoopback(std::size_t count) : OfOneProcess(count), fabric_(count, 1) {
    for (MemberIndex i = 0; i < count; ++i) carriers_.emplace_back(fabric_, i);
  }
  [[nodiscard]] Carrier& carrier(MemberIndex member) override { return carriers_[member]; }

 private:
  LoopbackFabric fabric_;
  std::deque<LoopbackCarrier> carriers_;
};

// Requests as Reach would carry them: composed with the memory they name, pulled by the reader, answered.
class OverChannels final : public OfOneProcess {
 public:
  explicit OverChannels(std::size_t count) : OfOneProcess(count) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("m{}", i));
    for (MemberIndex i = 0; i < count; ++i) {
      members_.emplace_back();
      members_[i].carrier =
          std::make_unique<ChannelCarrier>(tag, names, [this, i](const std::string& member, group::Request request) {
            posted_.push_back({i, static_cast<MemberIndex>(std::stoul(member.substr(1))), std::move(request)});
          });
      members_[i].reader = std::make_unique<ParcelReader>(
          [](std::uint64_t of) { return of == tag ? std::uint64_t{64} << 20 : 0; },
          [this, i](std::uint64_t, SharedBytes parcel) { members_[i].carrier->deliver(std::move(parcel)); });
    }
  }
  [[nodiscard]] Carrier& carrier(MemberIndex member) override { return *members_[member].carrier; }
  void pause() override {
    OfOneProcess::pause();
    for (std::size_t i = 0; i < 64 && !posted_.empty(); ++i) {
      Posted posted = std::move(posted_.front());
      posted_.pop_front();
      carry(posted);
    }
  }

 private:
  static constexpr std::uint64_t tag = 4711;
  struct Posted {
    MemberIndex from, to;
    group::Request request;
  };
  struct Member {
    std::unique_ptr<ChannelCarrier> carrier;
    std::unique_ptr<ParcelReader> reader;
  };
  void carry(Posted& posted) {
    const Bytes memory = posted.request.body.empty() ? posted.request.object : Bytes(posted.request.body);
    group::Named named;
    named.bytes.length = memory.size();
    std::vector<std::byte> payload;
    posted.request.compose(named, payload);
    channel::Entry entry;
    entry.ticket = ++tickets_;
    entry.kind = static_cast<std::uint8_t>(posted.request.kind);
    entry.payload = payload;
    ParcelReader& reader = *members_[posted.to].reader;
    service::Effects effects;
    reader.on_request(posted.from, entry, true, ++tickets_, effects);
    std::size_t answers = 0;
    for (std::size_t i = 0; i < effects.size(); ++i) {
      answers += std::holds_alternative<service::ReplyEffect>(effects[i]) ? 1 : 0;
      if (const auto* const failed = std::get_if<service::FailEffect>(&effects[i]))
        ADD_FAILURE() << failed->failure.message;
      const auto* const pull = std::get_if<service::PullEffect>(&effects[i]);
      if (pull == nullptr) continue;
      const link::ReadPiece piece = pull->pieces.at(0);
      ASSERT_LE(piece.offset + piece.length, memory.size());
      std::memcpy(piece.to, memory.data() + piece.offset, piece.length);
      EXPECT_TRUE(reader.on_transfer(pull->token, {}, effects));
    }
    ASSERT_EQ(answers, 1u);
    posted.request.answer(group::Answer{}, now());
  }
  std::deque<Member> members_;
  std::deque<Posted> posted_;
  std::uint64_t tickets_ = 0;
};

template <class Members>
class CarrierConformance : public testing::Test {};
using Kinds = testing::Types<OverLoopback, OverChannels>;
TYPED_TEST_SUITE(CarrierConformance, Kinds);

TYPED_TEST(CarrierConformance, ParcelsArriveWhole) {
  for (const std::uint64_t bytes :
       {100ull, 4096ull, 4097ull, 65536ull, 70000ull, 1ull << 20, (1ull << 20) + 1, 5000000ull}) {
    TypeParam members(3);
    EXPECT_EQ(parcels_arrive_whole(members, bytes), "");
  }
}

TYPED_TEST(CarrierConformance, ParcelsSentWhileTakingArriveWhole) {
  for (const std::uint64_t bytes : {100ull, 4096ull, 100000ull}) {
    TypeParam members(3);
    EXPECT_EQ(parcels_sent_while_taking_arrive_whole(members, bytes), "");
  }
}

TYPED_TEST(CarrierConformance, ViewsBecomeComplete) {
  for (const std::size_t count : {1, 2, 3, 9, 16})
    for (const char* shape : {"allgather", "neighbourhoods(2)", "grouped_allgather(2)", "hybrid(2, 3)"})
      for (const bool variable : {false, true}) {
        TypeParam members(count);
        EXPECT_EQ(views_become_complete(members, shape, 48, variable), "");
      }
  for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{65536}, record_bytes_max}) {
    TypeParam members(3);
    EXPECT_EQ(views_become_complete(members, "neighbourhoods(2)", bytes, false), "");
  }
}

TYPED_TEST(CarrierConformance, AStoppedMemberIsSurvived) {
  for (const char* shape : {"allgather", "neighbourhoods(2)", "grouped_allgather(2)", "hybrid(2, 3)"}) {
    TypeParam members(5);
    EXPECT_EQ(a_stopped_member_is_survived(members, shape), "");
  }
}

}  // namespace
}  // namespace offpath::conformance
