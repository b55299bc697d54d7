#include "telemetry/host_sampler/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace offpath::exchange {
namespace {

std::string digest_of(const std::string& text) {
  ofs_sha256 hash;
  std::uint8_t digest[32];
  ofs_sha256_begin(&hash);
  ofs_sha256_add(&hash, text.data(), text.size() / 2);
  ofs_sha256_add(&hash, text.data() + text.size() / 2, text.size() - text.size() / 2);
  ofs_sha256_end(&hash, digest);
  std::string hex;
  for (const std::uint8_t byte : digest) {
    constexpr const char* digits = "0123456789abcdef";
    hex += {digits[byte >> 4], digits[byte & 15]};
  }
  return hex;
}

// FIPS 180-2, appendix B, and the hash of no bytes.
TEST(Sha256, AgreesWithThePublishedVectors) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace offpath::exchange
