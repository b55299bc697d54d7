// A plug-in that does everything a function should not do, for plugin_processes_test.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/sent_fds.h"
#include "offpath/plugin.h"
#include "plugin/message.h"

namespace {

using namespace offpath;

constexpr int agent_socket = 3;

int32_t say(ofp_context* context, const std::string& text) {
  void* out = context->output(context, "text", text.size(), 0);
  if (out == nullptr) return 1;
  std::memcpy(out, text.data(), text.size());
  return 0;
}

int32_t echo(ofp_context* context) {
  return say(context, std::string(static_cast<const char*>(context->arguments), context->arguments_bytes));
}

// Row, column, size, flags and alignment of every input, and its first bytes.
int32_t describe(ofp_context* context) {
  std::string text;
  for (uint64_t i = 0; i < context->input_count; ++i) {
    const ofp_input& input = *context->inputs[i];
    const std::string row(static_cast<const char*>(input.row), input.row_bytes);
    const std::string column(static_cast<const char*>(input.column), input.column_bytes);
    const std::string start(static_cast<const char*>(input.data), input.bytes < 4 ? input.bytes : 4);
    text += row + "/" + column + " " + std::to_string(input.bytes) + " " + std::to_string(input.flags) + " " +
            (reinterpret_cast<uintptr_t>(input.data) % 4096 == 0 && input.data != nullptr ? "aligned" : "not aligned") +
            " " + start + "\n";
  }
  return say(context, text);
}

int32_t fails(ofp_context* context) {
  context->log(context, OFP_LOG_WARNING, "about to fail\nforged line");
  context->set_error(context, "x is negative");
  return 7;
}
int32_t throws(ofp_context*) { throw std::runtime_error("no such particle"); }
int32_t throws_a_number(ofp_context*) { throw 5; }
int32_t crashes(ofp_context*) {
  raise(SIGSEGV);
  return 0;
}
int32_t exits(ofp_context*) { _exit(3); }
int32_t loops(ofp_context*) {
  volatile bool go_on = true;
  while (go_on) {
  }
  return 0;
}
int32_t waits_until_cancelled(ofp_context* context) {
  while (context->cancelled(context) == 0) usleep(500);
  return 1;
}
int32_t writes_to_an_input(ofp_context* context) {
  *static_cast<char*>(const_cast<void*>(context->inputs[0]->data)) = 'X';
  return 0;
}
int32_t writes_too_much(ofp_context* context) {
  auto* out = static_cast<char*>(context->output(context, "small", 100, 0));
  std::memset(out, 1, 4096);  // the page is there
  std::memset(out + 4096, 1, 1);
  return 0;
}
int32_t allocates(ofp_context*) {
  std::vector<std::string> kept;
  for (;;) kept.emplace_back(16 << 20, 'x');
}
int32_t makes_a_large_output(ofp_context* context) {
  return context->output(context, "large", uint64_t{1} << 40, 0) == nullptr ? 1 : 0;
}
int32_t shrinks(ofp_context* context) {
  auto* out = static_cast<char*>(context->output(context, nullptr, 10000, OFP_DATA_ARROW));
  std::memcpy(out, "abc", 3);
  if (context->shrink(context, out, 10001) == 0 || context->output(context, "", 1, 0) != nullptr) return 2;
  context->output(context, "empty", 0, 0);
  return context->shrink(context, out, 3);
}
int32_t counts_calls(ofp_context* context) {
  static int calls = 0;
  return say(context, std::to_string(++calls));
}

// The rights that a worker keeps.
int32_t rights(ofp_context* context) {
  std::string text = "fds:";
  for (int fd = 0; fd < 4096; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) text += " " + std::to_string(fd);
  }
  rlimit core{}, data{};
  getrlimit(RLIMIT_CORE, &core);
  getrlimit(RLIMIT_DATA, &data);
  text += "\ndumpable: " + std::to_string(prctl(PR_GET_DUMPABLE)) +
          "\nno_new_privs: " + std::to_string(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) +
          "\ncore: " + std::to_string(core.rlim_max) + "\ndata: " + std::to_string(data.rlim_max) +
          "\ngroup: " + (getpgrp() == getpid() ? "own" : "the agent's") + "\nuid: " + std::to_string(getuid()) + " " +
          std::to_string(geteuid()) + "\nnice: " + std::to_string(getpriority(PRIO_PROCESS, 0)) +
          "\nsecret: " + (getenv("OFFPATH_TEST_SECRET") == nullptr ? "none" : "seen") + "\n";
  if (FILE* status = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, status) != nullptr) {
      if (std::strncmp(line, "CapPrm", 6) == 0 || std::strncmp(line, "CapEff", 6) == 0 ||
          std::strncmp(line, "Groups", 6) == 0)
        text += line;
    }
    std::fclose(status);
  }
  return say(context, text);
}

std::string refusal(long result) { return result < 0 ? std::strerror(errno) : "done"; }

