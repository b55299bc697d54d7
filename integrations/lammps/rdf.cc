// SPDX-License-Identifier: GPL-2.0-only
#include "rdf.h"

#include <mpi.h>

#include <cstring>
#include <numbers>

#include "atom.h"
#include "domain.h"
#include "error.h"
#include "group.h"
#include "utils.h"

namespace offpath_lammps {

int Rdf::parse(std::span<char*> rest) {
  if (rest.empty()) LAMMPS_NS::utils::missing_cmd_args(FLERR, std::string(analyse_style) + " rdf", error);
  const int bins = LAMMPS_NS::utils::inumeric(FLERR, rest[0], false, lmp);
  if (bins <= 0 || bins > 1 << 20)
    error->all(FLERR, "{}: {} bins, from 1 to {} are possible", analyse_style, bins, 1 << 20);
  bins_ = static_cast<std::uint64_t>(bins);
  return 1;
}

bool Rdf::keyword(std::string_view name, const char* value) {
  if (name != "cutoff") return false;
  cutoff_ = LAMMPS_NS::utils::numeric(FLERR, value, false, lmp);
  return true;
}

void Rdf::ready(LAMMPS_NS::Fix& fix) {
  if (!(cutoff_ > 0)) error->all(FLERR, "{}: cutoff R is missing, the largest distance that is counted", analyse_style);
  const double width = cutoff_ / static_cast<double>(bins_);
  for (std::size_t bin = 0; bin < bins_; ++bin) rows_.push_back({(static_cast<double>(bin) + 0.5) * width, 0, 0});
  fix.array_flag = 1;
  fix.size_array_rows = static_cast<int>(bins_);
  fix.size_array_cols = 3;
  fix.extarray = 0;
}

void Rdf::init() {
  if (domain->triclinic != 0)
    error->all(FLERR, "{}: rdf: boxes that are not orthogonal are not supported", analyse_style);
}

offpath::TaskRequest Rdf::request() {
  const auto atoms = static_cast<std::size_t>(atom->nlocal + atom->nghost);
  const bool all = fix_.igroup == 0;
  arguments_ = {static_cast<std::uint64_t>(atom->nlocal), bins_, cutoff_, all ? 0 : fix_.groupbit};
  atoms_ = group->count(fix_.igroup);
  volume_ = domain->xprd * domain->yprd * domain->zprd;
  offpath::TaskRequest request{.function = "rdf", .arguments = std::as_bytes(std::span(&arguments_, 1))};
  request.inputs.push_back({.name = "x", .data = rows_of(atom->x, atoms)});
  if (!all) request.inputs.push_back({.name = "mask", .data = rows_of(atom->mask, atoms)});
  return request;
}

// Relative to an ideal gas of as many atoms: each has atoms - 1 partners in the whole box.
void Rdf::take(std::span<const std::byte> answer) {
  std::vector<std::uint64_t> own(bins_), counts(bins_);
  std::memcpy(own.data(), answer.data(), answer.size());
  MPI_Allreduce(own.data(), counts.data(), static_cast<int>(bins_), MPI_UINT64_T, MPI_SUM, world);
  if (atoms_ < 2) return;
  const double width = cutoff_ / static_cast<double>(bins_), partners = static_cast<double>(atoms_ - 1);
  double within = 0;
  for (std::size_t bin = 0; bin < bins_; ++bin) {
    const double inner = static_cast<double>(bin) * width, outer = static_cast<double>(bin + 1) * width;
    const double shell = 4.0 / 3.0 * std::numbers::pi * (outer * outer * outer - inner * inner * inner) / volume_;
    const double found = static_cast<double>(counts[bin]) / static_cast<double>(atoms_);
    within += found;
    rows_[bin].g = found / (shell * partners);
    rows_[bin].within = within;
  }
}

double Rdf::value(int row, int column) const {
  const Row& of = rows_[static_cast<std::size_t>(row)];
  return column == 0 ? of.distance : column == 1 ? of.g : of.within;
}

}  // namespace offpath_lammps
