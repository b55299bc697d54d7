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
  const std::uint64_t ports = std::uint64_t{flow.local.port} << 16 | flow.remote.port;
  if (flow.remote.address.is_v4()) {
    const std::array<std::uint64_t, 3> words{std::uint64_t{flow.local.address.v4()} << 32 | flow.remote.address.v4(),
                                             ports, number};
    return keyed_hash(key, std::as_bytes(std::span(words)));
  }
  const auto local = flow.local.address.halves(), remote = flow.remote.address.halves();
  const std::array<std::uint64_t, 6> words{local[0], local[1], remote[0], remote[1], ports, number};
  return keyed_hash(key, std::as_bytes(std::span(words)));
}

}  // namespace offpath::tcp
