/* A team of tasks from a communicator of MPI: each rank gets a lane, and all of them one team name that no other run
 * has. Header only, so that the library needs no MPI.
 *
 *     ofp_tasks_options options = {.struct_bytes = sizeof options};
 *     char team[OFP_MPI_TEAM_BYTES];
 *     ofp_mpi_team(MPI_COMM_WORLD, &options, team);   // by all ranks
 *     ofp_tasks_open(channel, &options, &tasks, &error);
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef OFFPATH_MPI_H
#define OFFPATH_MPI_H

#include <mpi.h>
#include <offpath/offpath.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OFP_MPI_TEAM_BYTES 48

/* Collective, of an intracommunicator. Sets lane, lanes and team, which points to `team`. Returns MPI's code;
 * MPI_ERR_OTHER: rank 0 could not make a name. */
static inline int ofp_mpi_team(MPI_Comm communicator, ofp_tasks_options* options, char team[OFP_MPI_TEAM_BYTES]) {
  int rank = 0, ranks = 0;
  int code = MPI_Comm_rank(communicator, &rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(communicator, &ranks);
  if (code != MPI_SUCCESS) return code;
  memset(team, 0, OFP_MPI_TEAM_BYTES);
  if (rank == 0) {
    unsigned long long random[2];
    FILE* const source = fopen("/dev/urandom", "rb");
    if (source != NULL) {
      if (fread(random, sizeof random, 1, source) == 1)
        (void)snprintf(team, OFP_MPI_TEAM_BYTES, "mpi-%016llx%016llx", random[0], random[1]);
      (void)fclose(source);
    }
  }
  code = MPI_Bcast(team, OFP_MPI_TEAM_BYTES, MPI_CHAR, 0, communicator);
  if (code == MPI_SUCCESS && team[0] == 0) code = MPI_ERR_OTHER;
  options->lane = (uint32_t)rank;
  options->lanes = (uint32_t)ranks;
  options->team = team;
  return code;
}

#ifdef __cplusplus
}
#endif
#endif
