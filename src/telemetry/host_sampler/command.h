// A program whose output is read without waiting for it. At its time limit it is killed with all its child processes.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { OFS_OUTPUT_BYTES = 4096 };  // of an output; the rest is discarded

struct ofs_command {
  char* const* arguments;  // ends with null
  int64_t interval_ns, limit_ns;
  int64_t next_ns;    // when to start it again
  int64_t killed_ns;  // when to kill the running program
  int64_t looked_ns;
  pid_t pid;  // also its process group; 0: not running
  int pipe;
  uint32_t length;
  uint32_t starts, kills, failures;
  char output[OFS_OUTPUT_BYTES];
};

// Starts it when it is due, reads output, reaps it. True if it has just succeeded: then output[0 .. length) is
// complete.
bool ofs_command_step(struct ofs_command* command, int64_t now_ns);
// When to call step() even if the pipe is silent.
int64_t ofs_command_deadline(const struct ofs_command* command);
void ofs_command_stop(struct ofs_command* command);

// Makes this process the parent of processes that commands leave behind (PR_SET_CHILD_SUBREAPER), and kills them: all
// children that are not in `commands`. For a process without other children.
void ofs_adopt_orphans(void);
void ofs_kill_orphans(const struct ofs_command* const* commands, uint32_t count);

#ifdef __cplusplus
}
#endif
