// A program whose output is read without waiting for it. At its time limit it is killed with everything it has started.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { OFS_OUTPUT_BYTES = 4096 };  // of an output; what is beyond is thrown away

struct ofs_command {
  char* const* arguments;  // ends with null
  int64_t interval_ns, limit_ns;
  int64_t next_ns;    // when it is started again
  int64_t killed_ns;  // when what runs is killed
  int64_t looked_ns;
  pid_t pid;  // its process group too; 0: it does not run
  int pipe;
  uint32_t length;
  uint32_t starts, kills, failures;
  char output[OFS_OUTPUT_BYTES];
};

// Starts it when it is due, reads output, ends it. True if it has just succeeded: then output[0 .. length) is complete.
bool ofs_command_step(struct ofs_command* command, int64_t now_ns);
// When to call step() although the pipe is silent.
int64_t ofs_command_deadline(const struct ofs_command* command);
void ofs_command_stop(struct ofs_command* command);

// Makes this process the parent of processes that commands leave behind (PR_SET_CHILD_SUBREAPER), and kills these: all
// children that are not in `commands`. For a process without other children.
void ofs_adopt_orphans(void);
void ofs_kill_orphans(const struct ofs_command* const* commands, uint32_t count);

#ifdef __cplusplus
}
#endif
