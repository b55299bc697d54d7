#include "telemetry/host_sampler/number.h"

#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static const char* read_digits(const char* at, const char* end, uint64_t* value) {
  uint64_t sum = 0;
  for (; at < end && is_digit(*at); ++at) {
    if (__builtin_mul_overflow(sum, 10u, &sum) || __builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum)) return NULL;
  }
  *value = sum;
  return at;
}

static double power_of_ten(int exponent) {
  double power = 1, square = 10;
  for (unsigned left = exponent < 0 ? (unsigned)-exponent : (unsigned)exponent; left != 0; left >>= 1, square *= square)
    if ((left & 1) != 0) power *= square;
  return power;
}

// Digits beyond the 18th only move the decimal point: no source has more significant digits.
static const char* read_real(const char* at, const char* end, double* value) {
  uint64_t digits = 0;
  int exponent = 0, count = 0;
  bool point = false, any = false;
  for (; at < end && (is_digit(*at) || (*at == '.' && !point)); ++at) {
    if (*at == '.') {
      point = true;
      continue;
    }
    any = true;
    if (count < 18) {
      digits = digits * 10 + (uint64_t)(*at - '0');
      if (digits != 0) ++count;
      if (point) --exponent;
    } else if (!point) {
      ++exponent;
    }
  }
  if (!any) return NULL;
  if (at + 1 < end && (*at == 'e' || *at == 'E')) {
    const bool sign = at[1] == '-' || at[1] == '+';
    const char* from = at + 1 + sign;
    uint64_t power = 0;
    if (from < end && is_digit(*from)) {
      const char* behind = read_digits(from, end, &power);
      if (behind == NULL || power > 300) return NULL;
      exponent += at[1] == '-' ? -(int)power : (int)power;
      at = behind;
    }
  }
  // A division by a power of ten rounds once, a product with its inverse twice.
  *value = exponent < 0 ? (double)digits / power_of_ten(exponent) : (double)digits * power_of_ten(exponent);
  if (exponent > 330 || exponent < -330) return NULL;
  return at;
}

static bool ends_well(const char* at, const char* end) {
  int letters = 0;
  for (; at < end && ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '_'); ++at) ++letters;
  return letters <= 2;
}

const char* ofs_read_number(const char* at, const char* end, enum ofs_type type, uint64_t factor, double scale,
                            uint64_t* bits) {
  bool negative = false;
  if (at < end && (*at == '-' || *at == '+')) negative = *at++ == '-';
  if (at >= end || !(is_digit(*at) || (type == OFS_F64 && *at == '.'))) return NULL;
  if (type == OFS_F64) {
    double real = 0;
    const char* behind = read_real(at, end, &real);
    if (behind == NULL || !ends_well(behind, end)) return NULL;
    real *= negative ? -scale : scale;
    memcpy(bits, &real, sizeof real);
    return behind;
  }
  uint64_t value = 0;
  const char* behind = read_digits(at, end, &value);
  if (behind == NULL || __builtin_mul_overflow(value, factor, &value)) return NULL;
  // 3.5 is not a whole number; the full stop of a sentence in a log is not a digit.
  if (behind + 1 < end && *behind == '.' && is_digit(behind[1])) return NULL;
  if (!ends_well(behind, end)) return NULL;
  if (type == OFS_I64) {
    if (value > (uint64_t)INT64_MAX + negative) return NULL;
    *bits = negative ? 0 - value : value;
  } else {
    if (negative && value != 0) return NULL;
    *bits = value;
  }
  return behind;
}
