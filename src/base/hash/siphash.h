// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), with 64 and with 128 bits of output.
// With a secret key it authenticates samplers' datagrams and makes values that outsiders cannot predict; with a known
// key it names schemas. Plain C, for the sampler on the host and the agent.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t ofp_siphash64(const uint8_t key[16], const void* bytes, size_t length);
void ofp_siphash128(const uint8_t key[16], const void* bytes, size_t length, uint8_t tag[16]);

#ifdef __cplusplus
}
#endif
