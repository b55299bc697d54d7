#include "link/control/openssl_crypto.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace offpath::link {

Result<wire::Proof> openssl_hmac_sha256(Bytes key, Bytes message) {
  wire::Proof proof{};
  unsigned length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                   reinterpret_cast<unsigned char*>(proof.data()), &length);
  if (made == nullptr || length != proof.size()) return fail(Error::no_memory, "HMAC: OpenSSL made {} bytes", length);
  return proof;
}

}  // namespace offpath::link
