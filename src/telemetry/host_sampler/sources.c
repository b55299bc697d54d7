#define _GNU_SOURCE
#include "telemetry/host_sampler/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash/siphash.h"

enum { PATH_BYTES = 1024, NAME_BYTES_MAX = 255 };
static const int64_t second_ns = 1000000000;

char* ofs_take(struct ofs_sources* sources, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  if ((size_t)(sources->memory_end - sources->memory) < bytes) {
    ofs_wrong(sources, "there are too many sources, at",
              sources->source_count == 0 ? "the first" : sources->sources[sources->source_count - 1].path);
    return NULL;
  }
  char* taken = sources->memory;
  sources->memory += bytes;
  return taken;
}

// "what 'which'"
bool ofs_wrong(struct ofs_sources* sources, const char* what, const char* which) {
  const size_t room = sizeof sources->why, first = strnlen(what, room / 2), second = strnlen(which, room - first - 4);
  char* to = sources->why;
  memcpy(to, what, first);
  to += first;
  if (second != 0) {
    *to++ = ' ';
    *to++ = '\'';
    memcpy(to, which, second);
    to += second;
    *to++ = '\'';
  }
  *to = '\0';
  return false;
}

bool ofs_sources_init(struct ofs_sources* sources, void* memory, size_t length, const char* root) {
  memset(sources, 0, sizeof *sources);
  sources->memory = (char*)memory;
  sources->memory_end = sources->memory + length;
  sources->root = root == NULL ? "" : root;
  sources->buffer = ofs_take(sources, OFS_FILE_BYTES);
  sources->sources = (struct ofs_source*)(void*)ofs_take(sources, OFS_SOURCES_MAX * sizeof *sources->sources);
  sources->patterns = (struct ofs_pattern*)(void*)ofs_take(sources, OFS_PATTERNS_MAX * sizeof *sources->patterns);
  sources->fields = (struct ofs_field*)(void*)ofs_take(sources, OFS_FIELDS_MAX * sizeof *sources->fields);
  sources->captures = (struct ofs_capture*)(void*)ofs_take(sources, OFS_FIELDS_MAX * sizeof *sources->captures);
  sources->bits = (uint64_t*)(void*)ofs_take(sources, OFS_FIELDS_MAX * sizeof *sources->bits);
  sources->present = (bool*)ofs_take(sources, OFS_FIELDS_MAX * sizeof *sources->present);
  sources->commands = (struct ofs_command**)(void*)ofs_take(sources, OFS_COMMANDS_MAX * sizeof(struct ofs_command*));
  return sources->commands != NULL;
}

// ---- configuration

// The part that %1 to %4 at `at` stands for, or null.
static const char* part_at(const char* at, const char* const parts[OFS_PARTS]) {
  return at[0] == '%' && at[1] >= '1' && at[1] < '1' + OFS_PARTS ? parts[at[1] - '1'] : NULL;
}

// `text` with %1 to %4 replaced. Characters of file names that labels cannot have, quotes and control characters, are
// replaced.
static const char* filled(struct ofs_sources* sources, const char* text, const char* const parts[OFS_PARTS]) {
  size_t length = 1;
  for (const char* at = text; *at != '\0'; ++at) {
    const char* part = part_at(at, parts);
    length += part != NULL ? strlen(part) : 1;
  }
  char* copy = ofs_take(sources, length);
  if (copy == NULL) return NULL;
  char* to = copy;
  for (const char* at = text; *at != '\0'; ++at) {
    const char* part = part_at(at, parts);
    if (part == NULL) {
      *to++ = *at;
      continue;
    }
    ++at;
    for (; *part != '\0'; ++part)
      *to++ = *part == '"' || *part == '\\' || (unsigned char)*part < ' ' || *part == 127 ? '_' : *part;
  }
  *to = '\0';
  return copy;
}

static struct ofs_source* add_source(struct ofs_sources* sources, int way, const char* path) {
  if (sources->source_count == OFS_SOURCES_MAX) {
    ofs_wrong(sources, "there are too many sources, at", path);
    return NULL;
  }
  struct ofs_source* source = &sources->sources[sources->source_count++];
  source->way = way == OFS_FILE ? OFS_FILE : way == OFS_LOG ? OFS_LOG : OFS_COMMAND;
  source->path = path;
  source->fd = -1;
  source->first_pattern = sources->pattern_count;
  return source;
}

