#include "base/module/module.h"
#include "link/control/crypto.h"

namespace offpath::link {

Result<const Crypto*> crypto() {
  constexpr Module module{OFFPATH_OPENSSL_MODULE, "", OFFPATH_VERSION, "tcp and tls addresses need OpenSSL",
                          "liboffpath.so"};
  return load_table<Crypto>(module, "ofp_crypto");
}

}  // namespace offpath::link
