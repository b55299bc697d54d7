/* Functions for tests of tasks. */
#include <offpath/plugin.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const ofp_input *input_of(const ofp_context *context, const char *name) {
  for (uint64_t i = 0; i < context->input_count; ++i) {
    const ofp_input *input = context->inputs[i];
    if (input->column_bytes == strlen(name) && memcmp(input->column, name, input->column_bytes) == 0) return input;
  }
  return NULL;
}

/* z = a x + y, doubles; a is the argument. */
static int32_t axpy(ofp_context *context) {
  const ofp_input *x = input_of(context, "x"), *y = input_of(context, "y");
  if (x == NULL || y == NULL || x->bytes != y->bytes || context->arguments_bytes != sizeof(double)) {
    context->set_error(context, "axpy wants x, y and a");
    return 1;
  }
  double a;
  memcpy(&a, context->arguments, sizeof a);
  double *z = context->output(context, "z", x->bytes, 0);
  if (z == NULL) return 1;
  const double *from = x->data, *to = y->data;
  for (uint64_t i = 0; i < x->bytes / sizeof(double); ++i) z[i] = a * from[i] + to[i];
  return 0;
}

/* All inputs, one behind the other, as "all". */
static int32_t join(ofp_context *context) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < context->input_count; ++i) bytes += context->inputs[i]->bytes;
  char *all = context->output(context, "all", bytes, 0);
  if (all == NULL) return 1;
  for (uint64_t i = 0; i < context->input_count; ++i) {
    memcpy(all, context->inputs[i]->data, context->inputs[i]->bytes);
    all += context->inputs[i]->bytes;
  }
  return 0;
}

/* How often this worker was called, as "count". */
static int32_t count(ofp_context *context) {
  static uint64_t calls;
  uint64_t *out = context->output(context, "count", sizeof calls, 0);
  if (out == NULL) return 1;
  *out = ++calls;
  return 0;
}

/* Waits as many nanoseconds as the argument says, or until it is cancelled. */
static int32_t nap(ofp_context *context) {
  int64_t left = 0;
  memcpy(&left, context->arguments, sizeof left);
  for (; left > 0 && !context->cancelled(context); left -= 1000000) {
    const struct timespec step = {0, left < 1000000 ? (long)left : 1000000};
    nanosleep(&step, NULL);
  }
  return left > 0;
}

/* The user of this worker, as "user". */
static int32_t whoami(ofp_context *context) {
  uint64_t *user = context->output(context, "user", sizeof *user, 0);
  if (user == NULL) return 1;
  *user = geteuid() == getuid() ? geteuid() : UINT64_MAX;
  return 0;
}

static int32_t nothing(ofp_context *context) {
  (void)context;
  return 0;
}

static int32_t crash(ofp_context *context) {
  (void)context;
  return raise(SIGSEGV);
}

static int32_t complain(ofp_context *context) {
  context->set_error(context, "there are no particles");
  return 3;
}

static const ofp_function functions[] = {
    {"axpy", axpy, "z = a x + y"},       {"join", join, "inputs, one behind the other"}, {"count", count, "calls of this worker"},
    {"nap", nap, "waits"},               {"nothing", nothing, "returns"},                {"crash", crash, "ends its worker"},
    {"complain", complain, "fails"},     {"whoami", whoami, "user of this worker"},
};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "task_test", sizeof functions / sizeof functions[0], functions};
OFP_PLUGIN_EXPORT const ofp_plugin *offpath_plugin(void) { return &plugin; }