// Patterns of a source follow one another; a file that is named twice is read once.
static struct ofs_source* source_of(struct ofs_sources* sources, const char* path) {
  struct ofs_source* last = sources->source_count == 0 ? NULL : &sources->sources[sources->source_count - 1];
  return last != NULL && last->way == OFS_FILE && strcmp(last->path, path) == 0 ? last
                                                                                : add_source(sources, OFS_FILE, path);
}

static bool add_field(struct ofs_sources* sources, const char* name, const char* unit, const char* description,
                      uint8_t kind, const struct ofs_capture* capture) {
  if (name == NULL || sources->field_count == OFS_FIELDS_MAX)
    return ofs_wrong(sources, "there are too many fields, at", name == NULL ? "" : name);
  if (*name == '\0' || strlen(name) > NAME_BYTES_MAX)
    return ofs_wrong(sources, "a field's name is empty or longer than 255 bytes:", name);
  for (uint32_t i = 0; i < sources->field_count; ++i)
    if (strcmp(sources->fields[i].name, name) == 0)
      return ofs_wrong(sources, "there are two fields with the name", name);
  sources->captures[sources->field_count] = *capture;
  const struct ofs_field field = {name, unit == NULL ? "" : unit, description == NULL ? "" : description, kind};
  sources->fields[sources->field_count++] = field;
  return true;
}

static struct ofs_pattern* add_pattern(struct ofs_sources* sources, struct ofs_source* source, const char* text,
                                       uint32_t captures) {
  if (sources->pattern_count == OFS_PATTERNS_MAX) {
    ofs_wrong(sources, "there are too many patterns, at", text);
    return NULL;
  }
  struct ofs_pattern* pattern = &sources->patterns[sources->pattern_count++];
  pattern->text = text;
  pattern->first = sources->field_count;
  pattern->captures = (uint16_t)captures;
  ++source->pattern_count;
  return pattern;
}

bool ofs_add_fields(struct ofs_sources* sources, struct ofs_source* source, const char* pattern,
                    const struct ofs_set_field* fields, uint32_t count, const char* const parts[OFS_PARTS]) {
  const char* text = filled(sources, pattern, parts);
  if (text == NULL || source == NULL || add_pattern(sources, source, text, count) == NULL) return false;
  for (uint32_t i = 0; i < count; ++i) {
    const struct ofs_capture capture = {(enum ofs_type)fields[i].type, fields[i].factor == 0 ? 1 : fields[i].factor,
                                        fields[i].scale == 0 ? 1 : fields[i].scale};
    if (!add_field(sources, filled(sources, fields[i].name, parts), fields[i].unit, fields[i].description,
                   fields[i].kind, &capture))
      return false;
  }
  return true;
}

bool ofs_add_file(struct ofs_sources* sources, const char* path, const char* pattern,
                  const struct ofs_set_field* fields, uint32_t count, const char* const parts[OFS_PARTS]) {
  const char* own_path = filled(sources, path, parts);
  return own_path != NULL && ofs_add_fields(sources, source_of(sources, own_path), pattern, fields, count, parts);
}

// The fields of a [[source]].
struct own_fields {
  const struct ofs_source_options* options;
  const char* pattern;
  uint32_t captures;
  struct ofs_capture capture;
  uint8_t kind;
};

