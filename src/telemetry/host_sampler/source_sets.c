// The usual sources by name, without patterns. A set is rows of (path, pattern, meaning of its numbers); if `each` has
// a *, there is one row for each match, which %1 and %2 stand for. Or it is the output of a program, with a line for
// each match.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "telemetry/host_sampler/sources.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

// /proc/stat counts hundredths of a second on every Linux (USER_HZ).
#define CPU_FIELD(mode, where)                \
  {"cpu_seconds{" where "mode=\"" mode "\"}", \
   "seconds",                                 \
   "Processor time by kind of use.",          \
   OFS_F64,                                   \
   OFS_COUNTER,                               \
   1,                                         \
   0.01}
#define CPU_FIELDS(where)                                                                                       \
  {CPU_FIELD("user", where),   CPU_FIELD("nice", where), CPU_FIELD("system", where),  CPU_FIELD("idle", where), \
   CPU_FIELD("iowait", where), CPU_FIELD("irq", where),  CPU_FIELD("softirq", where), CPU_FIELD("steal", where)}
static const struct ofs_set_field cpu_fields[] = CPU_FIELDS("");
static const struct ofs_set_field each_cpu_fields[] = CPU_FIELDS("cpu=\"%1\",");
static const struct ofs_set_field switch_fields[] = {
    {"context_switches", "", "Context switches of all processors.", OFS_U64, OFS_COUNTER, 1, 0}};
static const struct ofs_set_field fork_fields[] = {
    {"forks", "", "Processes and threads started.", OFS_U64, OFS_COUNTER, 1, 0}};
static const struct ofs_set_field running_fields[] = {
    {"tasks_running", "", "Tasks that run or are ready to run.", OFS_U64, OFS_GAUGE, 1, 0}};
static const struct ofs_set_field blocked_fields[] = {
    {"tasks_blocked", "", "Tasks that wait for a device.", OFS_U64, OFS_GAUGE, 1, 0}};

#define MEMORY_FIELD(id, name, text) \
  static const struct ofs_set_field id[] = {{name, "bytes", text, OFS_U64, OFS_GAUGE, 1024, 0}}
MEMORY_FIELD(memory_total, "memory_total_bytes", "Memory that the kernel manages.");
MEMORY_FIELD(memory_free, "memory_free_bytes", "Unused memory.");
MEMORY_FIELD(memory_available, "memory_available_bytes",
             "Memory that programs could take without swapping, as the kernel estimates.");
MEMORY_FIELD(memory_buffers, "memory_buffers_bytes", "Memory of buffers for block devices.");
MEMORY_FIELD(memory_cached, "memory_cached_bytes", "Memory of the page cache.");
MEMORY_FIELD(memory_dirty, "memory_dirty_bytes", "Memory that waits to be written to disk.");
MEMORY_FIELD(swap_total, "swap_total_bytes", "Total swap space.");
MEMORY_FIELD(swap_free, "swap_free_bytes", "Unused swap space.");

static const struct ofs_set_field load_fields[] = {
    {"load1", "", "Tasks that run or wait for a device, mean of 1 minute.", OFS_F64, OFS_GAUGE, 1, 0},
    {"load5", "", "Tasks that run or wait for a device, mean of 5 minutes.", OFS_F64, OFS_GAUGE, 1, 0},
    {"load15", "", "Tasks that run or wait for a device, mean of 15 minutes.", OFS_F64, OFS_GAUGE, 1, 0}};

// port_rcv_data and port_xmit_data count words of four bytes (InfiniBand specification, PortCounters).
#define PORT_FIELD(id, name, unit, text, factor) \
  static const struct ofs_set_field id[] = {     \
      {name "{device=\"%1\",port=\"%2\"}", unit, text, OFS_U64, OFS_COUNTER, factor, 0}}
