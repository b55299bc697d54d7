#include "md/forces/eam_forces.h"

#include <algorithm>
#include <cmath>

#include "md/files/bad_input.h"
#include "md/kernels/parallel.h"

namespace md {
namespace {

struct Separation {
  double dx, dy, dz, squared;
};

Separation between(const double* x, std::size_t i, std::size_t j) {
  const double dx = x[values * i] - x[values * j], dy = x[values * i + 1] - x[values * j + 1],
               dz = x[values * i + 2] - x[values * j + 2];
  return {dx, dy, dz, dx * dx + dy * dy + dz * dz};
}

// Calls pair(i, j, separation, mutual) for all pairs of the list within the cut-off.
template <class Pair>
void for_pairs(const PairList& list, const double* x, double cut, const Pair& pair) {
  for (std::size_t i = list.first; i < list.last; ++i) {
    const std::uint64_t begin = list.begin[i - list.first], end = list.begin[i - list.first + 1];
    const std::uint64_t mutual_end = begin + static_cast<std::uint64_t>(list.mutual[i - list.first]);
    for (std::uint64_t k = begin; k < end; ++k) {
      const auto j = static_cast<std::size_t>(list.neighbours[k]);
      const Separation apart = between(x, i, j);
      if (apart.squared < cut * cut) pair(i, j, apart, k < mutual_end);
    }
  }
}

EamTables of_one_element(std::span<const double> tables) {
  if (tables.empty()) throw BadInput("a table cut short");
  EamTables made;
  made.elements = 1;
  made.mass = {1};  // nothing is integrated
  made.cut = tables[0];
  tables = tables.subspan(1);
  for (std::vector<Spline>* of : {&made.embedding, &made.density, &made.pair})
    of->push_back(Spline::from_cubics(tables));
  if (!tables.empty()) throw BadInput("more than the tables of one element");
  return made;
}

}  // namespace

void eam_densities(const EamTables& tables, const PairList& list, const double* x, const std::uint8_t* type,
                   double* density) {
  for (std::size_t i = list.first; i < list.last; ++i) density[i] = 0;
  for_pairs(list, x, tables.cut, [&](std::size_t i, std::size_t j, const Separation& apart, bool mutual) {
    const double r = std::sqrt(apart.squared);
    const double from_j = tables.density[type[j]].at(r).value;
    density[i] += from_j;
    if (mutual) density[j] += type[i] == type[j] ? from_j : tables.density[type[i]].at(r).value;
  });
}

PairSums eam_pairs(const EamTables& tables, const PairList& list, const double* x, const std::uint8_t* type,
                   const double* slope, double* f) {
  for (std::size_t n = values * list.first; n < values * list.last; ++n) f[n] = 0;
  PairSums sums;
  for_pairs(list, x, tables.cut, [&](std::size_t i, std::size_t j, const Separation& apart, bool mutual) {
    const double r = std::sqrt(apart.squared), inverse = 1 / r;
    const Spline::Value pair = tables.pair_of(type[i], type[j]).at(r);
    const double density_slope_j = tables.density[type[j]].at(r).slope;
    const double density_slope_i = type[i] == type[j] ? density_slope_j : tables.density[type[i]].at(r).slope;
    const double phi = pair.value * inverse;
    const double phi_slope = pair.slope * inverse - phi * inverse;
    const double force = -(slope[i] * density_slope_j + slope[j] * density_slope_i + phi_slope) * inverse;
    f[values * i] += apart.dx * force;
    f[values * i + 1] += apart.dy * force;
    f[values * i + 2] += apart.dz * force;
    if (mutual) {
      f[values * j] -= apart.dx * force;
      f[values * j + 1] -= apart.dy * force;
      f[values * j + 2] -= apart.dz * force;
    }
    const double share = mutual ? 1 : 0.5;
    sums.energy += share * phi;
    sums.virial += share * force * apart.squared;
  });
  return sums;
}

std::vector<double> EamForces::parameters() const {
  std::vector<double> all{tables_.cut};
  for (const auto* const tables : {&tables_.embedding, &tables_.density, &tables_.pair}) {
    for (const Spline& table : *tables) table.append_points(all);
  }
  return all;
}

std::vector<double> EamForces::tables() const {
  std::vector<double> all;
  if (tables_.elements != 1) return all;
  all.push_back(tables_.cut);
  for (const auto* const of : {&tables_.embedding, &tables_.density, &tables_.pair}) of->front().append_cubics(all);
  return all;
}

EamForces::EamForces(std::span<const double> tables, const Kernels& kernels)
    : EamForces(of_one_element(tables), kernels) {}

EamForces::EamForces(EamTables tables, const Kernels& kernels) : tables_(std::move(tables)), kernels_(kernels) {
  one_ = {tables_.density[0].table(), tables_.pair[0].table(), tables_.cut, false};
  one_.same_grid = one_.density.per_spacing == one_.pair.per_spacing && one_.density.last == one_.pair.last;
}

NearPairs EamForces::Near::room_for(const PairList& list) {
  constexpr std::size_t spare = 16;
  const std::size_t atoms = list.last - list.first;
  begin.resize(atoms + 1);
  mutual.resize(atoms);
  neighbours.resize(list.begin[atoms] - list.begin[0] + spare);
  return {begin.data(), mutual.data(), neighbours.data()};
}

PairSums EamForces::compute(const NeighbourList& list, Halo& halo, bool /*with_sums*/, Atoms& atoms) {
  std::vector<PairList> blocks;
  for (const NeighbourBlock& block : list.blocks) blocks.push_back(block.view());
  return compute(blocks, static_cast<int>(blocks.size()),
                 {atoms.own, atoms.all(), atoms.x.data(), atoms.type.data(), atoms.f.data()},
                 [&](double* number) { halo.update_values(number); });
}

PairSums EamForces::compute(std::span<const PairList> blocks, int threads, const EamAtoms& atoms,
                            const std::function<void(double* number)>& to_ghosts) {
  density_.resize(atoms.own);
  slope_.resize(atoms.all);
  near_.resize(blocks.size());
  std::vector<double> embedded(blocks.size());
  const bool one = tables_.elements == 1;
  in_blocks(threads, blocks.size(), [&](int, std::size_t first, std::size_t last) {
    for (std::size_t b = first; b < last; ++b) {
      const PairList& mine = blocks[b];
      if (one)
        kernels_.eam_densities(one_, mine, atoms.x, near_[b].room_for(mine), density_.data());
      else
        eam_densities(tables_, mine, atoms.x, atoms.type, density_.data());
      for (std::size_t i = mine.first; i < mine.last; ++i) {
        const Spline& embedding = tables_.embedding[one ? 0 : atoms.type[i]];
        const Spline::Value at = embedding.at(density_[i]);
        const double beyond = density_[i] - embedding.last();
        slope_[i] = at.slope;
        embedded[b] += at.value + (beyond > 0 ? at.slope * beyond : 0);  // F continues linearly beyond its table
      }
    }
  });
  to_ghosts(slope_.data());
  std::vector<PairSums> parts(blocks.size());
  in_blocks(threads, blocks.size(), [&](int, std::size_t first, std::size_t last) {
    for (std::size_t b = first; b < last; ++b) {
      const PairList& mine = blocks[b];
      parts[b] = one ? kernels_.eam_forces(one_, near_[b].view(mine), atoms.x, slope_.data(), atoms.f)
                     : eam_pairs(tables_, mine, atoms.x, atoms.type, slope_.data(), atoms.f);
    }
  });
  PairSums sums;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    sums.energy += embedded[b] + parts[b].energy;
    sums.virial += parts[b].virial;
  }
  return sums;
}

}  // namespace md
