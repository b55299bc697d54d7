#include "telemetry/host_sampler/sha256.h"

#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

static void compress(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t v[8];
  memcpy(v, state, sizeof v);
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
    const uint32_t one = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants[i] + w[i];
    const uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
    const uint32_t two = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof v[0]);
    v[4] += one;
    v[0] = one + two;
  }
  for (int i = 0; i < 8; ++i) state[i] += v[i];
}

void ofs_sha256_begin(struct ofs_sha256* hash) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(hash->state, first, sizeof first);
  hash->length = 0;
}

void ofs_sha256_add(struct ofs_sha256* hash, const void* bytes, size_t length) {
  const uint8_t* from = (const uint8_t*)bytes;
  for (size_t i = 0; i < length; ++i) {
    hash->block[hash->length++ % 64] = from[i];
    if (hash->length % 64 == 0) compress(hash->state, hash->block);
  }
}

void ofs_sha256_end(struct ofs_sha256* hash, uint8_t digest[32]) {
  const uint64_t bits = hash->length * 8;
  const uint8_t one = 0x80, zero = 0;
  ofs_sha256_add(hash, &one, 1);
  while (hash->length % 64 != 56) ofs_sha256_add(hash, &zero, 1);
  for (int i = 7; i >= 0; --i) {
    const uint8_t byte = (uint8_t)(bits >> (8 * i));
    ofs_sha256_add(hash, &byte, 1);
  }
  for (int i = 0; i < 32; ++i) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void ofs_datagram_key(const void* file, size_t length, uint8_t key[16]) {
  static const char label[] = "offpath sampler key 1";
  struct ofs_sha256 hash;
  uint8_t digest[32];
  ofs_sha256_begin(&hash);
  ofs_sha256_add(&hash, label, sizeof label - 1);
  ofs_sha256_add(&hash, file, length);
  ofs_sha256_end(&hash, digest);
  memcpy(key, digest, 16);
}