PORT_FIELD(port_received, "infiniband_received_bytes", "bytes", "Data received at an InfiniBand port.", 4);
PORT_FIELD(port_sent, "infiniband_sent_bytes", "bytes", "Data sent at an InfiniBand port.", 4);
PORT_FIELD(port_received_packets, "infiniband_received_packets", "", "Packets received at an InfiniBand port.", 1);
PORT_FIELD(port_sent_packets, "infiniband_sent_packets", "", "Packets sent at an InfiniBand port.", 1);

#define NETWORK_FIELD(name, unit, text) {name "{device=\"%1\"}", unit, text, OFS_U64, OFS_COUNTER, 1, 0}
static const struct ofs_set_field network_fields[] = {
    NETWORK_FIELD("network_received_bytes", "bytes", "Bytes received at a network interface."),
    NETWORK_FIELD("network_received_packets", "", "Packets received at a network interface."),
    NETWORK_FIELD("network_received_errors", "", "Packets received damaged at a network interface."),
    NETWORK_FIELD("network_received_drops", "", "Packets received and dropped at a network interface."),
    NETWORK_FIELD("network_sent_bytes", "bytes", "Bytes sent at a network interface."),
    NETWORK_FIELD("network_sent_packets", "", "Packets sent at a network interface."),
    NETWORK_FIELD("network_sent_errors", "", "Packets not sent because of errors at a network interface."),
    NETWORK_FIELD("network_sent_drops", "", "Packets dropped before they were sent at a network interface.")};

// The kernel counts microjoules, and wraps to 0 after max_energy_range_uj: some every quarter of an hour.
static const struct ofs_set_field zone_fields[] = {{"energy_joules{zone=\"%1\",name=\"%3\"}", "joules",
                                                    "Energy that a power domain of the processors has used.", OFS_F64,
                                                    OFS_COUNTER, 1, 1e-6}};

// Of monitoring chips (hwmon), among them those that a baseboard controller feeds by ACPI or IPMI.
#define SENSOR_FIELD(id, name, unit, text, kind, scale) \
  static const struct ofs_set_field id[] = {            \
      {name "{chip=\"%3\",device=\"%1\",sensor=\"%2\",label=\"%4\"}", unit, text, OFS_F64, kind, 1, scale}}
SENSOR_FIELD(temperature, "temperature_celsius", "celsius", "Temperature at a sensor.", OFS_GAUGE, 1e-3);
SENSOR_FIELD(fan, "fan_rpm", "rpm", "Revolutions of a fan in a minute.", OFS_GAUGE, 0);
SENSOR_FIELD(voltage, "voltage_volts", "volts", "Voltage at a sensor.", OFS_GAUGE, 1e-3);
SENSOR_FIELD(current, "current_amperes", "amperes", "Current at a sensor.", OFS_GAUGE, 1e-3);
SENSOR_FIELD(power, "power_watts", "watts", "Power at a sensor.", OFS_GAUGE, 1e-6);
SENSOR_FIELD(mean_power, "power_mean_watts", "watts", "Power at a sensor, mean of the sensor's interval.", OFS_GAUGE,
             1e-6);
SENSOR_FIELD(energy, "sensor_energy_joules", "joules", "Energy that has passed a sensor.", OFS_COUNTER, 1e-6);

