// Implements link/control/crypto.h with OpenSSL.
#pragma once

#include "link/control/crypto.h"

namespace offpath::link {

[[nodiscard]] Result<std::unique_ptr<TlsContext>> openssl_tls_for_agent(const std::string& certificate_file,
                                                                        const std::string& key_file);
[[nodiscard]] Result<std::unique_ptr<TlsContext>> openssl_tls_for_host(const std::string& ca_file);
[[nodiscard]] Result<wire::Proof> openssl_hmac_sha256(Bytes key, Bytes message);

inline constexpr Crypto openssl_crypto{OFFPATH_VERSION, openssl_hmac_sha256, openssl_tls_for_agent,
                                       openssl_tls_for_host};

}  // namespace offpath::link
