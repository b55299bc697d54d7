// A team of tasks from a communicator of MPI (mpi.h):
//
//     offpath::Tasks tasks(channel, offpath::team_of(MPI_COMM_WORLD));   // by all ranks
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_MPI_HPP
#define OFFPATH_MPI_HPP

#include <offpath/mpi.h>

#include <offpath/tasks.hpp>
#include <stdexcept>
#include <string>

namespace offpath {

// Collective. The options with lane, lanes and team set.
[[nodiscard]] inline TasksOptions team_of(MPI_Comm communicator, TasksOptions options = {}) {
  ofp_tasks_options c{};
  char team[OFP_MPI_TEAM_BYTES] = {};
  if (const int code = ofp_mpi_team(communicator, &c, team); code != MPI_SUCCESS)
    throw std::runtime_error("no team could be made of the communicator: MPI's error " + std::to_string(code));
  options.lane = c.lane;
  options.lanes = c.lanes;
  options.team = team;
  return options;
}

}  // namespace offpath

#endif  // OFFPATH_MPI_HPP
