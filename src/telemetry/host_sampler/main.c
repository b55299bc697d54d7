// offpath-sampler: reads a host's values when an agent asks, and answers over UDP. A small static program: it allocates
// nothing after its start, keeps its descriptors, and starts no thread. docs/guides/monitoring.md describes its setup.
// Read this first in this folder, then sources.h (what it reads), pattern.h and datagram.h (the protocol).
//
//   configuration -> sources (kept open) -> for each datagram: answer.c checks it -> read, parse -> datagram
//
// With `agent` in its configuration it becomes offpath-region-sampler instead, which writes the same values to memory
// that the agent reads.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "telemetry/host_sampler/answer.h"
#include "telemetry/host_sampler/configuration.h"
#include "telemetry/host_sampler/sha256.h"

enum { KEY_BYTES_MIN = 16, KEY_BYTES_MAX = 4096, POLLED_MAX = 1 + OFS_COMMANDS_MAX };

static _Alignas(16) char memory[OFS_MEMORY_MIN];  // untouched pages take no memory
static char text[256 << 10];
static struct ofs_configuration configuration;
static struct ofs_sources sources;
static struct ofs_answerer answerer;
static uint8_t schema[1 << 20], answer[OFS_DATAGRAM_MAX], request[OFS_HEADER_BYTES + OFS_TAG_BYTES + 1];
static char** arguments;

static void say(const char* a, const char* b, const char* c) {
  char line[640], *to = line, *end = line + sizeof line - 1;
  const char* parts[] = {"offpath-sampler: ", a, b, c, "\n"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
    for (const char* from = parts[i]; *from != '\0' && to < end;) *to++ = *from++;
  if (write(2, line, (size_t)(to - line)) < 0) return;  // standard error has no reader
}

static _Noreturn void die(const char* a, const char* b, const char* c) {
  say(a, b, c);
  _exit(2);
}

static int64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}
static int64_t real_ns(void) { return clock_ns(CLOCK_REALTIME); }

static size_t read_whole(const char* path, char* to, size_t room, mode_t refused, const char* why) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) die("cannot open ", path, errno == ENOENT ? ": there is no such file" : "");
  struct stat status;
  if (fstat(file, &status) != 0 || (status.st_mode & refused) != 0) die(path, why, "");
  size_t length = 0;
  for (ssize_t count; length < room && (count = read(file, to + length, room - length)) > 0;) length += (size_t)count;
  close(file);
  if (length == room) die(path, " is too large", "");
  return length;
}

static void read_key(const char* path) {
  char bytes[KEY_BYTES_MAX + 1];
  const size_t length =
      read_whole(path, bytes, sizeof bytes, S_IRWXG | S_IRWXO, " can be read by other users than its owner: chmod 600");
  if (length < KEY_BYTES_MIN) die(path, " has less than 16 bytes: make one, for example with openssl rand -hex 32", "");
  ofs_datagram_key(bytes, length, answerer.key);
  explicit_bzero(bytes, sizeof bytes);
  if (getrandom(answerer.token_key, sizeof answerer.token_key, 0) != sizeof answerer.token_key)
    die("no random numbers are available", "", "");
}

static void add_sources(void) {
  if (!ofs_sources_init(&sources, memory, sizeof memory, configuration.root)) die(sources.why, "", "");
  if (configuration.source_count == 0) {
    static const char* const usual[] = {"cpu", "memory", "load", "infiniband", "network"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; ++i)
      if (!ofs_add_set(&sources, usual[i])) die(sources.why, "", "");
  }
  for (uint32_t i = 0; i < configuration.source_count; ++i) {
    if (ofs_sources_add(&sources, &configuration.sources[i])) continue;
    char digits[12], *digit = digits + sizeof digits;
    *--digit = '\0';
    for (uint32_t line = configuration.source_lines[i]; line != 0; line /= 10) *--digit = (char)('0' + line % 10);
    say("[[source]] of line ", digit, ": ");
    die(sources.why, "", "");
  }
  if (sources.field_count == 0) die("the sources have no fields", "", "");
  answerer.sequence = (uint64_t)(real_ns() / 1000);  // grows from one start to the next
  char name[256] = "host";
  if (configuration.name == NULL && gethostname(name, sizeof name - 1) == 0 && name[0] != '\0')
    configuration.name = name;
  if (configuration.name == NULL) configuration.name = name;
  if (strlen(configuration.name) > 255) die("a name has at most 255 bytes: ", configuration.name, "");
  answerer.schema_length = (uint32_t)ofs_sources_schema(&sources, "host", schema, sizeof schema);
  if (answerer.schema_length == 0) die("the names and descriptions of all fields take more than 1 MiB", "", "");
  answerer.schema = schema;
  answerer.schema_id = ofs_schema_id(schema, answerer.schema_length);
  answerer.sources = &sources;
}

