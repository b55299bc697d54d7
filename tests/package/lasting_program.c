/* A program that stays connected: lasting [POOL]. For each line it reads it does one thing and answers with one line:
 *
 *   send ROW   sends one batch of a thousand numbers under that row
 *   get ROW    fetches it, and compares
 *   query ROW  has the agent select two of its numbers, for which it needs libarrow
 *
 * "ok", or the error's name and message. */
#include <inttypes.h>
#include <offpath/offpath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { numbers = 1000 };
static const int64_t patience_ns = 10000000000;

static int send_row(ofp_stream* stream, const char* row, const int64_t* values, ofp_error* error) {
  const void* data[] = {values};
  uint64_t ticket = 0;
  if (ofp_send_columns(stream, data, numbers, row, "rank0", OFP_SEND_WAIT | OFP_SEND_ANNOUNCE, &ticket, error))
    return 1;
  return ofp_wait_stored(stream, ticket, patience_ns, error);
}

/* Releases the frame. The numbers are somewhere in it, as they were sent. */
static int compare(ofp_frame* frame, const char* row, const int64_t* values, size_t count, ofp_error* error) {
  const char *at = ofp_frame_data(frame), *end = at + ofp_frame_bytes(frame) - count * sizeof *values;
  int same = 0;
  for (; frame && at <= end && !same; at += 8) same = memcmp(at, values, count * sizeof *values) == 0;
  ofp_frame_release(frame);
  if (!same) snprintf(error->message, sizeof error->message, "%s has other numbers", row);
  return !same;
}

static int get_row(ofp_channel* channel, const char* pool, const char* row, const int64_t* values, ofp_error* error) {
  ofp_frame* frame = NULL;
  if (ofp_pool_get(channel, pool, row, "rank0", patience_ns, &frame, error)) return 1;
  return compare(frame, row, values, numbers, error);
}

static int query_row(ofp_channel* channel, const char* pool, const char* row, const int64_t* values, ofp_error* error) {
  char filter[64];
  snprintf(filter, sizeof filter, "value <= %lld", (long long)values[1]);
  const ofp_query_text text = {.struct_bytes = sizeof text, .filter = filter};
  void* query = NULL;
  uint64_t query_bytes = 0;
  ofp_query* answer = NULL;
  ofp_frame* frame = NULL;
  int failed = ofp_query_make(&text, &query, &query_bytes, error) ||
               ofp_pool_query(channel, pool, row, NULL, query, query_bytes, patience_ns, &answer, error) ||
               ofp_query_next(answer, &frame, error) || compare(frame, row, values, 2, error);
  ofp_query_free(answer);
  ofp_query_bytes_free(query);
  return failed;
}

int main(int argc, char** argv) {
  ofp_error error = {0};
  ofp_channel* channel = NULL;
  ofp_stream* stream = NULL;
  const ofp_column column = {.name = "value", .format = "l"};
  const char* pool = argc > 1 ? argv[1] : "local:/lasting";
  const ofp_stream_options options = {.struct_bytes = sizeof options, .pool = pool, .rows_max = numbers};
  int64_t* values = malloc(numbers * sizeof *values);
  if (!values) return 1;
  for (int i = 0; i < numbers; ++i) values[i] = (int64_t)i * i + 7;

  int failed = ofp_connect(NULL, NULL, &channel, &error) ||
               ofp_stream_open_columns(channel, "lasting", &column, 1, &options, &stream, &error);
  char line[64], row[32];
  do {
    if (failed)
      printf("%s: %s\n", ofp_code_name(error.code), error.message);
    else
      puts("ok");
    fflush(stdout);
    if (!stream || !fgets(line, sizeof line, stdin)) break;
    memset(&error, 0, sizeof error);
    if (sscanf(line, "send %31s", row) == 1)
      failed = send_row(stream, row, values, &error);
    else if (sscanf(line, "get %31s", row) == 1)
      failed = get_row(channel, pool, row, values, &error);
    else if (sscanf(line, "query %31s", row) == 1)
      failed = query_row(channel, pool, row, values, &error);
    else
      return 2;
  } while (1);
  ofp_close(channel);
  free(values);
  return failed;
}
