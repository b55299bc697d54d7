#include "telemetry/sampler_datagram.h"

#include <algorithm>

#include "base/hash/siphash.h"
#include "telemetry/host_sampler/sha256.h"

namespace offpath::exchange {

namespace {

constexpr std::size_t key_bytes_min = 16, key_bytes_max = 4096;

bool is_kind_of_answer(std::uint8_t kind) noexcept { return kind >= OFS_CHUNK && kind <= OFS_TOO_LONG; }

}  // namespace

Result<SamplerKey> sampler_key(Bytes file) {
  if (file.size() < key_bytes_min || file.size() > key_bytes_max)
    return fail(Error::invalid, "a sampler's key of {} bytes, {} to {} are allowed", file.size(), key_bytes_min,
                key_bytes_max);
  SamplerKey key{};
  ofs_datagram_key(file.data(), file.size(), key.data());
  return key;
}

SamplerRequest encode_request(const RequestFields& fields, const SamplerKey& key) {
  ofs_header header{};
  header.magic = OFS_MAGIC;
  header.kind = static_cast<std::uint8_t>(fields.kind);
  header.session = fields.session;
  header.number = fields.number;
  header.token = fields.token;
  header.schema = fields.schema;
  header.offset = fields.offset;
  header.size = fields.answer_bytes_max;
  SamplerRequest request;
  store(request.data(), header);
  ofp_siphash128(key.data(), request.data(), OFS_HEADER_BYTES,
                 reinterpret_cast<std::uint8_t*>(request.data()) + OFS_HEADER_BYTES);
  return request;
}

Result<SamplerAnswer> decode_answer(Bytes datagram, const SamplerKey& key) {
  if (datagram.size() < OFS_HEADER_BYTES + OFS_TAG_BYTES || datagram.size() > OFS_DATAGRAM_MAX)
    return fail(Error::denied, "{} bytes are not a sampler's datagram", datagram.size());
  const Bytes signed_bytes = datagram.first(datagram.size() - OFS_TAG_BYTES), tag = datagram.last(OFS_TAG_BYTES);
  std::array<std::uint8_t, OFS_TAG_BYTES> own{};
  ofp_siphash128(key.data(), signed_bytes.data(), signed_bytes.size(), own.data());
  unsigned different = 0;
  for (std::size_t i = 0; i < own.size(); ++i) different |= own[i] ^ std::to_integer<unsigned>(tag[i]);
  if (different != 0)
    return fail(Error::denied, "a datagram with a wrong tag: it has another key, or an unknown sender");
  SamplerAnswer answer{load<ofs_header>(datagram.data()), signed_bytes.subspan(OFS_HEADER_BYTES)};
  if (answer.header.magic != OFS_MAGIC || !is_kind_of_answer(answer.header.kind))
    return fail(Error::protocol, "a datagram with magic {:08x} and kind {:#x} is not an answer", answer.header.magic,
                answer.header.kind);
  return answer;
}

Result<ofs_values> decode_values(Bytes payload, Values& into) {
  if (payload.size() < OFS_VALUES_BYTES) return fail(Error::protocol, "values in {} bytes", payload.size());
  const auto values = load<ofs_values>(payload.data());
  if (values.count != into.size())
    return fail(Error::protocol, "{} values, but the schema has {}", values.count, into.size());
  const std::size_t presence_bytes = bitmap_bytes(into.size());
  const Bytes rest = payload.subspan(OFS_VALUES_BYTES);
  if (rest.size() < presence_bytes) return fail(Error::protocol, "{} values in {} bytes", values.count, payload.size());
  const Bytes presence = rest.first(presence_bytes);
  std::size_t present = 0;
  for (const std::byte byte : presence)
    present += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(byte)));
  const bool beyond = into.size() % 8 != 0 && std::to_integer<unsigned>(presence.back()) >> into.size() % 8 != 0;
  if (beyond || rest.size() != presence_bytes + 8 * present)
    return fail(Error::protocol, "{} of {} values are marked as present, in {} bytes", present, values.count,
                payload.size());
  const std::byte* at = rest.data() + presence_bytes;
  for (std::size_t i = 0; i < into.size(); ++i) {
    if ((std::to_integer<unsigned>(presence[i / 8]) >> i % 8 & 1) == 0) {
      into.set_missing(i);
      continue;
    }
    into.set_bits(i, load<std::uint64_t>(at));
    at += 8;
  }
  return values;
}

}  // namespace offpath::exchange
