// All kernels of one instruction set. Included as lj_kernel.h is.
#pragma once

#include "md/kernels/cluster_kernel.h"
#include "md/kernels/cluster_search_kernel.h"
#include "md/kernels/lj_kernel.h"
#include "md/kernels/search_kernel.h"

namespace md {

// `P` packs doubles, `Single` floats. Made by the compiler: nothing of a processor's own may run before it is chosen.
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
          find_of_cluster<Single>};
}

}  // namespace md
