// SPDX-License-Identifier: GPL-2.0-only
#include "since_reference.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <limits>

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "error.h"
#include "group.h"
#include "reference_sums.h"
#include "update.h"
#include "utils.h"

namespace offpath_lammps {

using LAMMPS_NS::bigint;

static_assert(sizeof(LAMMPS_NS::tagint) == sizeof(int) && sizeof(LAMMPS_NS::imageint) == sizeof(int) &&
                  IMGMASK == 1023 && IMGMAX == 512 && IMGBITS == 10,
              "analysis_task.h and reference_sums.h say how ids and image flags are packed");

bool SinceReference::keyword(std::string_view name, const char* value) {
  if (kind_ != Kind::msd || name != "com") return false;
  relative_to_mass_ = LAMMPS_NS::utils::logical(FLERR, value, false, lmp) != 0;
  return true;
}

void SinceReference::ready(LAMMPS_NS::Fix& fix) {
  fix.vector_flag = 1;
  fix.size_vector = 4;
  fix.extvector = 0;
  fix.create_attribute = 1;  // LAMMPS reports new atoms
  fix.stores_ids = 1;        // LAMMPS does not renumber atoms
}

void SinceReference::init() {
  if (atom->tag_enable == 0)
    error->all(FLERR, "{}: atoms have no ids, by which they are found again: remove `atom_modify id no`",
               analyse_style);
}

void SinceReference::atom_created(int index) {
  if (reference_atoms_ != 0 && (atom->mask[index] & fix_.groupbit) != 0) ++created_;
}

std::array<double, 6> SinceReference::box() const {
  std::array<double, 6> box{};
  std::ranges::copy(domain->h, box.begin());
  return box;
}

std::vector<ReferenceAtom> SinceReference::gather() const {
  std::vector<ReferenceAtom> own;
  const auto shape = box();
  for (int i = 0; i < atom->nlocal; ++i) {
    if ((atom->mask[i] & fix_.groupbit) == 0) continue;
    const double* const of = kind_ == Kind::msd ? atom->x[i] : atom->v[i];
    const std::array<double, 3> value{of[0], of[1], of[2]};
    own.push_back({atom->tag[i], kind_ == Kind::msd ? unwrapped(value, atom->image[i], shape) : value});
  }
  const auto count = static_cast<int>(own.size());
  std::vector<int> counts(static_cast<std::size_t>(comm->nprocs)), begins;
  MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, world);
  bigint all = 0;
  for (const int each : counts) {
    begins.push_back(static_cast<int>(all));
    all += each;
    if (all > INT_MAX) error->all(FLERR, "{}: more than {} atoms", analyse_style, INT_MAX);
  }
  std::vector<ReferenceAtom> atoms(static_cast<std::size_t>(all));
  MPI_Datatype row{};
  MPI_Type_contiguous(sizeof(ReferenceAtom), MPI_BYTE, &row);
  MPI_Type_commit(&row);
  MPI_Allgatherv(own.data(), count, row, atoms.data(), counts.data(), begins.data(), row, world);
  MPI_Type_free(&row);
  std::ranges::sort(atoms, {}, &ReferenceAtom::id);
  return atoms;
}

offpath::TaskRequest SinceReference::request() {
  reference_.clear();
  reference_.shrink_to_fit();
  if (reference_atoms_ == 0) {
    reference_ = gather();
    reference_atoms_ = static_cast<bigint>(reference_.size());
    reference_step_ = update->ntimestep;
    if (reference_atoms_ == 0)
      error->all(FLERR, "{}: the group {} has no atoms", analyse_style, group->names[fix_.igroup]);
  }
  const auto atoms = static_cast<std::size_t>(atom->nlocal);
  const bool all = fix_.igroup == 0;
  arguments_ = {all ? 0 : fix_.groupbit, box()};
  offpath::TaskRequest request{.function = kind_ == Kind::msd ? "msd" : "vacf",
                               .arguments = std::as_bytes(std::span(&arguments_, 1))};
  const auto add = [&](const char* name, std::span<const std::byte> data) {
    request.inputs.push_back({.name = name, .data = data});
  };
  // The agent has it from the first hand-over on.
  request.inputs.push_back({.name = "reference",
                            .data = std::as_bytes(std::span(reference_)),
                            .version = 1,
                            .bytes = static_cast<std::uint64_t>(reference_atoms_) * sizeof(ReferenceAtom)});
  add("id", rows_of(atom->tag, atoms));
  if (!all) add("mask", rows_of(atom->mask, atoms));
  if (kind_ == Kind::vacf) {
    add("v", rows_of(atom->v, atoms));
    return request;
  }
  add("x", rows_of(atom->x, atoms));
  add("image", rows_of(atom->image, atoms));
  if (relative_to_mass_ && atom->rmass != nullptr) {
    add("rmass", rows_of(atom->rmass, atoms));
  } else if (relative_to_mass_) {
    add("type", rows_of(atom->type, atoms));
    add("masses", rows_of(atom->mass, static_cast<std::size_t>(atom->ntypes) + 1));
  }
  return request;
}

void SinceReference::take(std::span<const std::byte> answer) {
  // One number more: atoms that were created.
  std::array<double, sizeof(ReferenceSums) / sizeof(double) + 1> own{}, all{};
  std::memcpy(own.data(), answer.data(), answer.size());
  own.back() = static_cast<double>(created_);
  MPI_Allreduce(own.data(), all.data(), static_cast<int>(all.size()), MPI_DOUBLE, MPI_SUM, world);
  ReferenceSums sums{};
  std::memcpy(&sums, all.data(), sizeof sums);
  if (const auto now = static_cast<bigint>(sums.atoms); now != reference_atoms_ || all.back() != 0) {
    if (comm->me == 0)
      error->warning(FLERR, "{} {}: {} atoms at the reference (step {}), {} now, {} created since: {}", analyse_style,
                     fix_.id, reference_atoms_, reference_step_, now, static_cast<bigint>(all.back()), without_agent());
    return miss();
  }
  values_[3] = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double centre = sums.mass > 0 ? sums.weighted[axis] / sums.mass : 0;
    values_[axis] = (sums.product[axis] - 2 * centre * sums.moved[axis]) / sums.atoms + centre * centre;
    values_[3] += values_[axis];
  }
}

void SinceReference::miss() {
  values_.fill(std::numeric_limits<double>::quiet_NaN());
  ended_ = true;
}

const char* SinceReference::without_agent() const {
  return "its values are nan from now on; unfix it and use fix again to begin with a new reference";
}

}  // namespace offpath_lammps
