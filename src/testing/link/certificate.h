// For tests: a self-signed certificate, which is its own authority, and its key.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <sys/stat.h>

#include <cstdio>
#include <string>

#include "base/status.h"

namespace offpath::link {

// Whether a client that knows TLS 1.2 and nothing later comes to a session; the socket blocks.
inline bool accepts_tls_1_2(int socket) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  OFP_ASSERT(context != nullptr && SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION) == 1);
  SSL* session = SSL_new(context);
  OFP_ASSERT(session != nullptr && SSL_set_fd(session, socket) == 1);
  const bool accepted = SSL_connect(session) == 1;
  SSL_free(session);
  SSL_CTX_free(context);
  return accepted;
}

// `names` as OpenSSL writes alternative names: "IP:127.0.0.1,DNS:localhost". Valid from and until so many seconds from
// now.
inline void write_test_certificate(const std::string& certificate_file, const std::string& key_file,
                                   const std::string& names, long from_s = -3600, long until_s = 3600) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  OFP_ASSERT(key != nullptr && certificate != nullptr);
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), from_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate), until_s);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("offpath test"), -1, -1,
                             0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
  OFP_ASSERT(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  OFP_ASSERT(X509_sign(certificate, key, EVP_sha256()) > 0);
  FILE* file = std::fopen(certificate_file.c_str(), "w");
  OFP_ASSERT(file != nullptr && PEM_write_X509(file, certificate) == 1);
  std::fclose(file);
  file = std::fopen(key_file.c_str(), "w");
  OFP_ASSERT(file != nullptr && fchmod(fileno(file), 0600) == 0 &&
             PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace offpath::link