#define PORT_COUNTERS "/sys/class/infiniband/%1/ports/%2/counters/"
#define EACH_PORT "/sys/class/infiniband/*/ports/*"
#define SENSOR(file) "/sys/class/hwmon/*/" file
static const struct row {
  const char *set, *each, *path, *pattern;  // without a path: the file that matched `each`, with the texts beside it
  const struct ofs_set_field* fields;
  uint32_t count;
} rows[] = {
    {"cpu", NULL, "/proc/stat", "cpu {} {} {} {} {} {} {} {}", cpu_fields, COUNT(cpu_fields)},
    {"cpus", "/sys/devices/system/cpu/cpu*/topology", "/proc/stat", "cpu%1 {} {} {} {} {} {} {} {}", each_cpu_fields,
     COUNT(each_cpu_fields)},
    {"cpu", NULL, "/proc/stat", "ctxt {}", switch_fields, 1},
    {"cpu", NULL, "/proc/stat", "processes {}", fork_fields, 1},
    {"cpu", NULL, "/proc/stat", "procs_running {}", running_fields, 1},
    {"cpu", NULL, "/proc/stat", "procs_blocked {}", blocked_fields, 1},
    {"memory", NULL, "/proc/meminfo", "MemTotal: {}", memory_total, 1},
    {"memory", NULL, "/proc/meminfo", "MemFree: {}", memory_free, 1},
    {"memory", NULL, "/proc/meminfo", "MemAvailable: {}", memory_available, 1},
    {"memory", NULL, "/proc/meminfo", "Buffers: {}", memory_buffers, 1},
    {"memory", NULL, "/proc/meminfo", "Cached: {}", memory_cached, 1},
    {"memory", NULL, "/proc/meminfo", "SwapTotal: {}", swap_total, 1},
    {"memory", NULL, "/proc/meminfo", "SwapFree: {}", swap_free, 1},
    {"memory", NULL, "/proc/meminfo", "Dirty: {}", memory_dirty, 1},
    {"load", NULL, "/proc/loadavg", "{} {} {}", load_fields, COUNT(load_fields)},
    {"infiniband", EACH_PORT, PORT_COUNTERS "port_rcv_data", "{}", port_received, 1},
    {"infiniband", EACH_PORT, PORT_COUNTERS "port_xmit_data", "{}", port_sent, 1},
    {"infiniband", EACH_PORT, PORT_COUNTERS "port_rcv_packets", "{}", port_received_packets, 1},
    {"infiniband", EACH_PORT, PORT_COUNTERS "port_xmit_packets", "{}", port_sent_packets, 1},
    {"network", "/sys/class/net/*", "/proc/net/dev", " %1: {} {} {} {} * * * * {} {} {} {}", network_fields,
     COUNT(network_fields)},
    {"power", "/sys/class/powercap/*/energy_uj", NULL, "{}", zone_fields, 1},
    {"sensors", SENSOR("temp*_input"), NULL, "{}", temperature, 1},
    {"sensors", SENSOR("fan*_input"), NULL, "{}", fan, 1},
    {"sensors", SENSOR("in*_input"), NULL, "{}", voltage, 1},
    {"sensors", SENSOR("curr*_input"), NULL, "{}", current, 1},
    {"sensors", SENSOR("power*_input"), NULL, "{}", power, 1},
    {"sensors", SENSOR("power*_average"), NULL, "{}", mean_power, 1},
    {"sensors", SENSOR("energy*_input"), NULL, "{}", energy, 1},
};

// Values of the driver of NVIDIA's GPUs, by its own program (NVML). A column that a GPU does not have is a word.
// Several words would shift the columns behind them; the last column then does not match the pattern, and no value is
// taken.
#define GPU_COLUMNS                                               \
  "--query-gpu=index,power.draw,temperature.gpu,utilization.gpu," \
  "utilization.memory,memory.used,memory.total,clocks.sm,uuid"
#define GPU_PATTERN "%1, {}* {}* {}* {}* {}* {}* {}* GPU-"
#define GPU_FIELD(name, unit, text, type, factor, scale) \
  {name "{gpu=\"%1\"}", unit, text, type, OFS_GAUGE, factor, scale}
