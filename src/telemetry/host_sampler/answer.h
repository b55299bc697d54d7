// The sampler's answer to a datagram: bytes in, bytes out, and the time as an argument. It knows no socket, so that
// answer_fuzz can try any bytes.
#pragma once

#include <stdbool.h>

#include "telemetry/host_sampler/datagram.h"
#include "telemetry/host_sampler/sources.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OFS_SESSIONS = 32 };

struct ofs_session {
  uint64_t session, highest, window;  // window: bit n is number highest - n
  int64_t heard_ns;
};

struct ofs_answerer {
  struct ofs_sources* sources;
  uint8_t key[16], token_key[16];  // token_key: random, of this process
  const uint8_t* schema;
  uint32_t schema_length;
  uint64_t schema_id;
  uint64_t sequence, answered, refused;
  uint64_t cpu_ns;  // sent with values; the program sets them
  uint32_t resident_kb;
  struct ofs_session sessions[OFS_SESSIONS];
};

// Returns the answer's length, 0 if there is none. `now_ns` is monotonic; `real_ns` reads CLOCK_REALTIME, and
// `received_ns` is its value when the request arrived. `to` has OFS_DATAGRAM_MAX bytes.
size_t ofs_answer(struct ofs_answerer* answerer, const uint8_t* request, size_t length, int64_t now_ns,
                  int64_t received_ns, int64_t (*real_ns)(void), uint8_t* to);

#ifdef __cplusplus
}
#endif
