// The agent's side of the datagrams that host_sampler/datagram.h draws: writing requests, and answers checked before
// they are used.
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
// From the contents of a key file: 16 to 4096 bytes.
[[nodiscard]] Result<SamplerKey> sampler_key(Bytes file);

using SamplerRequest = std::array<std::byte, OFS_HEADER_BYTES + OFS_TAG_BYTES>;
struct RequestFields {
  ofs_datagram_kind kind;
  std::uint64_t session, number, token;
  SchemaId schema;
  std::uint32_t offset, answer_bytes_max;
};
[[nodiscard]] SamplerRequest encode_request(const RequestFields& fields, const SamplerKey& key);

// An answer with a right tag. `payload` lies in the datagram.
struct SamplerAnswer {
  ofs_header header;
  Bytes payload;
};
// Error::denied: the tag is wrong, so the sender is unknown. Error::protocol: the tag is right, and the bytes are
// invalid.
[[nodiscard]] Result<SamplerAnswer> decode_answer(Bytes datagram, const SamplerKey& key);
// Fills values of as many fields as `into` has.
[[nodiscard]] Result<ofs_values> decode_values(Bytes payload, Values& into);

}  // namespace offpath::exchange
