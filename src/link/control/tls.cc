#include "link/control/tls.h"

#include "link/control/authentication.h"
#include "link/control/crypto.h"

namespace offpath::link {

Result<std::unique_ptr<TlsContext>> TlsContext::for_agent(const std::string& certificate_file,
                                                          const std::string& key_file) {
  OFP_ASSIGN(const Crypto* found, crypto());
  OFP_TRY(open_key_file(key_file, "TLS key file"));  // only checks it: OpenSSL takes the path
  return found->tls_for_agent(certificate_file, key_file);
}

Result<std::unique_ptr<TlsContext>> TlsContext::for_host(const std::string& ca_file) {
  OFP_ASSIGN(const Crypto* found, crypto());
  return found->tls_for_host(ca_file);
}

}  // namespace offpath::link