static bool read_fields(struct ofs_sources* sources, const struct ofs_source_options* options, struct own_fields* own) {
  own->options = options;
  own->pattern = options->pattern == NULL ? "{}" : options->pattern;
  const int captures = ofs_pattern_captures(own->pattern);
  if (captures < 0)
    return ofs_wrong(sources, "this is not a pattern (a number is {}, a literal brace \\{):", own->pattern);
  uint32_t names = 0;
  while (names < OFS_CAPTURES_MAX && options->fields[names] != NULL) ++names;
  own->captures = (uint32_t)captures;
  const uint32_t wanted = captures == 0 ? 1 : own->captures;
  if (names != wanted)
    return ofs_wrong(sources, "`fields` has to name each number, or the count of lines, of the pattern", own->pattern);
  const char* type = options->type == NULL ? "u64" : options->type;
  const bool is_real = strcmp(type, "f64") == 0, is_signed = strcmp(type, "i64") == 0;
  if (!is_real && !is_signed && strcmp(type, "u64") != 0)
    return ofs_wrong(sources, "a type has to be u64, i64 or f64, not", type);
  const char* kind = options->kind == NULL ? captures == 0 ? "counter" : "gauge" : options->kind;
  if (strcmp(kind, "gauge") != 0 && strcmp(kind, "counter") != 0)
    return ofs_wrong(sources, "a kind has to be gauge or counter, not", kind);
  const double scale = options->scale == 0 ? 1 : options->scale;
  const uint64_t factor = scale >= 1 && scale < 1e18 ? (uint64_t)scale : 0;
  if (!is_real && (double)factor != scale)
    return ofs_wrong(sources, "the scale of whole numbers has to be a whole number (otherwise set type f64), of field",
                     options->fields[0]);
  own->kind = strcmp(kind, "counter") == 0 ? OFS_COUNTER : OFS_GAUGE;
  own->capture.type = is_real ? OFS_F64 : is_signed ? OFS_I64 : OFS_U64;
  own->capture.factor = factor;
  own->capture.scale = scale;
  return true;
}

// With a label if the path had a *: name{label="part"}
static bool add_own_fields(struct ofs_sources* sources, struct ofs_source* source, const struct own_fields* own,
                           const char* part) {
  struct ofs_pattern* pattern = source == NULL ? NULL : add_pattern(sources, source, own->pattern, own->captures);
  if (pattern == NULL) return false;
  const struct ofs_source_options* options = own->options;
  pattern->counts = own->captures == 0;
  for (uint32_t i = 0; i < (own->captures == 0 ? 1 : own->captures); ++i) {
    const char* name = options->fields[i];
    if (part != NULL) {
      const char *label = options->label == NULL ? "of" : options->label, *parts[OFS_PARTS] = {part};
      char text[2 * PATH_BYTES];
      if (strlen(name) + strlen(label) + 8 > sizeof text) return ofs_wrong(sources, "this name is too long:", name);
      char* to = stpcpy(stpcpy(stpcpy(text, name), "{"), label);
      strcpy(to, "=\"%1\"}");
      name = filled(sources, text, parts);
    }
    if (!add_field(sources, name, options->unit, options->description, own->kind, &own->capture)) return false;
  }
  return true;
}

static bool add_matching_file(struct ofs_sources* sources, const char* path, const char* const parts[OFS_PARTS],
                              const void* context) {
  return add_own_fields(sources, source_of(sources, path), (const struct own_fields*)context, parts[0]);
}

struct ofs_source* ofs_add_command(struct ofs_sources* sources, const char* const* arguments) {
  if (sources->command_count == OFS_COMMANDS_MAX) {
    ofs_wrong(sources, "there are too many commands, at", arguments[0]);
    return NULL;
  }
  struct ofs_command* command = (struct ofs_command*)(void*)ofs_take(sources, sizeof *command);
  struct ofs_source* source = command == NULL ? NULL : add_source(sources, OFS_COMMAND, arguments[0]);
  if (source == NULL) return NULL;
  command->arguments = (char* const*)arguments;
  command->interval_ns = 10 * second_ns;
  command->limit_ns = 5 * second_ns;
  command->pipe = -1;
  sources->commands[sources->command_count++] = command;
  source->command = command;
  return source;
}

static void pace(struct ofs_command* command, const struct ofs_source_options* options) {
  if (options->interval_ns != 0) command->interval_ns = options->interval_ns;
  if (options->time_limit_ns != 0) command->limit_ns = options->time_limit_ns;
}

static bool add_set(struct ofs_sources* sources, const struct ofs_source_options* options) {
  const uint32_t before = sources->command_count;
  if (!ofs_add_set(sources, options->set)) return false;
  for (uint32_t i = before; i < sources->command_count; ++i) pace(sources->commands[i], options);
  return true;
}

static bool add_own_command(struct ofs_sources* sources, const struct ofs_source_options* options,
                            const struct own_fields* own) {
  const char** arguments = (const char**)(void*)ofs_take(sources, sizeof options->command);
  if (arguments == NULL) return false;
  memcpy(arguments, options->command, sizeof options->command);
  struct ofs_source* source = ofs_add_command(sources, arguments);
  if (source != NULL) pace(source->command, options);
  return add_own_fields(sources, source, own, NULL);
}

