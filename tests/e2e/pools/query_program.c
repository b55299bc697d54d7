/* Queries in C, from text.
 *
 *     query_program
 *         makes a query of each line of standard input: a filter, then columns and, behind @, aggregates, between tabs.
 *         Prints the query's bytes in hex, or ! and the failure.
 *     query_program ADDRESS POOL FILTER [COLUMN | @AGGREGATE]...
 *         writes the frames of the answer to standard output, each behind its length in 8 bytes; a failure goes to
 *         standard error. */
#include <inttypes.h>
#include <offpath/offpath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { parts_max = 64, line_bytes_max = 1 << 16 };
static const int64_t patience_ns = 60000000000;

typedef struct {
  const char* columns[parts_max];
  const char* aggregates[parts_max];
  ofp_query_text text;
} question;

static void begin(question* asked, const char* filter) {
  memset(asked, 0, sizeof *asked);
  asked->text.struct_bytes = sizeof asked->text;
  asked->text.filter = filter;
  asked->text.columns = asked->columns;
  asked->text.aggregates = asked->aggregates;
}

static void add(question* asked, const char* part) {
  if (asked->text.columns_count == parts_max || asked->text.aggregates_count == parts_max) exit(2);
  if (part[0] == '@')
    asked->aggregates[asked->text.aggregates_count++] = part + 1;
  else
    asked->columns[asked->text.columns_count++] = part;
}

static char* cut_at_tab(char* from) {
  char* const tab = strchr(from, '\t');
  if (tab == NULL) return NULL;
  *tab = '\0';
  return tab + 1;
}

static int make_all(void) {
  static char line[line_bytes_max];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    question asked;
    char* rest = cut_at_tab(line);
    begin(&asked, line);
    while (rest != NULL) {
      char* const part = rest;
      rest = cut_at_tab(part);
      add(&asked, part);
    }
    ofp_error error;
    void* query;
    uint64_t query_bytes;
    if (ofp_query_make(&asked.text, &query, &query_bytes, &error)) {
      printf("! %s %s\n", ofp_code_name(error.code), error.message);
      continue;
    }
    for (uint64_t i = 0; i < query_bytes; ++i) printf("%02x", ((const unsigned char*)query)[i]);
    printf("\n");
    ofp_query_bytes_free(query);
  }
  return 0;
}

static int give_up(const ofp_error* error) {
  fprintf(stderr, "%s %s\n", ofp_code_name(error->code), error->message);
  return 1;
}

static int ask(const char* address, const char* pool, const question* asked) {
  ofp_error error;
  ofp_channel* channel;
  if (ofp_connect(address, NULL, &channel, &error)) return give_up(&error);
  void* query;
  uint64_t query_bytes;
  int failed = ofp_query_make(&asked->text, &query, &query_bytes, &error);
  ofp_query* answer = NULL;
  if (!failed) failed = ofp_pool_query(channel, pool, NULL, NULL, query, query_bytes, patience_ns, &answer, &error);
  ofp_query_bytes_free(query);
  ofp_frame* frame = NULL;
  while (!failed && !(failed = ofp_query_next(answer, &frame, &error)) && frame != NULL) {
    const uint64_t bytes = ofp_frame_bytes(frame);
    fwrite(&bytes, sizeof bytes, 1, stdout);
    fwrite(ofp_frame_data(frame), 1, bytes, stdout);
    ofp_frame_release(frame);
  }
  ofp_query_free(answer);
  ofp_close(channel);
  return failed ? give_up(&error) : 0;
}

int main(int count, char** arguments) {
  if (count < 4) return make_all();
  question asked;
  begin(&asked, arguments[3]);
  for (int i = 4; i < count; ++i) add(&asked, arguments[i]);
  return ask(arguments[1], arguments[2], &asked);
}
