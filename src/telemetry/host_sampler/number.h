// Numbers in the format of the kernel's files, parsed by hand: strtod depends on locales, and is larger than the
// sampler.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The same numbers as exchange::FieldType and FieldKind.
enum ofs_type { OFS_U64, OFS_I64, OFS_F64 };
enum ofs_kind { OFS_GAUGE, OFS_COUNTER };

// Reads one number of that type at the start of [at, end), times `factor` (u64, i64) or `scale` (f64). Returns the
// position after its last character. Returns null if there is no number, if letters follow directly that are not a unit
// of at most two (12kB, 3.5%), or if it does not fit the type. `bits` is the value as stored in a sample.
const char* ofs_read_number(const char* at, const char* end, enum ofs_type type, uint64_t factor, double scale,
                            uint64_t* bits);

#ifdef __cplusplus
}
#endif
