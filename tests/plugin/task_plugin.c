/* Functions for tests of tasks. */
#include <offpath/plugin.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const ofp_input* input_of(const ofp_context* context, const char* name) {
  for (uint64_t i = 0; i < context->input_count; ++i) {
    const ofp_input* input = context->inputs[i];
    if (input->column_bytes == strlen(name) && memcmp(input->column, name, input->column_bytes) == 0) return input;
  }
  return NULL;
}

/* z = a x + y, doubles; a is the argument. */
static int32_t axpy(ofp_context* context) {
  const ofp_input *x = input_of(context, "x"), *y = input_of(context, "y");
  if (x == NULL || y == NULL || x->bytes != y->bytes || context->arguments_bytes != sizeof(double)) {
    context->set_error(context, "axpy wants x, y and a");
    return 1;
  }
  double a;
  memcpy(&a, context->arguments, sizeof a);
  double* z = context->output(context, "z", x->bytes, 0);
  if (z == NULL) return 1;
  const double *from = x->data, *to = y->data;
  for (uint64_t i = 0; i < x->bytes / sizeof(double); ++i) z[i] = a * from[i] + to[i];
  return 0;
}

/* All inputs, one behind the other, as "all". */
static int32_t join(ofp_context* context) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < context->input_count; ++i) bytes += context->inputs[i]->bytes;
  char* all = context->output(context, "all", bytes, 0);
  if (all == NULL) return 1;
  for (uint64_t i = 0; i < context->input_count; ++i) {
    memcpy(all, context->inputs[i]->data, context->inputs[i]->bytes);
    all += context->inputs[i]->bytes;
  }
  return 0;
}

/* The same, and fails. */
static int32_t join_and_fail(ofp_context* context) { return join(context) == 0 ? 7 : 1; }

/* How often this worker was called, as "count". */
static int32_t count(ofp_context* context) {
  static uint64_t calls;
  uint64_t* out = context->output(context, "count", sizeof calls, 0);
  if (out == NULL) return 1;
  *out = ++calls;
  return 0;
}

/* Waits as many nanoseconds as the argument says, or until it is cancelled. */
static int32_t nap(ofp_context* context) {
  int64_t left = 0;
  memcpy(&left, context->arguments, sizeof left);
  for (; left > 0 && !context->cancelled(context); left -= 1000000) {
    const struct timespec step = {0, left < 1000000 ? (long)left : 1000000};
    nanosleep(&step, NULL);
  }
  return left > 0;
}

/* The user of this worker, as "user". */
static int32_t whoami(ofp_context* context) {
  uint64_t* user = context->output(context, "user", sizeof *user, 0);
  if (user == NULL) return 1;
  *user = geteuid() == getuid() ? geteuid() : UINT64_MAX;
  return 0;
}

static int32_t nothing(ofp_context* context) {
  (void)context;
  return 0;
}

static int32_t crash(ofp_context* context) {
  (void)context;
  return raise(SIGSEGV);
}

static int32_t complain(ofp_context* context) {
  context->set_error(context, "there are no particles");
  return 3;
}

/* Messages by a script: what to send and to receive, one after the other. A message's bytes follow from its seed. */
typedef struct step {
  uint32_t kind; /* 0: send, 1: receive, 2: wait `bytes` nanoseconds, 3: end this process */
  uint32_t lane, tag, zero;
  uint64_t bytes; /* of a message; of a receive: room */
  uint64_t seed;
} step;

typedef struct outcome {
  int32_t code;
  int32_t differs; /* what was received is not of this seed */
  uint64_t bytes;
} outcome;

static void fill(unsigned char* to, uint64_t bytes, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (uint64_t i = 0; i < bytes; i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    memcpy(to + i, &state, bytes - i < 8 ? bytes - i : 8);
  }
}

static int receive_one(ofp_context* context, const step* each, outcome* out) {
  unsigned char* got = malloc(2 * each->bytes + 2);
  if (got == NULL) return 0;
  out->code = context->receive(context, each->lane, each->tag, got, each->bytes, &out->bytes);
  if (out->code == OFP_MESSAGE_OK) {
    unsigned char* expected = got + each->bytes + 1;
    fill(expected, out->bytes, each->seed);
    out->differs = memcmp(got, expected, out->bytes) != 0;
  }
  free(got);
  return 1;
}

/* The outcomes of all steps, as "out". */
static int32_t messages(ofp_context* context) {
  const step* script = context->arguments;
  const uint64_t steps = context->arguments_bytes / sizeof *script;
  outcome* out = context->output(context, "out", steps * sizeof *out, 0);
  if (out == NULL) return 1;
  if (!OFP_HAS(context, receive)) return 2;
  for (uint64_t i = 0; i < steps; ++i) {
    const step* each = &script[i];
    if (each->kind == 0) {
      unsigned char* message = malloc(each->bytes + 1);
      if (message == NULL) return 3;
      fill(message, each->bytes, each->seed);
      out[i].code = context->send(context, each->lane, each->tag, message, each->bytes);
      memset(message, 0, each->bytes); /* what was sent is a copy */
      free(message);
    } else if (each->kind == 1) {
      if (!receive_one(context, each, &out[i])) return 3;
    } else if (each->kind == 2) {
      const struct timespec length = {(time_t)(each->bytes / 1000000000u), (long)(each->bytes % 1000000000u)};
      nanosleep(&length, NULL);
    } else {
      raise(SIGKILL);
    }
  }
  return 0;
}

struct threaded {
  ofp_context* context;
  const step* each;
  outcome* out;
};

static void* receive_in_thread(void* given) {
  struct threaded* mine = given;
  if (!receive_one(mine->context, mine->each, mine->out)) mine->out->code = -1;
  return NULL;
}

/* All receives of a script at once, each by a thread of its own. */
static int32_t threads(ofp_context* context) {
  const step* script = context->arguments;
  const uint64_t steps = context->arguments_bytes / sizeof *script;
  outcome* out = context->output(context, "out", steps * sizeof *out, 0);
  if (out == NULL || steps > 32) return 1;
  pthread_t all[32];
  struct threaded given[32];
  for (uint64_t i = 0; i < steps; ++i) {
    given[i] = (struct threaded){context, &script[i], &out[i]};
    if (pthread_create(&all[i], NULL, receive_in_thread, &given[i]) != 0) return 2;
  }
  for (uint64_t i = 0; i < steps; ++i) pthread_join(all[i], NULL);
  return 0;
}

/* Receives from a lane that the argument names, and fails as that does. */
static int32_t must_receive(ofp_context* context) {
  uint32_t lane;
  memcpy(&lane, context->arguments, sizeof lane);
  return context->receive(context, lane, 0, NULL, 0, NULL);
}

static const ofp_function functions[] = {
    {"axpy", axpy, "z = a x + y"},
    {"join", join, "inputs, one behind the other"},
    {"join_and_fail", join_and_fail, "the same, and fails"},
    {"count", count, "calls of this worker"},
    {"nap", nap, "waits"},
    {"nothing", nothing, "returns"},
    {"crash", crash, "ends its worker"},
    {"complain", complain, "fails"},
    {"whoami", whoami, "user of this worker"},
    {"messages", messages, "a script"},
    {"threads", threads, "receives at once"},
    {"must_receive", must_receive, "fails as it does"},
};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "task_test",
                                  sizeof functions / sizeof functions[0], functions};
OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
