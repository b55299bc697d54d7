// offpath-region-sampler: offpath-sampler becomes this program when its configuration names an agent. It reads the same
// sources at a steady rate and writes them, as gauges of a program, to memory that the agent reads one-sided. It uses
// the host library like any other program, so it works over every link.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "offpath/offpath.h"
#include "telemetry/host_sampler/configuration.h"

static char memory[OFS_MEMORY_MIN], text[256 << 10];
static struct ofs_configuration configuration;
static struct ofs_sources sources;
static ofp_gauge gauges_list[OFS_FIELDS_MAX];
static const int64_t reconnect_ns = 1000000000;

static int64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static void sleep_until(int64_t at_ns) {
  const struct timespec at = {at_ns / 1000000000, at_ns % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static int die(const char* what, const char* why) {
  fprintf(stderr, "offpath-region-sampler: %s%s\n", what, why);
  return 2;
}

static const char* add_sources(void) {
  static const char* const usual[] = {"cpu", "memory", "load", "infiniband", "network"};
  if (!ofs_sources_init(&sources, memory, sizeof memory, configuration.root)) return sources.why;
  for (size_t i = 0; configuration.source_count == 0 && i < sizeof usual / sizeof *usual; ++i)
    if (!ofs_add_set(&sources, usual[i])) return sources.why;
  for (uint32_t i = 0; i < configuration.source_count; ++i)
    if (!ofs_sources_add(&sources, &configuration.sources[i])) return sources.why;
  return sources.field_count == 0 ? "the sources have no fields" : NULL;
}

static void name_gauges(void) {
  static const char* const types[] = {"u64", "i64", "f64"};
  for (uint32_t i = 0; i < sources.field_count; ++i) {
    const struct ofs_field* field = &sources.fields[i];
    const ofp_gauge gauge = {field->name, types[sources.captures[i].type],
                             field->kind == OFS_COUNTER ? "counter" : "gauge", field->unit, field->description};
    gauges_list[i] = gauge;
  }
}

// Returns when the agent is gone.
static void write_values(ofp_channel* channel, ofp_gauges* gauges, int64_t interval_ns) {
  static uint8_t present[OFS_FIELDS_MAX];
  ofp_error error;
  for (int64_t next_ns = clock_ns(CLOCK_MONOTONIC); ofp_poll(channel, &error) == OFP_OK;) {
    const int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    ofs_sources_read(&sources, now_ns);
    ofs_kill_orphans((const struct ofs_command* const*)sources.commands, sources.command_count);
    for (uint32_t i = 0; i < sources.field_count; ++i) present[i] = sources.present[i];
    if (ofp_gauges_write(gauges, sources.bits, present, clock_ns(CLOCK_REALTIME),
                         (uint64_t)clock_ns(CLOCK_PROCESS_CPUTIME_ID), &error) != OFP_OK)
      return;
    next_ns = next_ns + interval_ns > now_ns ? next_ns + interval_ns : now_ns;
    sleep_until(next_ns);
  }
}

static const char usage[] = "usage: offpath-region-sampler CONFIGURATION.toml";

int main(int count, char** values) {
  if (count == 2 && strcmp(values[1], "--help") == 0) {
    printf(
        "%s\nWrites this host's values to memory that its agent reads. offpath-sampler starts it where `agent` is "
        "set.\n",
        usage);
    return 0;
  }
  if (count != 2) return die(usage, "");
  const int file = open(values[1], O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (length < 0) return die("cannot read ", values[1]);
  close(file);
  text[length] = '\0';
  if (!ofs_read_configuration(&configuration, text)) return die(values[1], configuration.why);
  const char* why = add_sources();
  if (why != NULL) return die("[[source]]: ", why);
  if (configuration.agent == NULL) return die(values[1], ": [sampler] needs agent");
  name_gauges();
  char name[256] = "host";
  if (configuration.name == NULL && gethostname(name, sizeof name - 1) == 0) configuration.name = name;
  if (configuration.name == NULL) configuration.name = "host";
  const int64_t interval_ns = configuration.interval_ns == 0 ? 1000000000 : configuration.interval_ns;
  if (sources.command_count != 0) ofs_adopt_orphans();
  const ofp_connect_options options = {
      .struct_bytes = sizeof options, .name = "offpath-region-sampler", .key_file = configuration.key_file};
  // The agent may come back.
  for (;; sleep_until(clock_ns(CLOCK_MONOTONIC) + reconnect_ns)) {
    ofp_channel* channel = NULL;
    ofp_gauges* gauges = NULL;
    ofp_error error;
    if (ofp_connect(configuration.agent, &options, &channel, &error) != OFP_OK) {
      die(configuration.agent, error.message);
      continue;
    }
    if (ofp_gauges_open(channel, configuration.name, gauges_list, sources.field_count, &gauges, &error) == OFP_OK) {
      fprintf(stderr, "offpath-region-sampler: writing %u values for %s\n", sources.field_count, configuration.agent);
      write_values(channel, gauges, interval_ns);
      ofp_gauges_close(gauges);
    } else {
      die("", error.message);
    }
    ofp_close(channel);
  }
}
