// The values of the keys flight.*.
#pragma once

#include <string>

#include "link/address.h"

namespace offpath::agent {

struct FlightSettings {
  link::Address listen;  // tcp or tls
  std::string token_file, tls_certificate_file, tls_key_file;
  unsigned queries_max = 2;
};

}  // namespace offpath::agent
