// liboffpath_openssl.so.0, which crypto_loaded.cc loads. `ofp_crypto` is its only exported symbol.
#include "link/control/crypto.h"
#include "link/control/openssl_crypto.h"

extern "C" __attribute__((visibility("default"))) const offpath::link::Crypto ofp_crypto =
    offpath::link::openssl_crypto;
