// The inner loops: plain functions on plain arrays, one set for each instruction set. The host and the agent's plug-in
// call the same functions. Read this first in kernels, then lj_kernel.h and pack_scalar.h.
//
// Every set computes the same sums. They differ in their order, and the wide sets use fused multiply-add where it is
// written (-ffp-contract=off keeps compilers from contracting). So results of two sets agree to rounding, and those of
// one set are the same bits every time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace md {

// Lists of the atoms [first, last), as drawn in neighbour_list.h. Sixteen entries beyond the last neighbour are
// readable.
struct PairList {
  std::size_t first, last;
  const std::uint64_t* begin;
  const std::int32_t* mutual;
  const std::int32_t* neighbours;
};

struct PairSums {
  double energy = 0, virial = 0;  // of this rank's share of all pairs
};

// e(r) = 4 epsilon ((sigma/r)^12 - (sigma/r)^6) below the cut-off, not shifted.
struct LennardJones {
  double epsilon = 1, sigma = 1, cut = 2.5;
};

// Writes f of [first, last) without adding to it. `x` as in atoms.h, in single precision for the mixed kernel.
using LjDouble = PairSums (*)(const LennardJones&, const PairList&, const double* x, double* f);
using LjMixed = PairSums (*)(const LennardJones&, const PairList&, const float* x, double* f);

// A function of the distance, tabulated at equal distances, as cubics of four coefficients each; 32-byte aligned.
struct EamTable {
  const double* cubics = nullptr;
  double per_spacing = 1;
  std::int32_t last = 0;
};
// The embedded atom method of one element: rho(r), and r phi(r). same_grid: both have the same distances.
struct EamPairs {
  EamTable density, pair;
  double cut = 0;
  bool same_grid = false;
};
// Room for the part of a list that is within the cut-off, as drawn in neighbour_list.h: as many entries as the list has
// and sixteen more.
struct NearPairs {
  std::uint64_t* begin;
  std::int32_t *mutual, *neighbours;
};
// Write `density`, f of [first, last). The densities come first, and find the pairs for the forces. `slope`: the
// derivative of F at each atom's density, also for ghosts. The energy is that of the pairs alone.
using EamDensities = void (*)(const EamPairs&, const PairList&, const double* x, const NearPairs&, double* density);
using EamPairForces = PairSums (*)(const EamPairs&, const PairList&, const double* x, const double* slope, double* f);

// Lists of clusters of four atoms [first, last), as drawn in cluster_list.h. Their lengths are multiples of
// `cluster_unit`.
inline constexpr std::size_t cluster_size = 4, cluster_unit = 16;
struct ClusterLists {
  std::size_t first, last;
  const std::uint64_t* begin;
  const std::int32_t* neighbours;
  const std::uint8_t* near;    // bit a: the neighbour belongs to the cluster's atom a
  const std::int32_t* atoms;   // four for each cluster
  const std::uint8_t* counts;  // the number of its atoms: the rest repeats the first
};

// Writes f of the clusters' atoms: each pair is computed from both sides. `x` as in atoms.h.
template <class Real>
using LjClusters = PairSums (*)(const LennardJones&, const ClusterLists&, const Real* x, double* f);

// The positions to search: by coordinate, of own atoms in their order, of ghosts in the order of their bins. Sixteen
// values beyond the last one are readable. In single precision atoms at the cut-off itself may be found or not: they
// are a skin away from where they count.
template <class Real>
struct Coordinates {
  const Real *x, *y, *z;
};
template <class Real>
struct SearchSpace {
  Coordinates<Real> own, ghost;
  const std::int32_t* ghost_index;
  double cut_squared;
};
// A row of bins: [first, last) of own atoms, [ghost_first, ghost_last) of ghosts.
struct BinRow {
  std::uint32_t first, last, ghost_first, ghost_last;
};
struct SearchRange {
  const BinRow* rows;
  int count;
  std::uint32_t block_first, block_last;  // atoms that are mutual neighbours
};
struct Found {
  std::int32_t mutual, other;
};
// Writes the neighbours of own atom `i`, followed by up to fifteen meaningless entries.
template <class Real>
using FindNeighbours = Found (*)(const SearchSpace<Real>&, const SearchRange&, std::uint32_t i, std::int32_t* out);

// A cluster and the targets for its lists: both are written like `neighbours` and `near`, with up to fifteen
// meaningless entries.
struct ClusterSought {
  const std::int32_t* atoms;
  int count;
  std::int32_t* neighbours;
  std::uint8_t* near;
};
// Returns the number of neighbours: each counts once, even if it is near several of the cluster's atoms.
template <class Real>
using FindOfCluster = std::size_t (*)(const SearchSpace<Real>&, const BinRow* rows, int count, const ClusterSought&);

struct Kernels {
  std::string_view name;
  LjDouble lj, lj_with_sums;
  LjMixed lj_mixed, lj_mixed_with_sums;
  FindNeighbours<double> find_neighbours;
  FindNeighbours<float> find_neighbours_single;
  LjClusters<double> lj_clusters, lj_clusters_with_sums;
  LjClusters<float> lj_clusters_mixed, lj_clusters_mixed_with_sums;
  FindOfCluster<double> find_of_cluster;
  FindOfCluster<float> find_of_cluster_single;
  EamDensities eam_densities;
  EamPairForces eam_forces;
};

// The sets that this processor supports, the fastest first; always includes `scalar`.
const Kernels* const* available_kernels(std::size_t& count);
// By name, or `auto`. Throws BadInput with the available sets.
const Kernels& choose_kernels(std::string_view name);

}  // namespace md
