#include "base/hash/siphash.h"

#include <string.h>

static uint64_t rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

struct state {
  uint64_t v0, v1, v2, v3;
};

static void round_of(struct state* s) {
  s->v0 += s->v1;
  s->v1 = rotate(s->v1, 13) ^ s->v0;
  s->v0 = rotate(s->v0, 32);
  s->v2 += s->v3;
  s->v3 = rotate(s->v3, 16) ^ s->v2;
  s->v0 += s->v3;
  s->v3 = rotate(s->v3, 21) ^ s->v0;
  s->v2 += s->v1;
  s->v1 = rotate(s->v1, 17) ^ s->v2;
  s->v2 = rotate(s->v2, 32);
}

static uint64_t load(const uint8_t* from, size_t length) {
  uint64_t word = 0;                            // little endian, like every machine that Offpath supports
  if (length > 0) memcpy(&word, from, length);  // `from` may be null then
  return word;
}

static struct state absorb(const uint8_t key[16], const uint8_t* bytes, size_t length, uint64_t wide) {
  const uint64_t k0 = load(key, 8), k1 = load(key + 8, 8);
  struct state s = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ wide, k0 ^ 0x6c7967656e657261u,
                    k1 ^ 0x7465646279746573u};
  const uint64_t last = (uint64_t)length << 56;
  for (; length >= 8; bytes += 8, length -= 8) {
    const uint64_t word = load(bytes, 8);
    s.v3 ^= word;
    round_of(&s);
    round_of(&s);
    s.v0 ^= word;
  }
  const uint64_t word = last | load(bytes, length);
  s.v3 ^= word;
  round_of(&s);
  round_of(&s);
  s.v0 ^= word;
  return s;
}

static uint64_t squeeze(struct state* s) {
  for (int i = 0; i < 4; ++i) round_of(s);
  return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

uint64_t ofp_siphash64(const uint8_t key[16], const void* bytes, size_t length) {
  struct state s = absorb(key, (const uint8_t*)bytes, length, 0);
  s.v2 ^= 0xff;
  return squeeze(&s);
}

void ofp_siphash128(const uint8_t key[16], const void* bytes, size_t length, uint8_t tag[16]) {
  struct state s = absorb(key, (const uint8_t*)bytes, length, 0xee);
  s.v2 ^= 0xee;
  uint64_t half = squeeze(&s);
  memcpy(tag, &half, 8);
  s.v1 ^= 0xdd;
  half = squeeze(&s);
  memcpy(tag + 8, &half, 8);
}
