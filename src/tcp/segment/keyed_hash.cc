#include "tcp/segment/keyed_hash.h"

#include <array>
#include <bit>

#include "base/hash/siphash.h"

namespace offpath::tcp {
namespace {

using KeyBytes = std::array<std::uint8_t, sizeof(HashKey)>;

}  // namespace

std::uint64_t keyed_hash(const HashKey& key, Bytes bytes) noexcept {
  return ofp_siphash64(std::bit_cast<KeyBytes>(key).data(), bytes.data(), bytes.size());
}

std::uint64_t keyed_hash(const HashKey& key, const FlowKey& flow, std::uint64_t number) noexcept {
  const std::array<std::uint64_t, 3> words{
      std::uint64_t{flow.local.address.value} << 32 | flow.remote.address.value,
      std::uint64_t{flow.local.port} << 16 | flow.remote.port,
      number,
  };
  return keyed_hash(key, std::as_bytes(std::span(words)));
}

}  // namespace offpath::tcp
