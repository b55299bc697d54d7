/* A decision maker in C: publishes a record each round, looks at each view, and grants everybody an equal share. Says
 * on a line what it has seen once that is complete, and goes on until its standard input ends. */
#include <inttypes.h>
#include <offpath/offpath.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const int64_t patience_ns = 40 * INT64_C(1000000000);

struct record {
  double power;
  uint64_t jobs;
};
struct program {
  struct record own;
  uint64_t computed, share;
  int has_said;
};

static void give_up(const char* what, const ofp_error* error) {
  fprintf(stderr, "%s: %s (%s)\n", what, error->message, ofp_code_name(error->code));
  exit(1);
}

static uint64_t compute_local(void* user, void* record, uint64_t record_bytes_max) {
  struct program* program = user;
  if (record_bytes_max < sizeof program->own) return 0;
  *(struct record*)record = program->own;
  ++program->computed;
  return sizeof program->own;
}

/* Its line, if all of this view is there: of every member a record, which the figures are of as well, and this one's
 * share. */
static void say(struct program* program, ofp_exchange* exchange, const ofp_view* view, const ofp_view_info* info) {
  ofp_error error = {0};
  double sum = 0;
  for (uint32_t i = 0; i < info->entries; ++i) {
    ofp_view_entry entry;
    if (ofp_view_entry_get(view, i, &entry) || !entry.has_value || entry.record_bytes != sizeof(struct record)) return;
    sum += ((const struct record*)entry.record)->power;
  }
  ofp_view_figure power, jobs;
  if (ofp_view_figure_get(view, 0, &power) || ofp_view_figure_get(view, 1, &jobs) || power.count != info->expected)
    return;
  uint64_t amount = 0;
  int64_t left_ns = 0;
  if (ofp_exchange_granted(exchange, &amount, &left_ns, &error)) give_up("granted", &error);
  if (amount != program->share || left_ns <= 0) return;
  printf("%g %g %s %s %" PRIu64 " %d\n", sum, power.value, ofp_exchange_member(exchange, (uint32_t)jobs.top[0].member),
         ofp_exchange_member(exchange, info->leader), amount, program->computed != 0);
  fflush(stdout);
  program->has_said = 1;
}

static int on_view(void* user, ofp_exchange* exchange, const ofp_view* view) {
  struct program* program = user;
  ofp_error error = {0};
  ofp_view_info info = {.struct_bytes = sizeof info};
  if (ofp_view_info_get(view, &info, &error)) give_up("view", &error);
  if (!program->has_said && info.present == info.expected) say(program, exchange, view, &info);
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  return poll(&input, 1, 0) != 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  struct program program = {.own = {.power = atof(argv[1]), .jobs = strtoull(argv[2], NULL, 10)}};
  ofp_error error = {0};
  ofp_channel* channel = NULL;
  if (ofp_connect(NULL, NULL, &channel, &error)) give_up("connect", &error);
  const ofp_field fields[] = {{.name = "power", .type = 'f', .unit = "watts"}, {.name = "jobs", .type = 'u'}};
  const ofp_exchange_options options = {
      .struct_bytes = sizeof options, .publish = 1, .fields = fields, .fields_count = 2};
  ofp_exchange* exchange = NULL;
  if (ofp_exchange_open(channel, "load", &options, &exchange, &error)) give_up("open", &error);

  ofp_exchange_info info = {.struct_bytes = sizeof info};
  if (ofp_exchange_info_get(exchange, &info, &error)) give_up("info", &error);
  if (ofp_exchange_member(exchange, info.members) != NULL) return 3;
  uint32_t* members = calloc(info.members, sizeof *members);
  uint64_t* amounts = calloc(info.members, sizeof *amounts);
  if (!members || !amounts) return 4;
  program.share = info.grant_total / info.members;
  for (uint32_t i = 0; i < info.members; ++i) {
    members[i] = i;
    amounts[i] = program.share;
  }
  if (ofp_exchange_grant(exchange, members, amounts, info.members, NULL, &error)) give_up("grant", &error);
  if (ofp_exchange_run(exchange, compute_local, on_view, &program, patience_ns, &error)) give_up("run", &error);

  free(members);
  free(amounts);
  ofp_exchange_close(exchange);
  ofp_close(channel);
  return 0;
}
