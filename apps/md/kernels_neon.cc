#include "md/lj_kernel.h"
#include "md/pack_neon.h"
#include "md/search_kernel.h"

namespace md {

extern const Kernels kernels_neon;
const Kernels kernels_neon{"neon",
                         lj<PackNeon, false>,
                         lj<PackNeon, true>,
                         lj<PackNeonFloat, false>,
                         lj<PackNeonFloat, true>,
                         find_neighbours<PackNeon>};

}  // namespace md
