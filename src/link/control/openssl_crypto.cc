#include "link/control/openssl_crypto.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace offpath::link {

wire::Proof openssl_hmac_sha256(Bytes key, Bytes message) {
  wire::Proof proof{};
  unsigned length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                   reinterpret_cast<unsigned char*>(proof.data()), &length);
  OFP_ASSERT(made != nullptr && length == proof.size());
  return proof;
}

}  // namespace offpath::link