bool ofs_sources_add(struct ofs_sources* sources, const struct ofs_source_options* options) {
  const int ways =
      (options->set != NULL) + (options->file != NULL) + (options->log != NULL) + (options->command[0] != NULL);
  if (ways != 1) return ofs_wrong(sources, "a source needs exactly one of set, file, log and command", "");
  if (options->set != NULL) return add_set(sources, options);
  struct own_fields own;
  if (!read_fields(sources, options, &own)) return false;
  if (options->command[0] != NULL)
    return own.captures == 0 ? ofs_wrong(sources, "the pattern takes no number:", own.pattern)
                             : add_own_command(sources, options, &own);
  const char* path = options->file != NULL ? options->file : options->log;
  if (*path != '/') return ofs_wrong(sources, "this is not an absolute path:", path);
  if (options->log != NULL) return add_own_fields(sources, add_source(sources, OFS_LOG, path), &own, NULL);
  if (own.captures == 0) return ofs_wrong(sources, "the pattern takes no number:", own.pattern);
  if (strchr(path, '*') == NULL) return add_own_fields(sources, source_of(sources, path), &own, NULL);
  const uint32_t before = sources->field_count;
  if (!ofs_each_match(sources, path, add_matching_file, &own)) return false;
  // Directories of jobs come and go; a path without any existing directory is a mistake.
  return sources->field_count != before || sources->empty_directory || ofs_wrong(sources, "no file matches", path);
}

// ---- reading