// "127.0.0.1:7480", "[::]:7480"
static int bind_to(const char* address) {
  char host[64];
  const char* colon = strrchr(address, ':');
  if (colon == NULL || (size_t)(colon - address) >= sizeof host)
    die("listen is HOST:PORT with a number for the host, not ", address, "");
  uint32_t port = 0;
  for (const char* at = colon + 1; *at != '\0'; ++at) {
    if (*at < '0' || *at > '9' || (port = port * 10 + (uint32_t)(*at - '0')) > 65535)
      die("this is not a port: ", address, "");
  }
  const bool brackets = address[0] == '[' && colon[-1] == ']';
  const size_t length = (size_t)(colon - address) - 2 * brackets;
  memcpy(host, address + brackets, length);
  host[length] = '\0';
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  const bool is_six = inet_pton(AF_INET6, host, &six.sin6_addr) == 1;
  if (!is_six && inet_pton(AF_INET, host, &four.sin_addr) != 1)
    die("listen is HOST:PORT with a number for the host, not ", address, "");
  const int udp = socket(is_six ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const struct sockaddr* where = is_six ? (const struct sockaddr*)&six : (const struct sockaddr*)&four;
  if (udp < 0 || bind(udp, where, is_six ? sizeof six : sizeof four) != 0)
    die("cannot listen at ", address, errno == EADDRINUSE ? ": another process does" : "");
  return udp;
}

// Reports the kernel's choice, for a parent that started this with port 0.
static void tell_port(int udp) {
  struct sockaddr_in6 own;
  socklen_t length = sizeof own;
  if (getsockname(udp, (struct sockaddr*)&own, &length) != 0) return;
  char digits[12], *digit = digits + sizeof digits;
  *--digit = '\0';
  uint32_t port = ntohs(own.sin6_port);  // in the same place for both families
  do *--digit = (char)('0' + port % 10);
  while ((port /= 10) != 0);
  say("listening at port ", digit, "");
}

static void count_own(int64_t now_ns) {
  static int64_t next_ns;
  static int statm = -1;
  if (now_ns < next_ns) return;
  next_ns = now_ns + 100000000;
  answerer.cpu_ns = (uint64_t)clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  if (statm < 0) statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char pages[64];
  const ssize_t length = pread(statm, pages, sizeof pages, 0);
  const struct ofs_capture captures[2] = {{OFS_U64, 1, 1}, {OFS_U64, (uint64_t)sysconf(_SC_PAGESIZE) / 1024, 1}};
  uint64_t bits[2];
  bool present[2] = {false, false};
  if (length > 0 && ofs_match("{} {}", pages, pages + length, captures, bits, present) && present[1])
    answerer.resident_kb = (uint32_t)bits[1];
}

// No input and no error of the socket ends this: such errors concern others' datagrams, or are temporary.
static void take_request(int udp, int flags) {
  struct sockaddr_storage from;
  socklen_t from_length = sizeof from;
  // One byte more than a request has: a longer datagram is not a request.
  const ssize_t length = recvfrom(udp, request, sizeof request, flags, (struct sockaddr*)&from, &from_length);
  if (length < 0) {
    if (errno != EINTR && errno != EAGAIN) poll(NULL, 0, 10);
    return;
  }
  const int64_t received_ns = real_ns(), now_ns = clock_ns(CLOCK_MONOTONIC);
  count_own(now_ns);
  const size_t answered = ofs_answer(&answerer, request, (size_t)length, now_ns, received_ns, real_ns, answer);
  if (answered != 0) sendto(udp, answer, answered, MSG_DONTWAIT, (struct sockaddr*)&from, from_length);
}

static _Noreturn void serve_with_commands(int udp) {
  for (;;) {
    struct pollfd polled[POLLED_MAX] = {{.fd = udp, .events = POLLIN}};
    for (uint32_t i = 0; i < sources.command_count; ++i) {
      polled[1 + i].fd = sources.commands[i]->pipe;
      polled[1 + i].events = POLLIN;
    }
    const int64_t now_ns = clock_ns(CLOCK_MONOTONIC), deadline_ns = ofs_sources_deadline(&sources);
    int64_t wait_ms = deadline_ns <= now_ns ? 0 : (deadline_ns - now_ns) / 1000000 + 1;
    if (wait_ms > 1000) wait_ms = 1000;  // processes that commands left behind are looked for
    poll(polled, 1 + sources.command_count, (int)wait_ms);
    ofs_sources_step(&sources, clock_ns(CLOCK_MONOTONIC));
    ofs_kill_orphans((const struct ofs_command* const*)sources.commands, sources.command_count);
    if ((polled[0].revents & (POLLIN | POLLERR)) != 0) take_request(udp, MSG_DONTWAIT);
  }
}

static void begin_anew(int signal) {
  (void)signal;
  execv("/proc/self/exe", arguments);
  _exit(2);
}

static _Noreturn void become_region_sampler(void) {
  char path[1024];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
  if (length <= 0) die("/proc/self/exe cannot be read", "", "");
  path[length] = '\0';
  strcpy(strrchr(path, '/'), "/offpath-region-sampler");
  execv(path, arguments);
  die("`agent` is set, and ", path, " cannot be started");
}

static const char usage[] = "usage: offpath-sampler [--check] CONFIGURATION.toml";

static void print(const char* line) {
  if (write(1, line, strlen(line)) < 0 || write(1, "\n", 1) < 0) _exit(1);
}

int main(int count, char** values) {
  arguments = values;
  if (count == 2 && strcmp(values[1], "--help") == 0) {
    print(usage);
    print(
        "Answers agents that ask this host for its values over UDP. --check: lists the configured values, and "
        "ends.");
    return 0;
  }
  const bool check = count == 3 && strcmp(values[1], "--check") == 0;
  if (count < 2 || (count == 3 && !check) || count > 3 || (count == 2 && values[1][0] == '-')) die(usage, "", "");
  const char* path = values[count - 1];
  text[read_whole(path, text, sizeof text - 1, 0, "")] = '\0';
  if (!ofs_read_configuration(&configuration, text)) die(path, ": ", configuration.why);
  if (configuration.agent != NULL && !check) become_region_sampler();
  add_sources();
  if (check) {
    ofs_sources_read(&sources, clock_ns(CLOCK_MONOTONIC));
    for (uint32_t i = 0; i < sources.field_count; ++i) {
      if (!sources.present[i] && write(1, "missing: ", 9) < 0) return 1;
      print(sources.fields[i].name);
    }
    ofs_sources_close(&sources);
    return 0;
  }
  if (configuration.listen == NULL || configuration.key_file == NULL)
    die(path, ": [sampler] needs listen and key_file", "");
  read_key(configuration.key_file);
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // keeps the key secret
  const int udp = bind_to(configuration.listen);
  struct sigaction action = {.sa_handler = begin_anew, .sa_flags = SA_NODEFER};
  sigaction(SIGHUP, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
  tell_port(udp);
  count_own(clock_ns(CLOCK_MONOTONIC));
  if (sources.command_count != 0) {
    ofs_adopt_orphans();
    serve_with_commands(udp);
  }
  for (;;) take_request(udp, 0);
}
