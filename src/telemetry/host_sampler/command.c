#define _GNU_SOURCE
#include "telemetry/host_sampler/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void fall_back(struct ofs_command* command, int64_t now_ns) {
  ++command->failures;
  command->next_ns = now_ns + command->interval_ns;
}

static void start(struct ofs_command* command, int64_t now_ns) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    fall_back(command, now_ns);
    return;
  }
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  // The child of vfork uses this memory until it has executed the program: copying an agent's memory would take
  // milliseconds.
  const pid_t pid = nothing < 0 ? -1 : vfork();
  if (pid == 0) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    // The program's end of the pipe blocks, as programs expect of their output.
    if (dup2(nothing, 0) < 0 || dup2(ends[1], 1) < 0 || dup2(nothing, 2) < 0 || fcntl(1, F_SETFL, 0) != 0) _exit(126);
    // An agent's libraries may open descriptors that are not close-on-exec.
    syscall(SYS_close_range, 3u, ~0u, 0u);
    execvp(command->arguments[0], command->arguments);
    _exit(127);
  }
  if (nothing >= 0) close(nothing);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    fall_back(command, now_ns);
    return;
  }
  setpgid(pid, pid);
  ++command->starts;
  command->pid = pid;
  command->pipe = ends[0];
  command->length = 0;
  command->looked_ns = now_ns;
  command->killed_ns = now_ns + command->limit_ns;
}

// The pipe is closed at its end, because a descriptor that stays readable would wake its poller all the time.
static void take_output(struct ofs_command* command) {
  for (int reads = 0; reads < 16 && command->pipe >= 0; ++reads) {
    char rest[512];
    char* to = command->output + command->length;
    size_t room = OFS_OUTPUT_BYTES - command->length;
    if (room == 0) {
      to = rest;
      room = sizeof rest;
    }
    const ssize_t count = read(command->pipe, to, room);
    if (count < 0) return;
    if (count == 0) {
      close(command->pipe);
      command->pipe = -1;
    } else if (to != rest) {
      command->length += (uint32_t)count;
    }
  }
}

static void end(struct ofs_command* command, int64_t now_ns) {
  if (command->pipe >= 0) close(command->pipe);
  command->pipe = -1;
  command->pid = 0;
  command->next_ns = now_ns + command->interval_ns;
}

bool ofs_command_step(struct ofs_command* command, int64_t now_ns) {
  if (command->pid == 0) {
    if (now_ns >= command->next_ns) start(command, now_ns);
    return false;
  }
  command->looked_ns = now_ns;
  take_output(command);
  if (now_ns >= command->killed_ns && command->killed_ns != INT64_MAX) {
    kill(-command->pid, SIGKILL);
    ++command->kills;
    command->killed_ns = INT64_MAX;
  }
  // The program's exit counts, not the end of its output: a background process may hold the pipe forever.
  int status = 0;
  const pid_t gone = waitpid(command->pid, &status, WNOHANG);
  if (gone == 0 || (gone < 0 && errno == EINTR)) return false;
  take_output(command);
  kill(-command->pid, SIGKILL);
  const bool well = gone > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!well) ++command->failures;
  end(command, now_ns);
  return well;
}

int64_t ofs_command_deadline(const struct ofs_command* command) {
  if (command->pid == 0) return command->next_ns;
  const int64_t look = command->looked_ns + 20000000;  // its exit makes no descriptor readable
  return look < command->killed_ns ? look : command->killed_ns;
}

void ofs_command_stop(struct ofs_command* command) {
  if (command->pid == 0) return;
  kill(-command->pid, SIGKILL);
  while (waitpid(command->pid, NULL, 0) < 0 && errno == EINTR) {
  }
  end(command, 0);
}

void ofs_adopt_orphans(void) { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

// Orphans become children of this process when their parent exits. A page lists that many; others become visible as
// these exit.
void ofs_kill_orphans(const struct ofs_command* const* commands, uint32_t count) {
  char list[4096];
  const int file = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t length = read(file, list, sizeof list - 1);
  close(file);
  pid_t pid = 0;
  for (ssize_t i = 0; i < length; ++i) {
    if (list[i] >= '0' && list[i] <= '9') {
      pid = pid * 10 + (list[i] - '0');
      continue;
    }
    bool known = pid == 0;
    for (uint32_t each = 0; each < count; ++each) known = known || commands[each]->pid == pid;
    if (!known) {
      kill(pid, SIGKILL);
      waitpid(pid, NULL, WNOHANG);
    }
    pid = 0;
  }
}