static int open_below(const struct ofs_sources* sources, const char* path) {
  char whole[2 * PATH_BYTES];
  const size_t root = strlen(sources->root), length = strlen(path);
  if (root + length >= sizeof whole) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(whole, sources->root, root);
  memcpy(whole + root, path, length + 1);
  // A fifo without a writer must not stop the sampler.
  return open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

void ofs_read_line(const struct ofs_sources* sources, const char* path, char* line, size_t room) {
  const int fd = open_below(sources, path);
  const ssize_t length = fd < 0 ? 0 : pread(fd, line, room - 1, 0);
  line[length > 0 ? length : 0] = '\0';
  *strchrnul(line, '\n') = '\0';
  if (fd >= 0) close(fd);
}

static void miss(struct ofs_sources* sources, const struct ofs_source* source) {
  for (uint32_t p = source->first_pattern; p < source->first_pattern + source->pattern_count; ++p)
    memset(sources->present + sources->patterns[p].first, 0, sources->patterns[p].captures);
}

// Each line goes to the first pattern that matches and is still unused, starting after the last one used: the kernel's
// files mostly have their lines in the order of the patterns.
static void take_lines(struct ofs_sources* sources, const struct ofs_source* source, const char* at, const char* end) {
  bool taken[1024];
  const uint32_t count = source->pattern_count;
  const bool remembers = count <= sizeof taken;
  if (remembers) memset(taken, 0, count);
  uint32_t next = 0, left = count;
  while (at < end && left != 0) {
    const char* stop = (const char*)memchr(at, '\n', (size_t)(end - at));
    if (stop == NULL) stop = end;
    for (uint32_t tried = 0; tried < count; ++tried) {
      const uint32_t which = next + tried < count ? next + tried : next + tried - count;
      if (remembers && taken[which]) continue;
      const struct ofs_pattern* pattern = &sources->patterns[source->first_pattern + which];
      if (!ofs_match(pattern->text, at, stop, sources->captures + pattern->first, sources->bits + pattern->first,
                     sources->present + pattern->first))
        continue;
      if (remembers) taken[which] = true;
      next = which + 1 == count ? 0 : which + 1;
      --left;
      break;
    }
    at = stop + 1;
  }
}

static bool reopen(struct ofs_sources* sources, struct ofs_source* source, int64_t now_ns) {
  if (source->fd >= 0) return true;
  if (now_ns < source->look_ns) return false;
  source->fd = open_below(sources, source->path);
  if (source->fd >= 0) return true;
  source->error = errno;
  source->look_ns = now_ns + second_ns;
  return false;
}

static void give_up(struct ofs_sources* sources, struct ofs_source* source, int error, int64_t now_ns) {
  source->error = error;
  source->look_ns = now_ns + second_ns;
  ++sources->failures;
  close(source->fd);
  source->fd = -1;
}

// A counter that has wrapped since the last read continues behind its range.
static void count_on(struct ofs_sources* sources, struct ofs_source* source) {
  const uint32_t field = sources->patterns[source->first_pattern].first;
  if (!sources->present[field]) return;
  double read;
  memcpy(&read, &sources->bits[field], sizeof read);
  if (read < source->newest) source->passed += source->range;
  source->newest = read;
  read += source->passed;
  memcpy(&sources->bits[field], &read, sizeof read);
}

static void read_file(struct ofs_sources* sources, struct ofs_source* source, int64_t now_ns) {
  miss(sources, source);
  if (!reopen(sources, source, now_ns)) return;
  ++sources->reads;
  size_t length = 0;
  ssize_t count = 1;
  while (length < OFS_FILE_BYTES) {
    count = pread(source->fd, sources->buffer + length, OFS_FILE_BYTES - length, (off_t)length);
    if (count <= 0) break;
    length += (size_t)count;
    // The kernel returns a list of small records a page at a time; a short read is the whole file, which saves another
    // read.
    if (length < 2048) break;
  }
  if (count < 0 || length == 0) {
    give_up(sources, source, count < 0 ? errno : ENODATA, now_ns);
    return;
  }
  source->error = 0;
  take_lines(sources, source, sources->buffer, sources->buffer + length);
  if (source->range > 0) count_on(sources, source);
}

static void take_log_line(struct ofs_sources* sources, const struct ofs_source* source, const char* at,
                          const char* end) {
  for (uint32_t p = source->first_pattern; p < source->first_pattern + source->pattern_count; ++p) {
    const struct ofs_pattern* pattern = &sources->patterns[p];
    uint64_t* bits = sources->bits + pattern->first;
    bool* present = sources->present + pattern->first;
    if (ofs_search(pattern->text, at, end, sources->captures + pattern->first, bits, present) && pattern->counts)
      ++*bits;
  }
}

// Reads whole lines from the end of the last look. A line longer than OFS_LOG_BYTES is skipped.
static bool take_log(struct ofs_sources* sources, struct ofs_source* source) {
  const ssize_t count = pread(source->fd, sources->buffer, OFS_LOG_BYTES, (off_t)source->offset);
  if (count <= 0) return count == 0;
  const char *at = sources->buffer, *end = at + count;
  for (const char* stop; (stop = (const char*)memchr(at, '\n', (size_t)(end - at))) != NULL; at = stop + 1)
    take_log_line(sources, source, at, stop);
  source->offset +=
      at == sources->buffer && count == OFS_LOG_BYTES ? (uint64_t)count : (uint64_t)(at - sources->buffer);
  return true;
}

// A log that is opened for the first time is read from its end, like tail; a file that replaced it later is read from
// its start.
static bool open_log(struct ofs_sources* sources, struct ofs_source* source, bool from_end, int64_t now_ns) {
  if (!reopen(sources, source, now_ns)) return false;
  struct stat status;
  if (fstat(source->fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    give_up(sources, source, EINVAL, now_ns);
    return false;
  }
  source->device = status.st_dev;
  source->inode = status.st_ino;
  source->offset = from_end ? (uint64_t)status.st_size : 0;
  source->look_ns = now_ns + second_ns;
  return true;
}

static void follow_rotation(struct ofs_sources* sources, struct ofs_source* source, int64_t now_ns) {
  struct stat status;
  source->look_ns = now_ns + second_ns;
  if (fstat(source->fd, &status) == 0 && (uint64_t)status.st_size < source->offset)
    source->offset = 0;  // truncated and written again
  const int fd = open_below(sources, source->path);
  if (fd < 0) return;  // renamed, and its successor does not exist
  if (fstat(fd, &status) != 0 || (status.st_dev == source->device && status.st_ino == source->inode)) {
    close(fd);
    return;
  }
  take_log(sources, source);  // lines written to the old file since then
  close(source->fd);
  source->fd = fd;
  open_log(sources, source, false, now_ns);
}

static void read_log(struct ofs_sources* sources, struct ofs_source* source, int64_t now_ns) {
  for (uint32_t p = source->first_pattern; p < source->first_pattern + source->pattern_count; ++p)
    if (sources->patterns[p].counts) sources->present[sources->patterns[p].first] = source->error == 0;
  if (source->fd < 0) {
    const bool first = source->inode == 0 && source->look_ns == 0;
    if (!open_log(sources, source, first, now_ns)) return;
    source->error = 0;
  } else if (now_ns >= source->look_ns) {
    follow_rotation(sources, source, now_ns);
    if (source->fd < 0) return;
  }
  ++sources->reads;
  if (!take_log(sources, source)) {
    give_up(sources, source, errno, now_ns);
    miss(sources, source);
  }
}

static void step_command(struct ofs_sources* sources, struct ofs_source* source, int64_t now_ns) {
  struct ofs_command* command = source->command;
  if (ofs_command_step(command, now_ns)) {
    miss(sources, source);
    take_lines(sources, source, command->output, command->output + command->length);
    source->fresh_until_ns = now_ns + 3 * command->interval_ns + command->limit_ns;
  } else if (now_ns >= source->fresh_until_ns) {
    miss(sources, source);
  }
}

void ofs_sources_step(struct ofs_sources* sources, int64_t now_ns) {
  if (sources->command_count == 0) return;
  for (uint32_t i = 0; i < sources->source_count; ++i)
    if (sources->sources[i].way == OFS_COMMAND) step_command(sources, &sources->sources[i], now_ns);
}

void ofs_sources_read(struct ofs_sources* sources, int64_t now_ns) {
  for (uint32_t i = 0; i < sources->source_count; ++i) {
    struct ofs_source* source = &sources->sources[i];
    if (source->way == OFS_FILE)
      read_file(sources, source, now_ns);
    else if (source->way == OFS_LOG)
      read_log(sources, source, now_ns);
    else
      step_command(sources, source, now_ns);
  }
}

int64_t ofs_sources_deadline(const struct ofs_sources* sources) {
  int64_t first = INT64_MAX;
  for (uint32_t i = 0; i < sources->command_count; ++i) {
    const int64_t deadline = ofs_command_deadline(sources->commands[i]);
    if (deadline < first) first = deadline;
  }
  return first;
}

void ofs_sources_close(struct ofs_sources* sources) {
  for (uint32_t i = 0; i < sources->source_count; ++i)
    if (sources->sources[i].fd >= 0) close(sources->sources[i].fd);
  for (uint32_t i = 0; i < sources->command_count; ++i) ofs_command_stop(sources->commands[i]);
}

// ---- schema

struct writer {
  uint8_t *at, *end;
  bool whole;
};

static void put(struct writer* writer, const void* bytes, size_t length) {
  if ((size_t)(writer->end - writer->at) < length) {
    writer->whole = false;
    return;
  }
  memcpy(writer->at, bytes, length);
  writer->at += length;
}

static void put_text(struct writer* writer, const char* text) {
  const uint16_t length = (uint16_t)strlen(text);
  put(writer, &length, sizeof length);
  put(writer, text, length);
}

size_t ofs_sources_schema(const struct ofs_sources* sources, const char* name, uint8_t* to, size_t room) {
  struct writer writer = {to, to + room, true};
  put_text(&writer, name);
  put(&writer, &sources->field_count, sizeof sources->field_count);
  for (uint32_t i = 0; i < sources->field_count; ++i) {
    const uint8_t type = (uint8_t)sources->captures[i].type;
    put_text(&writer, sources->fields[i].name);
    put(&writer, &type, 1);
    put(&writer, &sources->fields[i].kind, 1);
    put_text(&writer, sources->fields[i].unit);
    put_text(&writer, sources->fields[i].description);
  }
  return writer.whole ? (size_t)(writer.at - to) : 0;
}

uint64_t ofs_schema_id(const uint8_t* schema, size_t length) {
  static const uint8_t key[16] = {'o', 'f', 'f', 'p', 'a', 't', 'h', ' ', 's', 'c', 'h', 'e', 'm', 'a', ' ', '1'};
  const uint64_t id = ofp_siphash64(key, schema, length);
  return id == 0 ? 1 : id;
}
