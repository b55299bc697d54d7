/* A plug-in: functions that an agent runs beside the data, in a process of their own. docs/guides/plugins.md,
 * offpath/plugin.h.
 *
 * Built with    cc -shared -fPIC -O2 particles_plugin.c -o particles_plugin.so
 * and named in the agent's configuration:
 *
 *     [[plugin]]
 *     name = "particles"
 *     path = "/usr/local/lib/particles_plugin.so"
 *
 * Inputs here are plain columns: float32 values one after another. Positions come as three objects, x, y and z. */
#include <offpath/plugin.h>

#include <stdio.h>
#include <string.h>

struct mean_result {
  uint64_t count;
  double mean;
};

/* Complains, and returns what a function returns then. */
static int32_t wrong(ofp_context* context, const char* what, uint64_t expected, uint64_t given) {
  char message[200];
  snprintf(message, sizeof message, "%s: expected %llu, given %llu", what, (unsigned long long)expected,
           (unsigned long long)given);
  context->set_error(context, message);
  return 1;
}

/* The mean of the float32 values of all inputs. */
static int32_t mean(ofp_context* context) {
  struct mean_result* result = context->output(context, "mean", sizeof *result, 0);
  if (result == NULL) return 1; /* the message of the call is set already */
  double sum = 0;
  for (uint64_t i = 0; i < context->input_count; ++i) {
    const ofp_input* input = context->inputs[i];
    if (input->flags & OFP_DATA_ARROW) return wrong(context, "flags of a plain column", 0, input->flags);
    if (input->bytes % sizeof(float) != 0)
      return wrong(context, "bytes beyond whole float32 values", 0, input->bytes % sizeof(float));
    const float* values = input->data;
    const uint64_t count = input->bytes / sizeof(float);
    for (uint64_t j = 0; j < count; ++j) sum += values[j];
    result->count += count;
    if (context->cancelled(context)) return 1;
  }
  result->mean = result->count == 0 ? 0 : sum / (double)result->count;
  return 0;
}

static const ofp_input* column(const ofp_context* context, const char* name) {
  for (uint64_t i = 0; i < context->input_count; ++i) {
    const ofp_input* input = context->inputs[i];
    if (input->column_bytes == strlen(name) && memcmp(input->column, name, input->column_bytes) == 0) return input;
  }
  return NULL;
}

/* Which particles lie in a box: their indices as uint32, of a row with the columns x, y and z. The arguments are six
 * float32: the lower corner, the upper one. Room is taken for all of them, and what was not needed given back. */
static int32_t bounding_box(ofp_context* context) {
  const float *box = context->arguments, *position[3];
  static const char* const names[3] = {"x", "y", "z"};
  uint64_t count = 0;
  if (context->arguments_bytes != 6 * sizeof(float))
    return wrong(context, "bytes of arguments", 6 * sizeof(float), context->arguments_bytes);
  for (int axis = 0; axis < 3; ++axis) {
    const ofp_input* input = column(context, names[axis]);
    if (input == NULL) return wrong(context, "columns x, y and z", 3, (uint64_t)axis);
    if (axis > 0 && input->bytes / sizeof(float) != count)
      return wrong(context, "values in each column", count, input->bytes / sizeof(float));
    count = input->bytes / sizeof(float);
    position[axis] = input->data;
  }
  uint32_t* inside = context->output(context, "inside", count * sizeof *inside, 0);
  if (inside == NULL) return 1;
  uint64_t found = 0;
  for (uint64_t i = 0; i < count; ++i) {
    int in = 1;
    for (int axis = 0; axis < 3; ++axis) in &= position[axis][i] >= box[axis] && position[axis][i] < box[3 + axis];
    inside[found] = (uint32_t)i; /* overwritten by the next one, unless this one is in */
    found += (uint64_t)in;
  }
  context->shrink(context, inside, found * sizeof *inside);
  return 0;
}

static const ofp_function functions[] = {
    {"mean", mean, "Mean of the float32 values of all inputs. Output 'mean': count as uint64, mean as float64."},
    {"bounding_box", bounding_box,
     "Indices (uint32) of the particles of columns x, y, z within the box of the arguments."},
};

static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "particles", 2, functions};

OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
