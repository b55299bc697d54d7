/* Functions of the example in correlate.py: they run on the agent, in a worker, on memory of a program.
 * docs/guides/tasks.md.
 *
 * Velocities come as input "v", n doubles. Those of the first step stay in static variables of the worker: a session
 * with a lane has all its tasks run there, in order. */
#include <offpath/plugin.h>

#include <stdlib.h>
#include <string.h>

static double* reference;
static uint64_t count, session;

static int32_t wrong(ofp_context* context, const char* why) {
  context->set_error(context, why);
  return 1;
}

/* Keeps "v" as what later ones are compared with. */
static int32_t begin(ofp_context* context) {
  if (context->input_count != 1 || context->inputs[0]->bytes % sizeof(double) != 0)
    return wrong(context, "begin wants v, doubles");
  double* kept = realloc(reference, context->inputs[0]->bytes);
  if (kept == NULL) return wrong(context, "no memory for the first step");
  reference = kept;
  count = context->inputs[0]->bytes / sizeof(double);
  session = context->session;
  memcpy(reference, context->inputs[0]->data, context->inputs[0]->bytes);
  return 0;
}

/* "correlation": the mean of v(0) v(t) over all particles. */
static int32_t correlate(ofp_context* context) {
  /* A worker that was started anew knows nothing, and one that another session used knows something else. */
  if (reference == NULL || session != context->session) return wrong(context, "there is no first step");
  if (context->input_count != 1 || context->inputs[0]->bytes != count * sizeof(double))
    return wrong(context, "correlate wants as many v as begin had");
  double* mean = context->output(context, "correlation", sizeof *mean, 0);
  if (mean == NULL) return 1;
  const double* v = context->inputs[0]->data;
  double sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += reference[i] * v[i];
  *mean = sum / (double)count;
  return 0;
}

static const ofp_function functions[] = {
    {"begin", begin, "keeps v"},
    {"correlate", correlate, "the mean of v(0) v(t)"},
};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "correlation", 2, functions};
OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
