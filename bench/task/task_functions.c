/* What bench_task has run: nothing, and a copy. */
#include <offpath/plugin.h>

#include <string.h>

static int32_t nothing(ofp_context* context) {
  (void)context;
  return 0;
}

/* "in" as "out". */
static int32_t copy(ofp_context* context) {
  if (context->input_count != 1) return 1;
  void* out = context->output(context, "out", context->inputs[0]->bytes, OFP_DATA_UNSET);
  if (out == NULL) return 1;
  memcpy(out, context->inputs[0]->data, context->inputs[0]->bytes);
  return 0;
}

static const ofp_function functions[] = {{"nothing", nothing, "returns"}, {"copy", copy, "in as out"}};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "bench", 2, functions};
OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
