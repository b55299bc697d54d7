// The datagrams between an agent and the sampler on a host: one request, at most one answer. Little endian.
//
//   0    u32  "OFS1"
//   4    u8   kind         requests: 1 describe, 2 sample. Answers: 0x81 chunk, 0x82 values, 0x83 token, 0x84 schema,
//                          0x85 too_long
//   5    u8[3]             0
//   8    u64  session      random number of the agent's process
//   16   u64  number       of the request, from 1, and a new one for each attempt. An answer has its request's
//   24   u64  token        from the sampler: shows that a request was not recorded earlier and sent again
//   32   u64  schema       requests: the schema of the wanted values. Answers: the current one
//   40   u32  offset       describe, chunk: first byte of the part of the schema
//   44   u32  size         requests: largest size of the answer. chunk: size of the whole schema. too_long: needed size
//   48        payload
//   end - 16               SipHash-2-4-128 over everything before
//
// Payload of a chunk: bytes of the schema as exchange::encode writes them. Payload of values:
//
//   48   u64  sequence     counts this sampler's samples
//   56   i64  received     time of the request's arrival; this and the next two by the host's CLOCK_REALTIME, in ns
//   64   i64  read         time at which the last value was read
//   72   i64  sent         time of the answer
//   80   u64  cpu_ns       processor time of the sampler's process so far
//   88   u64  refused      datagrams that were not answered so far
//   96   u32  resident_kb  memory of the sampler's process
//   100  u32  count        of values; then presence, one bit for each, the lowest of the first byte for the first one;
//                          then the present values, 8 bytes each
//
// A stranger gets no answer, because its tags are wrong without the key. A recorded request that is sent again gets
// none either: each number of a session is answered once, and tokens show which sessions are current. The answer to a
// request without a token is a token, and no longer than the request; other answers are at most the request's `size`.
//
// Read this first in src/telemetry/host_sampler, then answer.h, sources.h and pattern.h (the values), command.h and
// configuration.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
  OFS_MAGIC = 0x3153464f,
  OFS_HEADER_BYTES = 48,
  OFS_TAG_BYTES = 16,
  OFS_VALUES_BYTES = 56,  // of a values' payload before presence
  OFS_DATAGRAM_MAX = 65507
};

enum ofs_datagram_kind {
  OFS_DESCRIBE = 1,
  OFS_SAMPLE = 2,
  OFS_CHUNK = 0x81,
  OFS_VALUES = 0x82,
  OFS_TOKEN = 0x83,
  OFS_OTHER_SCHEMA = 0x84,
  OFS_TOO_LONG = 0x85
};

struct ofs_header {
  uint32_t magic;
  uint8_t kind, zero[3];
  uint64_t session, number, token, schema;
  uint32_t offset, size;
};

struct ofs_values {
  uint64_t sequence;
  int64_t received_ns, read_ns, sent_ns;
  uint64_t cpu_ns, refused;
  uint32_t resident_kb, count;
};

#ifdef __cplusplus
static_assert(sizeof(ofs_header) == OFS_HEADER_BYTES && sizeof(ofs_values) == OFS_VALUES_BYTES, "the layout above");
#else
_Static_assert(sizeof(struct ofs_header) == OFS_HEADER_BYTES && sizeof(struct ofs_values) == OFS_VALUES_BYTES,
               "the layout above");
#endif
