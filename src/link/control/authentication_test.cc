#include "link/control/authentication.h"

#include <gtest/gtest.h>

#include "testing/link/connected_pair.h"

namespace offpath::link {
namespace {

class KeyFile : public testing::Test {
 protected:
  std::string write(std::string_view content, mode_t mode) { return directory.write("key", content, mode); }
  TestDirectory directory;
};

TEST_F(KeyFile, OneNewlineAtItsEndIsNotPartOfTheKey) {
  const auto with = SharedKey::load(write("0123456789abcdef\n", 0600));
  const auto without = SharedKey::load(write("0123456789abcdef", 0400));
  ASSERT_TRUE(with && without);
  const wire::Nonce nonce{};
  EXPECT_EQ(with->prove(SharedKey::Side::host, nonce, nonce, {}, {}).value(),
            without->prove(SharedKey::Side::host, nonce, nonce, {}, {}).value());
}

TEST_F(KeyFile, RefusesWhatOthersMayUseAndWhatIsTooShort) {
  for (const mode_t mode : {0640u, 0604u, 0620u}) {
    const auto key = SharedKey::load(write("0123456789abcdef", mode));
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code, Error::denied);
    EXPECT_NE(key.error().message.find(fmt::format("its mode is {:03o}", mode)), std::string::npos)
        << key.error().message;
  }
  const auto key = SharedKey::load(write("0123456789abcde\n", 0600));
  ASSERT_FALSE(key);
  EXPECT_NE(key.error().message.find("the key has 15 bytes, it needs from 16 to 4096"), std::string::npos)
      << key.error().message;
  EXPECT_EQ(SharedKey::load(write(std::string(5000, 'x'), 0600)).error().code, Error::invalid);
  EXPECT_EQ(SharedKey::load(directory.path() + "/nothing").error().code, Error::not_found);
  EXPECT_EQ(SharedKey::load(directory.path()).error().code, Error::invalid);
}

TEST(SharedKeys, EverythingInAProofCounts) {
  const auto key = SharedKey::from_bytes(bytes_of("0123456789abcdef"));
  const auto other = SharedKey::from_bytes(bytes_of("0123456789abcdeF"));
  const wire::Nonce a = random_nonce(), b = random_nonce();
  EXPECT_NE(a, b);
  const auto proof = key->prove(SharedKey::Side::host, a, b, bytes_of("tls"), bytes_of("hello")).value();
  EXPECT_EQ(proof, key->prove(SharedKey::Side::host, a, b, bytes_of("tls"), bytes_of("hello")).value());
  const wire::Proof others[] = {
      key->prove(SharedKey::Side::agent, a, b, bytes_of("tls"), bytes_of("hello")).value(),  // reflected to its sender
      key->prove(SharedKey::Side::host, b, a, bytes_of("tls"), bytes_of("hello")).value(),
      key->prove(SharedKey::Side::host, a, b, bytes_of("tl"), bytes_of("shello")).value(),
      key->prove(SharedKey::Side::host, a, b, bytes_of(""), bytes_of("hello")).value(),
      key->prove(SharedKey::Side::host, a, b, bytes_of("tls"), bytes_of("hell")).value(),
      other->prove(SharedKey::Side::host, a, b, bytes_of("tls"), bytes_of("hello")).value(),
  };
  for (const auto& different : others) EXPECT_NE(proof, different);
}

}  // namespace
}  // namespace offpath::link