static const char* const gpu_program[] = {"nvidia-smi", GPU_COLUMNS, "--format=csv,noheader,nounits", NULL};
static const struct ofs_set_field gpu_fields[] = {
    GPU_FIELD("gpu_power_watts", "watts", "Power that a GPU draws.", OFS_F64, 1, 0),
    GPU_FIELD("gpu_temperature_celsius", "celsius", "Temperature of a GPU.", OFS_F64, 1, 0),
    GPU_FIELD("gpu_busy_ratio", "ratio", "Share of the time in which a GPU computed.", OFS_F64, 1, 0.01),
    GPU_FIELD("gpu_memory_busy_ratio", "ratio", "Share of the time in which a GPU's memory was read or written.",
              OFS_F64, 1, 0.01),
    GPU_FIELD("gpu_memory_used_bytes", "bytes", "Memory of a GPU that is in use.", OFS_U64, 1 << 20, 0),
    GPU_FIELD("gpu_memory_total_bytes", "bytes", "Memory of a GPU.", OFS_U64, 1 << 20, 0),
    GPU_FIELD("gpu_clock_hertz", "hertz", "Clock of a GPU's processors.", OFS_F64, 1, 1e6)};

// Measurements of a baseboard controller (DCMI).
static const char* const board_program[] = {"ipmitool", "dcmi", "power", "reading", NULL};
static const struct ofs_set_field board_power[] = {{"board_power_watts", "watts",
                                                    "Power of the machine, as its baseboard controller measures it.",
                                                    OFS_F64, OFS_GAUGE, 1, 0}};
static const struct ofs_set_field board_mean_power[] = {
    {"board_power_mean_watts", "watts", "Power of the machine, mean of the baseboard controller's period.", OFS_F64,
     OFS_GAUGE, 1, 0}};

static const struct line {
  const char *set, *each;
  const char* const* program;
  const char* pattern;  // %1 is the number of the match, from 0
  const struct ofs_set_field* fields;
  uint32_t count;
} lines[] = {
    {"nvidia", "/proc/driver/nvidia/gpus/*", gpu_program, GPU_PATTERN, gpu_fields, COUNT(gpu_fields)},
    {"ipmi", "/dev/ipmi0", board_program, " Instantaneous power reading: {} Watts", board_power, 1},
    {"ipmi", "/dev/ipmi0", board_program, " Average power reading over sample period: {} Watts", board_mean_power, 1},
};

enum { PATH_BYTES = 1024, TEXT_BYTES_MAX = 64, NUMBER_BYTES = 12 };

// The text of the file whose path is the first `length` characters of `path` and `rest`.
static void text_beside(const struct ofs_sources* sources, const char* path, size_t length, const char* rest,
                        char text[TEXT_BYTES_MAX]) {
  char whole[2 * PATH_BYTES];
  text[0] = '\0';
  if (length + strlen(rest) >= sizeof whole) return;
  memcpy(whole, path, length);
  strcpy(whole + length, rest);
  ofs_read_line(sources, whole, text, TEXT_BYTES_MAX);
}

// %3 is the text of `name` in the file's directory, %4 that of the sensor's label: temp1_label beside temp1_input.
static bool add_with_texts(struct ofs_sources* sources, const char* path, const char* const parts[OFS_PARTS],
                           const struct row* row) {
  char name[TEXT_BYTES_MAX], label[TEXT_BYTES_MAX], range[TEXT_BYTES_MAX];
  const size_t directory = (size_t)(strrchr(path, '/') - path) + 1;
  text_beside(sources, path, directory, "name", name);
  text_beside(sources, path, (size_t)(strrchr(path, '_') - path), "_label", label);
  const char* const texts[OFS_PARTS] = {parts[0], parts[1], name, label};
  const uint32_t before = sources->source_count;
  if (!ofs_add_file(sources, path, row->pattern, row->fields, row->count, texts)) return false;
  text_beside(sources, path, directory, "max_energy_range_uj", range);
  uint64_t bits;
  if (sources->source_count != before &&
      ofs_read_number(range, range + strlen(range), OFS_F64, 1, row->fields->scale, &bits) != NULL)
    memcpy(&sources->sources[before].range, &bits, sizeof bits);
  return true;
}

static bool add_row(struct ofs_sources* sources, const char* path, const char* const parts[OFS_PARTS],
                    const void* context) {
  const struct row* row = (const struct row*)context;
  return row->path == NULL ? add_with_texts(sources, path, parts, row)
                           : ofs_add_file(sources, row->path, row->pattern, row->fields, row->count, parts);
}