// System calls that no function needs, one a line with its result.
int32_t tries_calls(ofp_context* context) {
  char byte = 0;
  iovec piece{&byte, 1};
  char* const nothing[] = {nullptr};
  std::string text;
  text += "socket: " + refusal(socket(AF_INET, SOCK_STREAM, 0)) + "\n";
  text += "local socket: " + refusal(socket(AF_UNIX, SOCK_STREAM, 0)) + "\n";
  text += "execve: " + refusal(execve("/nonexistent", nothing, nothing)) + "\n";
  text += "ptrace: " + refusal(syscall(SYS_ptrace, 0L, 0L, 0L, 0L)) + "\n";
  text += "readv of others: " + refusal(process_vm_readv(getppid(), &piece, 1, &piece, 1, 0)) + "\n";
  text += "writev to others: " + refusal(process_vm_writev(getppid(), &piece, 1, &piece, 1, 0)) + "\n";
  text += "signal: " + refusal(kill(getppid(), 0)) + "\n";
  text += "namespace: " + refusal(unshare(CLONE_NEWUSER)) + "\n";
  text += "clone into one: " + refusal(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0L, 0L, 0L, 0L)) + "\n";
  text += "mount: " + refusal(mount("none", "/nonexistent", "tmpfs", 0, nullptr)) + "\n";
  text += "bpf: " + refusal(syscall(SYS_bpf, 0L, nullptr, 0L)) + "\n";
  text += "keyctl: " + refusal(syscall(SYS_keyctl, 0L, 0L, 0L, 0L, 0L)) + "\n";
  text += "perf: " + refusal(syscall(SYS_perf_event_open, nullptr, 0L, -1L, -1L, 0L)) + "\n";
  text += "io_uring: " + refusal(syscall(SYS_io_uring_setup, 1L, nullptr)) + "\n";
#ifdef __x86_64__
  text += "x32: " + refusal(syscall(0x4000'0000L | SYS_getpid)) + "\n";
#endif
  text += "memory by path: " + refusal(open(("/proc/" + std::to_string(getppid()) + "/mem").c_str(), O_RDWR)) + "\n";
  text += "itself: " + refusal(kill(getpid(), 0)) + "\n";
  return say(context, text);
}

// ---- actions of hostile programs

void send_bytes(const std::vector<std::byte>& bytes, const std::vector<int>& fds) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  static_cast<void>(send_with_descriptors(agent_socket, {&piece, 1}, fds, 0));
}

// The number of the call is not in the context: the arguments tell it.
void answer(ofp_context* context, uint64_t bytes, const std::vector<int>& fds) {
  plugin::Done done;
  done.call = std::stoull(std::string(static_cast<const char*>(context->arguments), context->arguments_bytes));
  done.outputs.push_back({"out", bytes, 0});
  std::vector<std::byte> packet;
  plugin::encode(done, packet);
  send_bytes(packet, fds);
  pause();
}

int memory(uint64_t bytes, int seals) {
  const int fd = memfd_create("hostile", MFD_ALLOW_SEALING);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) _exit(99);
  fcntl(fd, F_ADD_SEALS, seals);
  return fd;
}

constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

int32_t answers_unsealed(ofp_context* context) {
  return answer(context, 4096, {memory(4096, F_SEAL_SHRINK | F_SEAL_GROW)}), 0;
}
int32_t answers_short(ofp_context* context) { return answer(context, 4096, {memory(100, all_seals)}), 0; }
int32_t answers_without(ofp_context* context) { return answer(context, 4096, {}), 0; }
int32_t answers_with_a_file(ofp_context* context) {
  return answer(context, 4096, {open("/proc/self/exe", O_RDONLY)}), 0;
}
int32_t answers_sealed(ofp_context* context) { return answer(context, 4096, {memory(4096, all_seals)}), 0; }
int32_t answers_garbage(ofp_context*) {
  send_bytes(std::vector<std::byte>(100, std::byte{0xEE}), {});
  pause();
  return 0;
}
int32_t answers_at_length(ofp_context*) {
  send_bytes(std::vector<std::byte>(150'000, std::byte{1}), {});
  pause();
  return 0;
}
int32_t closes_its_socket(ofp_context*) {
  close(agent_socket);
  pause();
  return 0;
}
int32_t starts_a_process(ofp_context* context) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  context->log(context, OFP_LOG_INFO, "a child");
  say(context, std::to_string(child));
  return 0;
}

const ofp_function functions[] = {
    {"echo", echo, "Its arguments."},
    {"describe", describe, nullptr},
    {"fails", fails, nullptr},
    {"throws", throws, nullptr},
    {"throws_a_number", throws_a_number, nullptr},
    {"crashes", crashes, nullptr},
    {"exits", exits, nullptr},
    {"loops", loops, nullptr},
    {"waits_until_cancelled", waits_until_cancelled, nullptr},
    {"writes_to_an_input", writes_to_an_input, nullptr},
    {"writes_too_much", writes_too_much, nullptr},
    {"allocates", allocates, nullptr},
    {"makes_a_large_output", makes_a_large_output, nullptr},
    {"shrinks", shrinks, nullptr},
    {"counts_calls", counts_calls, nullptr},
    {"rights", rights, nullptr},
    {"tries_calls", tries_calls, nullptr},
    {"answers_unsealed", answers_unsealed, nullptr},
    {"answers_short", answers_short, nullptr},
    {"answers_without", answers_without, nullptr},
    {"answers_with_a_file", answers_with_a_file, nullptr},
    {"answers_sealed", answers_sealed, nullptr},
    {"answers_garbage", answers_garbage, nullptr},
    {"answers_at_length", answers_at_length, nullptr},
    {"closes_its_socket", closes_its_socket, nullptr},
    {"starts_a_process", starts_a_process, nullptr},
};

const ofp_plugin description = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "hostile", sizeof functions / sizeof *functions,
                                functions};

}  // namespace

extern "C" const ofp_plugin* offpath_plugin(void) { return &description; }
