/* A toy simulation in C that hands its particles to an agent every few steps, while it goes on with something else.
 *
 *     offpath agent --listen unix:/tmp/agent.sock &
 *     OFFPATH_AGENT=unix:/tmp/agent.sock particles_c */
#include <inttypes.h>
#include <offpath/offpath.h>
#include <stdio.h>
#include <stdlib.h>

enum { particles = 10000, steps = 5 };
static const int64_t one_second_ns = 1000000000;

static void give_up(const char* what, const ofp_error* error) {
  fprintf(stderr, "%s: %s (%s)\n", what, error->message, ofp_code_name(error->code));
  exit(1);
}

int main(void) {
  ofp_error error = {0};
  ofp_channel* channel = NULL;
  if (ofp_connect(NULL, NULL, &channel, &error)) give_up("connect", &error);

  /* The arrays as a simulation has them: x[n][3] is sent as one column of three doubles a row, and its z once more
   * as a column of its own, from where it lies. */
  int32_t* id = malloc(particles * sizeof *id);
  double (*x)[3] = malloc(particles * sizeof *x);
  if (!id || !x) return 1;
  for (int i = 0; i < particles; ++i) id[i] = i;

  const ofp_column columns[] = {
      {.name = "id", .format = "i"},
      {.name = "x", .format = "+w:3g"},
      {.name = "z", .format = "g", .stride_bytes = sizeof *x},
  };
  const ofp_stream_options options = {.struct_bytes = sizeof options, .rows_max = particles};
  ofp_stream* stream = NULL;
  if (ofp_stream_open_columns(channel, "particles-c", columns, 3, &options, &stream, &error)) give_up("open", &error);

  uint64_t ticket = 0;
  for (int step = 0; step < steps; ++step) {
    /* x may change only when the agent has pulled the step before. */
    if (step > 0 && ofp_wait_pulled(stream, ticket, one_second_ns, &error)) give_up("pulled", &error);
    for (int i = 0; i < particles; ++i)
      for (int axis = 0; axis < 3; ++axis) x[i][axis] = step + i * 1e-3 + axis;

    const void* data[] = {id, x, &x[0][2]};
    char row[32];
    snprintf(row, sizeof row, "step%d", step);
    if (ofp_send_columns(stream, data, particles, row, "rank0", OFP_SEND_WAIT | OFP_SEND_ANNOUNCE, &ticket, &error))
      give_up("send", &error);
    /* ... neighbour lists, forces: whatever does not write to id and x ... */
  }
  if (ofp_wait_stored(stream, ticket, one_second_ns, &error)) give_up("stored", &error);

  ofp_frame* frame = NULL;
  if (ofp_pool_get(channel, "local:/particles-c", "step4", "rank0", one_second_ns, &frame, &error))
    give_up("get", &error);
  printf("step4: %" PRIu64 " rows in %" PRIu64 " bytes of Arrow\n", ofp_frame_rows(frame), ofp_frame_bytes(frame));
  ofp_frame_release(frame);

  if (ofp_stream_close(stream, one_second_ns, &error)) give_up("close", &error);
  ofp_close(channel);
  free(x);
  free(id);
  return 0;
}
