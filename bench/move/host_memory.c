/* The memory that the host library adds to a C program that sends: `bench_host_memory LIBRARY ADDRESS`. The program
 * loads the library itself, so that it can measure its own memory before and after. Prints one line:
 *
 *     resident_before resident_after threads_before threads_after
 *
 * in bytes, and then the newly mapped shared objects, one on each line. */
#include <dirent.h>
#include <dlfcn.h>
#include <offpath/offpath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { columns_count = 16, column_bytes = 64 << 10, sends = 1000, objects_max = 128 };

static unsigned long long resident_bytes(void) {
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  unsigned long long kib = 0;
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "Rss: %llu kB", &kib) == 1) break;
  }
  if (file) fclose(file);
  return kib << 10;
}

static int threads(void) {
  DIR* tasks = opendir("/proc/self/task");
  int count = 0;
  for (struct dirent* entry; tasks && (entry = readdir(tasks)) != NULL;) count += entry->d_name[0] != '.';
  if (tasks) closedir(tasks);
  return count;
}

/* Writes the paths of the mapped shared objects; returns their number. */
static int objects(char paths[objects_max][256]) {
  FILE* file = fopen("/proc/self/maps", "r");
  char line[512];
  int count = 0;
  while (file && fgets(line, sizeof line, file) && count < objects_max) {
    char* path = strchr(line, '/');
    if (path == NULL || strstr(path, ".so") == NULL) continue;
    path[strcspn(path, "\n")] = '\0';
    int known = 0;
    for (int i = 0; i < count; ++i) known |= strcmp(paths[i], path) == 0;
    if (!known) snprintf(paths[count++], sizeof paths[0], "%.255s", path);
  }
  if (file) fclose(file);
  return count;
}

#define FIND(name)                                  \
  *(void**)&name##_ = dlsym(library, #name);        \
  if (name##_ == NULL) {                            \
    fprintf(stderr, "%s: no %s\n", argv[1], #name); \
    return 2;                                       \
  }

int main(int argc, char** argv) {
  static char before[objects_max][256], after[objects_max][256];
  if (argc != 3) {
    fprintf(stderr, "usage: bench_host_memory LIBRARY ADDRESS\n");
    return 2;
  }
  char* data = malloc((size_t)columns_count * column_bytes);
  if (data == NULL) return 2;
  memset(data, 1, (size_t)columns_count * column_bytes);
  const int objects_before = objects(before);
  const int threads_before = threads();
  const unsigned long long resident_before = resident_bytes();

  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  __typeof__(&ofp_connect) ofp_connect_;
  __typeof__(&ofp_stream_open_columns) ofp_stream_open_columns_;
  __typeof__(&ofp_send_columns) ofp_send_columns_;
  __typeof__(&ofp_wait_stored) ofp_wait_stored_;
  FIND(ofp_connect)
  FIND(ofp_stream_open_columns)
  FIND(ofp_send_columns)
  FIND(ofp_wait_stored)

  ofp_error error = {0};
  ofp_channel* channel = NULL;
  ofp_stream* stream = NULL;
  ofp_column columns[columns_count];
  const void* sources[columns_count];
  char names[columns_count][16];
  for (int c = 0; c < columns_count; ++c) {
    snprintf(names[c], sizeof names[c], "column%d", c);
    columns[c] = (ofp_column){.name = names[c], .format = "g"};
    sources[c] = data + (size_t)c * column_bytes;
  }
  ofp_stream_options options = {.struct_bytes = sizeof options, .rows_max = column_bytes / sizeof(double), .keep = 1};
  int code = ofp_connect_(argv[2], NULL, &channel, &error);
  if (code == OFP_OK) {
    code = ofp_stream_open_columns_(channel, "bench-host-memory", columns, columns_count, &options, &stream, &error);
  }
  for (int i = 0; code == OFP_OK && i < sends; ++i) {
    char key[16];
    uint64_t ticket = 0;
    snprintf(key, sizeof key, "%d", i);
    code = ofp_send_columns_(stream, sources, options.rows_max, key, "bench", OFP_SEND_WAIT | OFP_SEND_ANNOUNCE,
                             &ticket, &error);
    if (code == OFP_OK) code = ofp_wait_stored_(stream, ticket, 10000000000, &error);
  }
  if (code != OFP_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 2;
  }
  printf("%llu %llu %d %d\n", resident_before, resident_bytes(), threads_before, threads());
  const int objects_after = objects(after);
  for (int i = 0; i < objects_after; ++i) {
    int known = 0;
    for (int j = 0; j < objects_before; ++j) known |= strcmp(before[j], after[i]) == 0;
    if (!known) printf("%s\n", after[i]);
  }
  return 0; /* the channel is left open, so that its memory is measured */
}
