#include "telemetry/host_sampler/configuration.h"

#include <string.h>

struct reader {
  struct ofs_configuration* to;
  char* at;
  uint32_t line;
  enum { NOWHERE, SAMPLER, SOURCE } table;
};

static char* append(char* to, const char* text, const char* end) {
  while (*text != '\0' && to < end) *to++ = *text++;
  *to = '\0';
  return to;
}

static bool wrong(struct reader* reader, const char* what, const char* which) {
  char digits[12], *digit = digits + sizeof digits;
  *--digit = '\0';
  uint32_t line = reader->line;
  do *--digit = (char)('0' + line % 10);
  while ((line /= 10) != 0);
  char *to = reader->to->why, *end = to + sizeof reader->to->why - 1;
  to = append(to, "line ", end);
  to = append(to, digit, end);
  to = append(to, ": ", end);
  to = append(to, what, end);
  if (*which != '\0') {
    to = append(to, " '", end);
    to = append(to, which, end);
    append(to, "'", end);
  }
  return false;
}

static void skip_blank(struct reader* reader) {
  while (*reader->at == ' ' || *reader->at == '\t') ++reader->at;
}

static bool at_end_of_line(struct reader* reader) {
  skip_blank(reader);
  if (*reader->at == '#')
    while (*reader->at != '\n' && *reader->at != '\0') ++reader->at;
  return *reader->at == '\n' || *reader->at == '\0' || (*reader->at == '\r' && reader->at[1] == '\n');
}

// Unescaped in place, which only makes it shorter.
static bool read_text(struct reader* reader, const char** text) {
  const char quote = *reader->at;
  if (quote != '"' && quote != '\'') return wrong(reader, "a text in quotes is expected", "");
  char *from = reader->at + 1, *to = reader->at + 1;
  *text = to;
  for (; *from != quote; ++from) {
    if (*from == '\n' || *from == '\0') return wrong(reader, "a text has no end", "");
    if (*from != '\\' || quote == '\'') {
      *to++ = *from;
      continue;
    }
    switch (*++from) {
      case '"':
      case '\\':
        *to++ = *from;
        break;
      case 't':
        *to++ = '\t';
        break;
      default:
        return wrong(reader, "in a text in double quotes write a backslash twice", "");
    }
  }
  reader->at = from + 1;
  *to = '\0';
  return true;
}

static bool read_texts(struct reader* reader, const char** texts, uint32_t most) {
  uint32_t count = 0;
  if (*reader->at == '"' || *reader->at == '\'') return read_text(reader, texts);
  if (*reader->at != '[') return wrong(reader, "a list of texts is expected, [\"a\", \"b\"]", "");
  ++reader->at;
  for (;;) {
    skip_blank(reader);
    if (*reader->at == ']') break;
    if (count == most) return wrong(reader, "this list is too long", "");
    if (!read_text(reader, &texts[count++])) return false;
    skip_blank(reader);
    if (*reader->at == ',')
      ++reader->at;
    else if (*reader->at != ']')
      return wrong(reader, "texts of a list need a comma between them", "");
  }
  ++reader->at;
  return count != 0 || wrong(reader, "this list is empty", "");
}

static bool read_duration(struct reader* reader, int64_t* ns) {
  const char* text;
  if (!read_text(reader, &text)) return false;
  static const struct {
    const char* unit;
    double ns;
  } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
  const char* unit = text;
  while ((*unit >= '0' && *unit <= '9') || *unit == '.') ++unit;
  uint64_t bits;
  double value = 0;
  if (ofs_read_number(text, unit, OFS_F64, 1, 1, &bits) != NULL) memcpy(&value, &bits, sizeof value);
  for (size_t i = 0; i < sizeof units / sizeof *units; ++i) {
    if (strcmp(unit, units[i].unit) != 0 || value * units[i].ns < 1e3 || value * units[i].ns > 1e15) continue;
    *ns = (int64_t)(value * units[i].ns);
    return true;
  }
  return wrong(reader, "this is not a duration of at least 1us, such as 250ms:", text);
}

