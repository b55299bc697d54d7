// The interface to everything that needs OpenSSL. It has two implementations, and a program is linked with one of them:
//
//   crypto_linked.cc   OpenSSL is linked: the agent, tests
//   crypto_loaded.cc   liboffpath_openssl.so.0, beside liboffpath.so, is loaded when the first network address is used:
//                      the host library, so that a program beside its agent does not carry 1.7 MiB it never needs
//
// src/link/CMakeLists.txt decides which one. Both use openssl_crypto.cc and openssl_tls.cc.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "link/control/tls.h"
#include "wire/control.h"

namespace offpath::link {

// A table of functions, because the module exports one. C++ types cross that border, which is safe only between files
// of the same version: the loader compares `version` first.
struct Crypto {
  const char* version;
  Result<wire::Proof> (*hmac_sha256)(Bytes key, Bytes message);  // RFC 2104
  Result<std::unique_ptr<TlsContext>> (*tls_for_agent)(const std::string& certificate_file,
                                                       const std::string& key_file);
  Result<std::unique_ptr<TlsContext>> (*tls_for_host)(const std::string& ca_file);
};

// Valid until the process ends. Fails if OpenSSL has to be loaded and cannot be. Any thread.
[[nodiscard]] Result<const Crypto*> crypto();

}  // namespace offpath::link
