// A request to a member is answered once, and one that was forgotten not at all.
#include "pool/peers/member_requests.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

using wire::EntryKind;

class Requests : public ::testing::Test {
 protected:
  std::uint64_t ask(Asking asking) {
    return requests_.ask(
        std::move(asking), EntryKind::peer_list, 7 * second_ns, nullptr, 100,
        [](const service::AskedMemory&, std::vector<std::byte>& payload) { payload.push_back(std::byte{9}); },
        effects_);
  }
  const service::AskEffect& asked(std::size_t at) { return std::get<service::AskEffect>(effects_.at(at)); }

  Numbers numbers_;
  MemberRequests requests_{numbers_};
  Effects effects_;
};

TEST_F(Requests, TheEffectCarriesWhatIsAskedAndTheNoteComesBackWithTheAnswerOnce) {
  ask({Asking::Kind::gather, 41, "b"});
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_EQ(asked(0).member, "b");
  EXPECT_EQ(asked(0).deadline, 7 * second_ns);
  EXPECT_EQ(service::service_of(asked(0).token), service::ServiceId::peers);
  const auto note = requests_.take(asked(0).token);
  ASSERT_TRUE(note);
  EXPECT_EQ(note.mapped().kind, Asking::Kind::gather);
  EXPECT_EQ(note.mapped().number, 41u);
  EXPECT_FALSE(requests_.take(asked(0).token)) << "a second answer is nobody's";
  EXPECT_EQ(requests_.size(), 0u);
}

TEST_F(Requests, AnAnswerToAForgottenOneIsNotWanted) {
  const std::uint64_t first = ask({Asking::Kind::get, 1, "b"});
  const std::uint64_t second = ask({Asking::Kind::get, 2, "c"});
  EXPECT_NE(first, second);
  requests_.forget(first);
  EXPECT_FALSE(requests_.take(asked(0).token));
  EXPECT_TRUE(requests_.take(asked(1).token));
}

TEST_F(Requests, ACancellationNamesTheRequestAndHoldsItsChargeUntilItIsAnswered) {
  const auto accounts = std::make_shared<WaitAccounts>(WaitAccounts::Limits{1, 1, 1000});
  auto charge = WaitAccounts::charge(accounts, 1000, 10);
  ASSERT_TRUE(charge);
  requests_.cancel("b", wire::PeerCancel::What::get, 5, std::move(*charge), second_ns, effects_);
  EXPECT_FALSE(WaitAccounts::charge(accounts, 1000, 10)) << "it still counts";
  std::vector<std::byte> payload;
  asked(0).compose({}, payload);
  wire::PeerCancel said{};
  ASSERT_TRUE(wire::decode(payload, said));
  EXPECT_EQ(said.number, 5u);
  EXPECT_EQ(asked(0).kind, EntryKind::peer_cancel);
  (void)requests_.take(asked(0).token);
  EXPECT_TRUE(WaitAccounts::charge(accounts, 1000, 10));
}

}  // namespace
}  // namespace offpath::pool
