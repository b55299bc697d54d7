#include "link/crypto.h"
#include "link/openssl_crypto.h"

namespace offpath::link {

Result<const Crypto*> crypto() { return &openssl_crypto; }

}  // namespace offpath::link