// Lines of one program follow one another: it runs once for all of them.
struct lines_of_set {
  const struct line* line;
  struct ofs_source* source;  // null before the first match
  uint32_t matches;
};

static bool add_line(struct ofs_sources* sources, const char* path, const char* const parts[OFS_PARTS],
                     const void* context) {
  (void)path;
  (void)parts;
  struct lines_of_set* to = *(struct lines_of_set* const*)context;
  if (to->source == NULL) to->source = ofs_add_command(sources, to->line->program);
  char digits[NUMBER_BYTES], *digit = digits + sizeof digits;
  uint32_t left = to->matches++;
  *--digit = '\0';
  do *--digit = (char)('0' + left % 10);
  while ((left /= 10) != 0);
  const char* const numbers[OFS_PARTS] = {digit};
  return ofs_add_fields(sources, to->source, to->line->pattern, to->line->fields, to->line->count, numbers);
}

bool ofs_set_runs_program(const char* set) {
  for (uint32_t i = 0; i < COUNT(lines); ++i)
    if (strcmp(lines[i].set, set) == 0) return true;
  return false;
}

// Without such a device no program is started, and there are no fields.
static bool add_lines(struct ofs_sources* sources, const char* set) {
  struct lines_of_set to = {NULL, NULL, 0};
  struct lines_of_set* const context = &to;
  for (uint32_t i = 0; i < COUNT(lines); ++i) {
    if (strcmp(lines[i].set, set) != 0) continue;
    to.line = &lines[i];
    to.matches = 0;
    if (!ofs_each_match(sources, lines[i].each, add_line, &context)) return false;
  }
  return true;
}

bool ofs_add_set(struct ofs_sources* sources, const char* set) {
  static const char* const none[OFS_PARTS] = {NULL};
  if (ofs_set_runs_program(set)) return add_lines(sources, set);
  bool known = false;
  for (uint32_t i = 0; i < COUNT(rows); ++i) {
    if (strcmp(rows[i].set, set) != 0) continue;
    known = true;
    // A host without InfiniBand, or without sensors, has no such fields.
    const bool added = rows[i].each == NULL ? add_row(sources, NULL, none, &rows[i])
                                            : ofs_each_match(sources, rows[i].each, add_row, &rows[i]);
    if (!added) return false;
  }
  return known ||
         ofs_wrong(sources,
                   "the sets are cpu, cpus, memory, load, infiniband, network, power, sensors, nvidia and ipmi, not",
                   set);
}

// ---- paths with *

enum { MATCHES_MAX = 512, DEPTH_MAX = 16 };

// The part of `name` that * matches in [piece, piece_end), which has at most one *; null: no match.
static const char* part_of(const char* piece, const char* piece_end, const char* name, size_t* length) {
  const char* star = (const char*)memchr(piece, '*', (size_t)(piece_end - piece));
  const size_t front = (size_t)(star - piece), back = (size_t)(piece_end - star - 1), whole = strlen(name);
  if (whole < front + back || memcmp(name, piece, front) != 0 || memcmp(name + whole - back, star + 1, back) != 0)
    return NULL;
  *length = whole - front - back;
  return name + front;
}

// cpu2 before cpu10.
static int compare(const char* a, const char* b) {
  const size_t left = strlen(a), right = strlen(b);
  size_t same = 0;
  while (same < left && a[same] == b[same]) ++same;
  const bool numbers =
      same < left && same < right && a[same] >= '0' && a[same] <= '9' && b[same] >= '0' && b[same] <= '9';
  if (numbers && left != right) return left < right ? -1 : 1;
  return strcmp(a, b);
}

struct walk {
  struct ofs_sources* sources;
  ofs_found found;
  const void* context;
  char path[2 * PATH_BYTES];  // from this machine's root
  size_t root;
  const char* parts[OFS_PARTS];  // two of them matched
  int part_count;
};

static bool walk_on(struct walk* walk, size_t length, const char* rest, int depth);

