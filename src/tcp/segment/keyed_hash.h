// SipHash-2-4 (Aumasson and Bernstein, 2012): a hash that cannot be predicted without its key. Used for the flow table,
// initial sequence numbers (RFC 6528), timestamps and SYN cookies, each with a key of its own.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

struct HashKey {
  std::uint64_t first = 0, second = 0;
};

[[nodiscard]] std::uint64_t keyed_hash(const HashKey& key, Bytes bytes) noexcept;
// Hashes a connection's four numbers and one more value.
[[nodiscard]] std::uint64_t keyed_hash(const HashKey& key, const FlowKey& flow, std::uint64_t number = 0) noexcept;

}  // namespace offpath::tcp
