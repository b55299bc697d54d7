/* Ranks of two communicators, even and odd ones: each has a team of its own, whose functions pass messages round. Rank
 * 0 prints how many different teams there were. */
#include <offpath/mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct step { /* of the plug-in's function "messages" */
  uint32_t kind, lane, tag, zero;
  uint64_t bytes, seed;
};
struct outcome {
  int32_t code, differs;
  uint64_t bytes;
};

static void expect(int holds, const char* what, const ofp_error* error) {
  if (holds) return;
  fprintf(stderr, "%s: %s\n", what, error->message);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);

  ofp_error error = {0};
  ofp_channel* channel = NULL;
  ofp_tasks* tasks = NULL;
  ofp_tasks_options options = {.struct_bytes = sizeof options};
  char team[OFP_MPI_TEAM_BYTES];
  expect(ofp_mpi_team(half, &options, team) == MPI_SUCCESS, "team", &error);
  expect(options.lane == (uint32_t)(rank / 2) && options.team == team, "lane", &error);
  expect(ofp_connect(NULL, NULL, &channel, &error) == OFP_OK, "connect", &error);
  expect(ofp_tasks_open(channel, &options, &tasks, &error) == OFP_OK, "open", &error);

  ofp_segment* segment = NULL;
  expect(ofp_alloc(channel, 2 * sizeof(struct outcome), &segment, &error) == OFP_OK, "alloc", &error);
  const uint32_t right = (options.lane + 1) % options.lanes, left = (options.lane + options.lanes - 1) % options.lanes;
  const struct step script[] = {{.kind = 0, .lane = right, .bytes = 1000, .seed = 1 + options.lane},
                                {.kind = 1, .lane = left, .bytes = 1000, .seed = 1 + left}};
  const ofp_task_output out = {.name = "out", .data = ofp_segment_data(segment), .bytes = 2 * sizeof(struct outcome)};
  const ofp_task_request request = {.struct_bytes = sizeof request,
                                    .function = "t/messages",
                                    .arguments = script,
                                    .arguments_bytes = sizeof script,
                                    .outputs = &out,
                                    .outputs_count = 1};
  expect(ofp_task_run(tasks, &request, NULL, &error) == OFP_OK, "run", &error);
  const struct outcome* const outcomes = ofp_segment_data(segment);
  for (int i = 0; i < 2; ++i) expect(outcomes[i].code == 0 && outcomes[i].differs == 0, "message", &error);

  char* all = malloc((size_t)ranks * OFP_MPI_TEAM_BYTES);
  expect(all != NULL, "malloc", &error);
  MPI_Gather(team, OFP_MPI_TEAM_BYTES, MPI_CHAR, all, OFP_MPI_TEAM_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
  int different = 0;
  for (int i = 0; rank == 0 && i < ranks; ++i) {
    int first = 1;
    for (int before = 0; before < i; ++before)
      first = first && strcmp(all + i * OFP_MPI_TEAM_BYTES, all + before * OFP_MPI_TEAM_BYTES) != 0;
    different += first;
  }
  if (rank == 0) printf("%d teams of %u lanes\n", different, options.lanes);
  MPI_Barrier(MPI_COMM_WORLD); /* messages end with their sender's session */
  free(all);
  ofp_tasks_close(tasks);
  ofp_free(segment);
  ofp_close(channel);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