static bool read_real(struct reader* reader, double* value) {
  uint64_t bits;
  const char* end = reader->at + strcspn(reader->at, " \t\r\n#");
  if (ofs_read_number(reader->at, end, OFS_F64, 1, 1, &bits) != end) return wrong(reader, "a number is expected", "");
  memcpy(value, &bits, sizeof *value);
  reader->at += end - reader->at;
  return *value > 0 || wrong(reader, "a scale has to be more than 0", "");
}

static bool read_sampler_key(struct reader* reader, const char* key) {
  struct ofs_configuration* to = reader->to;
  if (strcmp(key, "listen") == 0) return read_text(reader, &to->listen);
  if (strcmp(key, "key_file") == 0) return read_text(reader, &to->key_file);
  if (strcmp(key, "root") == 0) return read_text(reader, &to->root);
  if (strcmp(key, "name") == 0) return read_text(reader, &to->name);
  if (strcmp(key, "agent") == 0) return read_text(reader, &to->agent);
  if (strcmp(key, "interval") == 0) return read_duration(reader, &to->interval_ns);
  return wrong(reader, "[sampler] has listen, key_file, root, name, agent and interval, but no key", key);
}

static bool read_source_key(struct reader* reader, const char* key) {
  struct ofs_source_options* to = &reader->to->sources[reader->to->source_count - 1];
  const struct {
    const char* key;
    const char** text;
  } texts[] = {{"set", &to->set},         {"file", &to->file},   {"log", &to->log},
               {"pattern", &to->pattern}, {"label", &to->label}, {"type", &to->type},
               {"kind", &to->kind},       {"unit", &to->unit},   {"description", &to->description}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i)
    if (strcmp(key, texts[i].key) == 0) return read_text(reader, texts[i].text);
  if (strcmp(key, "command") == 0) return read_texts(reader, to->command, OFS_ARGUMENTS_MAX);
  if (strcmp(key, "fields") == 0) return read_texts(reader, to->fields, OFS_CAPTURES_MAX);
  if (strcmp(key, "scale") == 0) return read_real(reader, &to->scale);
  if (strcmp(key, "interval") == 0) return read_duration(reader, &to->interval_ns);
  if (strcmp(key, "time_limit") == 0) return read_duration(reader, &to->time_limit_ns);
  return wrong(reader,
               "[[source]] has set, file, log, command, pattern, fields, label, type, kind, unit, description, scale, "
               "interval and time_limit, but no key",
               key);
}

static bool read_table(struct reader* reader) {
  const size_t length = strcspn(reader->at, " \t\r\n#");
  struct ofs_configuration* to = reader->to;
  if (length == 9 && memcmp(reader->at, "[sampler]", 9) == 0) {
    reader->table = SAMPLER;
  } else if (length == 10 && memcmp(reader->at, "[[source]]", 10) == 0) {
    if (to->source_count == sizeof to->sources / sizeof *to->sources)
      return wrong(reader, "there are too many sources", "");
    to->source_lines[to->source_count++] = reader->line;
    reader->table = SOURCE;
  } else {
    reader->at[length] = '\0';
    return wrong(reader, "the tables are [sampler] and [[source]], not", reader->at);
  }
  reader->at += length;
  return true;
}

static bool read_key(struct reader* reader) {
  char* key = reader->at;
  const size_t length = strspn(key, "abcdefghijklmnopqrstuvwxyz_");
  reader->at += length;
  skip_blank(reader);
  if (length == 0 || *reader->at != '=') return wrong(reader, "key = value is expected", "");
  ++reader->at;
  skip_blank(reader);
  key[length] = '\0';  // the blank or = after it
  if (reader->table == SAMPLER) return read_sampler_key(reader, key);
  if (reader->table == SOURCE) return read_source_key(reader, key);
  return wrong(reader, "this key is in no table:", key);
}

bool ofs_read_configuration(struct ofs_configuration* configuration, char* text) {
  struct reader reader = {configuration, text, 1, NOWHERE};
  for (;; ++reader.line) {
    if (!at_end_of_line(&reader)) {
      if (!(*reader.at == '[' ? read_table(&reader) : read_key(&reader))) return false;
      if (!at_end_of_line(&reader)) return wrong(&reader, "there is text after the value", "");
    }
    if (*reader.at == '\r') ++reader.at;
    if (*reader.at == '\0') return true;
    ++reader.at;
  }
}
