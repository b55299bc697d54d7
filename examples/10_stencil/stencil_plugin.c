/* The function of the example in stencil.py: the halo of a rank's block, exchanged between the workers of neighbouring
 * ranks and advanced by several steps. docs/guides/tasks.md, Messages between lanes.
 *
 * A block is rows of doubles, on a ring of lanes: below the last row of lane i lies the first one of lane i + 1. Inputs
 * "top" and "bottom" are the first and the last 2 T rows of the block. With T rows of each neighbour a row at the edge
 * has all that its next T steps depend on: of 3 T rows T are left when each step has taken one from both ends. They are
 * the outputs "top" and "bottom". */
#include <offpath/plugin.h>

#include <stdlib.h>
#include <string.h>

enum { FROM_ABOVE, FROM_BELOW }; /* tags: where the rows come to lie for who receives them */

typedef struct {
  uint64_t columns, steps; /* steps: T */
  double rate;
} arguments;

static int32_t wrong(ofp_context* context, const char* why) {
  context->set_error(context, why);
  return 1;
}

/* One step: `rows` rows become two fewer. In place, from the first row on: what is written is not read again but for
 * `above`. The operations are those of the host, in its order, so that the results are the same to the last bit. */
static void advance(double* grid, double* above, uint64_t rows, uint64_t columns, double rate) {
  memcpy(above, grid, columns * sizeof *grid);
  for (uint64_t r = 1; r + 1 < rows; ++r) {
    const double *here = grid + r * columns, *below = here + columns;
    double* to = grid + (r - 1) * columns;
    for (uint64_t c = 0; c < columns; ++c) {
      const double left = c > 0 ? here[c - 1] : 0, right = c + 1 < columns ? here[c + 1] : 0;
      to[c] = here[c] + rate * (((above[c] + below[c]) + (left + right)) - 4 * here[c]);
    }
    memcpy(above, here, columns * sizeof *grid);
  }
}

static int32_t halo(ofp_context* context) {
  arguments a;
  if (context->arguments_bytes != sizeof a || context->input_count != 2 || context->lanes == 0)
    return wrong(context, "halo wants a lane, the width, the steps and the rate, and both edges");
  if (!OFP_HAS(context, receive)) return wrong(context, "this agent has no messages between lanes");
  memcpy(&a, context->arguments, sizeof a);
  const uint64_t halo_bytes = a.steps * a.columns * sizeof(double);
  const uint32_t above = (context->lane + context->lanes - 1) % context->lanes,
                 below = (context->lane + 1) % context->lanes;
  const ofp_input *top = context->inputs[0], *bottom = context->inputs[1];
  if (top->bytes != 2 * halo_bytes || bottom->bytes != 2 * halo_bytes)
    return wrong(context, "an edge has another size than twice the steps");

  /* What the neighbours need first: they need not have come so far. */
  if (context->send(context, above, FROM_BELOW, top->data, halo_bytes) != OFP_MESSAGE_OK)
    return 1; /* the context knows why */
  if (context->send(context, below, FROM_ABOVE, (const char*)bottom->data + halo_bytes, halo_bytes) != OFP_MESSAGE_OK)
    return 1;

  double* grid = malloc(3 * halo_bytes + a.columns * sizeof *grid);
  if (grid == NULL) return wrong(context, "no memory for the halo");
  double* spare = grid + 3 * a.steps * a.columns;
  for (int at_bottom = 0; at_bottom < 2; ++at_bottom) {
    char* rows = (char*)grid;
    memcpy(rows + (at_bottom ? 0 : halo_bytes), (at_bottom ? bottom : top)->data, 2 * halo_bytes);
    const int32_t received = at_bottom
                                 ? context->receive(context, below, FROM_BELOW, rows + 2 * halo_bytes, halo_bytes, NULL)
                                 : context->receive(context, above, FROM_ABOVE, rows, halo_bytes, NULL);
    void* out = received != OFP_MESSAGE_OK
                    ? NULL
                    : context->output(context, at_bottom ? "bottom" : "top", halo_bytes, OFP_DATA_UNSET);
    if (out == NULL) {
      free(grid);
      return 1;
    }
    for (uint64_t step = 0; step < a.steps; ++step) advance(grid, spare, 3 * a.steps - 2 * step, a.columns, a.rate);
    memcpy(out, grid, halo_bytes);
  }
  free(grid);
  return 0;
}

static const ofp_function functions[] = {{"halo", halo, "advances the edges of a block by several steps"}};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "stencil", 1, functions};
OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