static bool walk_matches(struct walk* walk, size_t length, const char* piece, const char* piece_end, int depth) {
  walk->path[length] = '\0';
  const int directory = open(walk->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return true;  // no directory, no match
  // Read completely before descending: names have to be in order, and the buffer is on the stack.
  char* names[MATCHES_MAX];
  uint32_t count = 0;
  char entries[4096];
  bool fits = true;
  for (long bytes; fits && (bytes = syscall(SYS_getdents64, directory, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < bytes;) {
      unsigned short record;
      memcpy(&record, entries + at + 16, sizeof record);  // linux_dirent64: ino 8, off 8, reclen 2, type 1, name
      const char* name = entries + at + 19;
      size_t ignored;
      at += record;
      if (name[0] == '.' || part_of(piece, piece_end, name, &ignored) == NULL) continue;
      fits = count < MATCHES_MAX && (names[count] = ofs_take(walk->sources, strlen(name) + 1)) != NULL;
      if (!fits) break;
      strcpy(names[count], name);
      uint32_t to = count++;
      for (; to > 0 && compare(names[to], names[to - 1]) < 0; --to) {
        char* swapped = names[to];
        names[to] = names[to - 1];
        names[to - 1] = swapped;
      }
    }
  }
  close(directory);
  if (count == 0) walk->sources->empty_directory = true;
  if (!fits) return ofs_wrong(walk->sources, "too many files match, at", walk->path);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t name_length = strlen(names[i]);
    size_t part_length;
    const char* part = part_of(piece, piece_end, names[i], &part_length);
    char* copy = ofs_take(walk->sources, part_length + 1);
    if (copy == NULL || length + name_length + 2 > sizeof walk->path)
      return ofs_wrong(walk->sources, "this path is too long:", names[i]);
    memcpy(copy, part, part_length);
    const int part_count = walk->part_count;
    if (part_count < 2) walk->parts[walk->part_count++] = copy;
    memcpy(walk->path + length, names[i], name_length);
    const bool went = walk_on(walk, length + name_length, piece_end, depth + 1);
    walk->part_count = part_count;
    if (!went) return false;
  }
  return true;
}

// `rest` begins with a slash, or is empty: then path[0 .. length) is complete.
static bool walk_on(struct walk* walk, size_t length, const char* rest, int depth) {
  while (*rest == '/') {
    const char* piece = rest + 1;
    const char* piece_end = strchrnul(piece, '/');
    if (length + (size_t)(piece_end - rest) + 1 > sizeof walk->path || depth > DEPTH_MAX)
      return ofs_wrong(walk->sources, "this path is too long:", rest);
    walk->path[length++] = '/';
    if (memchr(piece, '*', (size_t)(piece_end - piece)) != NULL)
      return walk_matches(walk, length, piece, piece_end, depth);
    memcpy(walk->path + length, piece, (size_t)(piece_end - piece));
    length += (size_t)(piece_end - piece);
    rest = piece_end;
  }
  walk->path[length] = '\0';
  if (access(walk->path, F_OK) != 0) return true;
  char* path = ofs_take(walk->sources, length + 1 - walk->root);
  if (path == NULL) return false;
  strcpy(path, walk->path + walk->root);
  for (int i = walk->part_count; i < OFS_PARTS; ++i) walk->parts[i] = NULL;
  return walk->found(walk->sources, path, walk->parts, walk->context);
}

bool ofs_each_match(struct ofs_sources* sources, const char* glob, ofs_found found, const void* context) {
  struct walk walk;
  memset(&walk, 0, sizeof walk);
  walk.sources = sources;
  walk.found = found;
  walk.context = context;
  sources->empty_directory = false;
  walk.root = strlen(sources->root);
  if (walk.root >= PATH_BYTES) return ofs_wrong(sources, "this path is too long:", sources->root);
  memcpy(walk.path, sources->root, walk.root);
  return walk_on(&walk, walk.root, glob, 0);
}
