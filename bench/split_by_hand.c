#include "split_by_hand.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { line_bytes = 64, page_bytes = 4096 };

/* A whole line, past the caches where the processor can do that: it need not be read first. */
static inline void store_line(void* to, const void* line) {
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) _mm_stream_si128((__m128i*)to + i, _mm_load_si128((const __m128i*)line + i));
#else
  memcpy(to, line, line_bytes);
#endif
}

static inline void finish_stores(void) {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

#define SPLIT_OF(TYPE)                                                                                            \
  static void direct_##TYPE(const TYPE* values, uint64_t rows, const uint8_t* part_of_row, void* const* begins,   \
                            uint32_t parts) {                                                                     \
    TYPE* at[hand_parts_max];                                                                                     \
    for (uint32_t part = 0; part < parts; ++part) at[part] = begins[part];                                        \
    for (uint64_t row = 0; row < rows; ++row) *at[part_of_row[row]]++ = values[row];                              \
  }                                                                                                               \
  static void combined_##TYPE(const TYPE* values, uint64_t rows, const uint8_t* part_of_row, void* const* begins, \
                              uint32_t parts) {                                                                   \
    enum { per_line = line_bytes / sizeof(TYPE) };                                                                \
    static _Alignas(line_bytes) TYPE lines[hand_parts_max][per_line];                                             \
    uint64_t written[hand_parts_max] = {0};                                                                       \
    for (uint64_t row = 0; row < rows; ++row) {                                                                   \
      const uint8_t part = part_of_row[row];                                                                      \
      const uint64_t number = written[part]++, place = number % per_line;                                         \
      lines[part][place] = values[row];                                                                           \
      if (place == per_line - 1) store_line((TYPE*)begins[part] + number - place, lines[part]);                   \
    }                                                                                                             \
    for (uint32_t part = 0; part < parts; ++part) {                                                               \
      const uint64_t rest = written[part] % per_line;                                                             \
      memcpy((TYPE*)begins[part] + written[part] - rest, lines[part], rest * sizeof(TYPE));                       \
    }                                                                                                             \
    finish_stores();                                                                                              \
  }
SPLIT_OF(uint64_t)
SPLIT_OF(uint32_t)
SPLIT_OF(uint8_t)

void split_by_hand(enum hand_way way, const uint64_t* ids, uint64_t rows, uint32_t bits,
                   const struct hand_column* columns, uint32_t columns_count, uint8_t* part_of_row) {
  const uint32_t parts = 1u << bits;
  uint64_t counts[hand_parts_max] = {0};
  for (uint64_t row = 0; row < rows; ++row) {
    const uint8_t part = (uint8_t)(ids[row] & (parts - 1));
    part_of_row[row] = part;
    ++counts[part];
  }
  for (uint32_t i = 0; i < columns_count; ++i) {
    const struct hand_column* column = &columns[i];
    void* begins[hand_parts_max];
    char* at = column->to;
    for (uint32_t part = 0; part < parts; ++part) {
      begins[part] = at;
      at += (counts[part] * column->width + page_bytes - 1) / page_bytes * page_bytes;
    }
    const int combines = way == hand_combined;
    if (column->width == 8)
      (combines ? combined_uint64_t : direct_uint64_t)(column->values, rows, part_of_row, begins, parts);
    else if (column->width == 4)
      (combines ? combined_uint32_t : direct_uint32_t)(column->values, rows, part_of_row, begins, parts);
    else
      (combines ? combined_uint8_t : direct_uint8_t)(column->values, rows, part_of_row, begins, parts);
  }
}
