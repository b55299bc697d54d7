// SHA-256 (FIPS 180-4), to make the key of datagrams from the bytes of a key file.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ofs_sha256 {
  uint32_t state[8];
  uint64_t length;
  uint8_t block[64];
};
void ofs_sha256_begin(struct ofs_sha256* hash);
void ofs_sha256_add(struct ofs_sha256* hash, const void* bytes, size_t length);
void ofs_sha256_end(struct ofs_sha256* hash, uint8_t digest[32]);

// The key of datagrams: the first half of SHA-256("offpath sampler key 1" and the file's bytes), so that it differs
// from other keys made from the same file.
void ofs_datagram_key(const void* file, size_t length, uint8_t key[16]);

#ifdef __cplusplus
}
#endif
