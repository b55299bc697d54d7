/* A split of columns by bits of an identifier, as a C programmer would write it for one machine: no frames, no limits
 * on memory, columns of 8, 4 and 1 bytes. The peer of `sift.partition_vs_hand`. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { hand_parts_max = 256 };

enum hand_way {
  hand_direct,  /* each value straight to its place */
  hand_combined /* by way of a cache line for each part, which is written past the caches when it is full */
};

struct hand_column {
  const void* values;
  void* to; /* room for all parts, each from a page of 4096 bytes on; every page was touched */
  uint32_t width;
};

/* Counts the rows of each part, and writes each column's parts one after the other. `part_of_row` has room for all
 * rows; `bits` is at most 8. */
void split_by_hand(enum hand_way way, const uint64_t* ids, uint64_t rows, uint32_t bits,
                   const struct hand_column* columns, uint32_t columns_count, uint8_t* part_of_row);

#ifdef __cplusplus
}
#endif
