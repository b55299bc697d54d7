#include "md/lj_kernel.h"
#include "md/pack_avx512.h"
#include "md/search_kernel.h"

namespace md {

extern const Kernels kernels_avx512;
const Kernels kernels_avx512{"avx512",
                         lj<PackAvx512, false>,
                         lj<PackAvx512, true>,
                         lj<PackAvx512Float, false>,
                         lj<PackAvx512Float, true>,
                         find_neighbours<PackAvx512>};

}  // namespace md
