// The sources of a host's values, and reading them. All memory is given at the start; descriptors are kept, and a read
// is a pread. Files, logs and commands are read by patterns (pattern.h); built-in sets contain the usual ones
// (source_sets.c).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "telemetry/host_sampler/command.h"
#include "telemetry/host_sampler/number.h"
#include "telemetry/host_sampler/pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  OFS_FIELDS_MAX = 4096,  // same as exchange::fields_max
  OFS_SOURCES_MAX = 1024,
  OFS_PATTERNS_MAX = 4096,
  OFS_COMMANDS_MAX = 64,
  OFS_ARGUMENTS_MAX = 15,
  OFS_LOG_BYTES = 65536,     // bytes of a log that are read for one sample; the rest waits for the next
  OFS_FILE_BYTES = 1 << 20,  // of a file
  OFS_PARTS = 4              // texts that %1 to %4 stand for
};

// One configured [[source]]. Texts belong to the caller and must stay; null or 0: not set.
struct ofs_source_options {
  const char* set;   // a built-in set: cpu, cpus, memory, load, infiniband, network, power, sensors, nvidia, ipmi
  const char* file;  // with * in its path: every file that matches
  const char* log;
  const char* command[OFS_ARGUMENTS_MAX + 1];
  const char* pattern;
  const char* fields[OFS_CAPTURES_MAX];  // names of the pattern's numbers, in order
  const char* label;                     // for the matched part of each path; "of" if not set
  const char* type;                      // u64 (default), i64, f64
  const char* kind;                      // gauge (default), counter
  const char *unit, *description;
  double scale;           // factor for numbers; for u64 and i64 a whole number
  int64_t interval_ns;    // of a command, or a set's; 0: 10 s
  int64_t time_limit_ns;  // of a command, or a set's; 0: 5 s
};

struct ofs_field {
  const char *name, *unit, *description;
  uint8_t kind;
};

struct ofs_pattern {
  const char* text;
  uint32_t first;  // of its fields
  uint16_t captures;
  bool counts;  // of a log: its field counts matches
};

struct ofs_source {
  enum { OFS_FILE, OFS_LOG, OFS_COMMAND } way;
  const char* path;  // of a command: its name
  int fd;
  int error;                       // errno of the last attempt; 0: success
  int64_t look_ns;                 // when to retry opening, or to check a log's name
  uint64_t offset, device, inode;  // of a log
  struct ofs_command* command;
  int64_t fresh_until_ns;  // of a command's values
  uint32_t first_pattern, pattern_count;
  // For a file with one number of type f64 that wraps to 0 after `range`; 0: it does not wrap. `passed` is the sum of
  // the ranges so far, `newest` the last number that was read.
  double range, passed, newest;
};

struct ofs_sources {
  const char* root;  // prefix of every path; "" if none
  struct ofs_source* sources;
  struct ofs_pattern* patterns;
  struct ofs_field* fields;
  struct ofs_capture* captures;  // one for each field
  uint64_t* bits;                // the values of the last read
  bool* present;
  struct ofs_command** commands;
  uint32_t source_count, pattern_count, field_count, command_count;
  uint64_t reads, failures;  // of files; fields that are not numbers are missing, and do not count as failures
  char* buffer;              // OFS_FILE_BYTES
  char *memory, *memory_end;
  bool empty_directory;  // for ofs_each_match: a * met a directory without a match
  char why[256];         // the error of the last failed call
};

// `memory` is zeroed and stays until the end; 512 bytes for each field are enough, but at least OFS_MEMORY_MIN. False:
// too small.
enum { OFS_MEMORY_MIN = 6 << 20 };
bool ofs_sources_init(struct ofs_sources* sources, void* memory, size_t length, const char* root);
// False if the source is certainly wrong, such as an unknown set or an invalid pattern; `why` has the reason. A missing
// file is not wrong: its values are missing until it exists.
bool ofs_sources_add(struct ofs_sources* sources, const struct ofs_source_options* options);
// Fills bits and present of all fields.
void ofs_sources_read(struct ofs_sources* sources, int64_t now_ns);
// Starts and ends commands; also done by each read.
void ofs_sources_step(struct ofs_sources* sources, int64_t now_ns);
int64_t ofs_sources_deadline(const struct ofs_sources* sources);
void ofs_sources_close(struct ofs_sources* sources);

// The schema as exchange::encode writes it; its length, or 0 if `room` is too small.
size_t ofs_sources_schema(const struct ofs_sources* sources, const char* name, uint8_t* to, size_t room);
uint64_t ofs_schema_id(const uint8_t* schema, size_t length);

// ---- for source_sets.c
char* ofs_take(struct ofs_sources* sources, size_t bytes);  // null: out of memory
bool ofs_wrong(struct ofs_sources* sources, const char* what, const char* which);
struct ofs_set_field {
  const char *name, *unit, *description;
  uint8_t type, kind;
  uint64_t factor;
  double scale;
};
// `parts` replace %1 to %4 in path, pattern and names; null: not those.
bool ofs_add_file(struct ofs_sources* sources, const char* path, const char* pattern,
                  const struct ofs_set_field* fields, uint32_t count, const char* const parts[OFS_PARTS]);
// A command of a set, whose patterns are added next. `arguments` ends with null and stays. Null: too many commands.
struct ofs_source* ofs_add_command(struct ofs_sources* sources, const char* const* arguments);
bool ofs_add_fields(struct ofs_sources* sources, struct ofs_source* source, const char* pattern,
                    const struct ofs_set_field* fields, uint32_t count, const char* const parts[OFS_PARTS]);
// The first line of a file, without its end and no longer than the room; "" if it cannot be read.
void ofs_read_line(const struct ofs_sources* sources, const char* path, char* line, size_t room);
bool ofs_add_set(struct ofs_sources* sources, const char* set);
bool ofs_set_runs_program(const char* set);
// Calls `found` for each matching path, in the order of names, with the parts that * matched (the first two of a path).
typedef bool (*ofs_found)(struct ofs_sources* sources, const char* path, const char* const parts[OFS_PARTS],
                          const void* context);
bool ofs_each_match(struct ofs_sources* sources, const char* glob, ofs_found found, const void* context);

#ifdef __cplusplus
}
#endif
