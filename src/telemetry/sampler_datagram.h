// The agent's side of the datagrams in host_sampler/datagram.h: writes requests, and checks answers before they are
// used.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "telemetry/host_sampler/datagram.h"
#include "telemetry/sample.h"

namespace offpath::exchange {

using SamplerKey = std::array<std::uint8_t, 16>;
// Makes the key from the contents of a key file: 16 to 4096 bytes.
[[nodiscard]] Result<SamplerKey> sampler_key(Bytes file);

using SamplerRequest = std::array<std::byte, OFS_HEADER_BYTES + OFS_TAG_BYTES>;
struct RequestFields {
  ofs_datagram_kind kind;
  std::uint64_t session, number, token;
  SchemaId schema;
  std::uint32_t offset, answer_bytes_max;
};
[[nodiscard]] SamplerRequest encode_request(const RequestFields& fields, const SamplerKey& key);

// An answer with a right tag. `payload` points into the datagram.
struct SamplerAnswer {
  ofs_header header;
  Bytes payload;
};
// Error::denied: the tag is wrong, so the sender is unknown. Error::protocol: the tag is right, but the bytes are
// invalid.
[[nodiscard]] Result<SamplerAnswer> decode_answer(Bytes datagram, const SamplerKey& key);
// Fills `into`, which has as many values as the schema has fields.
[[nodiscard]] Result<ofs_values> decode_values(Bytes payload, Values& into);

}  // namespace offpath::exchange
