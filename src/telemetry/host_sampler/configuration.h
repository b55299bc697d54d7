// The sampler's configuration: the part of TOML that tables of texts and numbers need, so that [[source]] looks as in
// the agent's configuration. Texts in "" (with \" \\ \t) or '', numbers, lists of texts on one line, comments.
#pragma once

#include "telemetry/host_sampler/sources.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ofs_configuration {
  const char *listen, *key_file, *root, *name;  // of [sampler]
  const char* agent;                            // the agent for which values are written, instead of listening
  int64_t interval_ns;                          // between writes
  uint32_t source_count;
  struct ofs_source_options sources[256];
  uint32_t source_lines[256];
  char why[256];  // "line 12: the mistake"
};

// `configuration` is zeroed. `text` ends with NUL and is modified: the configuration's texts point into it.
bool ofs_read_configuration(struct ofs_configuration* configuration, char* text);

#ifdef __cplusplus
}
#endif
