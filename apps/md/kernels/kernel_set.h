// All kernels of one instruction set. Included like lj_kernel.h.
#pragma once

#include "md/kernels/cluster_kernel.h"
#include "md/kernels/cluster_search_kernel.h"
#include "md/kernels/eam_kernel.h"
#include "md/kernels/lj_kernel.h"
#include "md/kernels/search_kernel.h"

namespace md {

// `P` packs doubles, `Single` floats. Built at compile time: no special instruction may run before the set is chosen.
template <class P, class Single>
consteval Kernels kernel_set(std::string_view name) {
  return {name,
          lj<P, false>,
          lj<P, true>,
          lj<Single, false>,
          lj<Single, true>,
          find_neighbours<P>,
          find_neighbours<Single>,
          lj_clusters<P, false>,
          lj_clusters<P, true>,
          lj_clusters<Single, false>,
          lj_clusters<Single, true>,
          find_of_cluster<P>,
          find_of_cluster<Single>,
          eam_densities<P>,
          eam_forces<P>};
}

}  // namespace md
