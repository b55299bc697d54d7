#include "link/control/crypto.h"
#include "link/control/openssl_crypto.h"

namespace offpath::link {

Result<const Crypto*> crypto() { return &openssl_crypto; }

}  // namespace offpath::link
