// SPDX-License-Identifier: GPL-2.0-only
#include "cna.h"

#include <mpi.h>

#include <cstring>

#include "atom.h"
#include "error.h"
#include "utils.h"

namespace offpath_lammps {

int Cna::parse(std::span<char*> rest) {
  if (rest.empty()) LAMMPS_NS::utils::missing_cmd_args(FLERR, std::string(analyse_style) + " cna", error);
  arguments_.cutoff = LAMMPS_NS::utils::numeric(FLERR, rest[0], false, lmp);
  if (!(arguments_.cutoff > 0))
    error->all(FLERR, "{}: cutoff {}, the largest distance of two atoms that are bonded", analyse_style, rest[0]);
  return 1;
}

void Cna::ready(LAMMPS_NS::Fix& fix) {
  fix.vector_flag = 1;
  fix.size_vector = structures;
  fix.extvector = 1;
}

offpath::TaskRequest Cna::request() {
  arguments_.own = static_cast<std::uint64_t>(atom->nlocal);
  arguments_.group_bit = fix_.igroup == 0 ? 0 : fix_.groupbit;
  offpath::TaskRequest request{.function = "cna", .arguments = std::as_bytes(std::span(&arguments_, 1))};
  request.inputs.push_back(
      {.name = "x", .data = rows_of(atom->x, static_cast<std::size_t>(atom->nlocal + atom->nghost))});
  if (arguments_.group_bit != 0)
    request.inputs.push_back({.name = "mask", .data = rows_of(atom->mask, static_cast<std::size_t>(atom->nlocal))});
  return request;
}

void Cna::take(std::span<const std::byte> answer) {
  std::array<std::uint64_t, structures> own{};
  std::memcpy(own.data(), answer.data(), sizeof own);
  MPI_Allreduce(own.data(), counts_.data(), static_cast<int>(structures), MPI_UINT64_T, MPI_SUM, world);
}

}  // namespace offpath_lammps
