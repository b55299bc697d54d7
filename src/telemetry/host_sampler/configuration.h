// The sampler's configuration: the part of TOML that tables of texts and numbers need, so that [[source]] is written as
// for the agent. Texts in "" (with \" \\ \t) or '', numbers, lists of texts in one line, comments.
#pragma once

#include "telemetry/host_sampler/sources.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ofs_configuration {
  const char *listen, *key_file, *root, *name;  // of [sampler]
  const char* agent;                            // where values are written for, instead of listening
  int64_t interval_ns;                          // how often
  uint32_t source_count;
  struct ofs_source_options sources[256];
  uint32_t source_lines[256];
  char why[256];  // "line 12: what is wrong"
};

// `configuration` is zero. `text` ends with NUL and is changed: the configuration's texts lie in it.
bool ofs_read_configuration(struct ofs_configuration* configuration, char* text);

#ifdef __cplusplus
}
#endif
