#include "md/lj_kernel.h"
#include "md/pack_avx2.h"
#include "md/search_kernel.h"

namespace md {

extern const Kernels kernels_avx2;
const Kernels kernels_avx2{"avx2",
                         lj<PackAvx2, false>,
                         lj<PackAvx2, true>,
                         lj<PackAvx2Float, false>,
                         lj<PackAvx2Float, true>,
                         find_neighbours<PackAvx2>};

}  // namespace md
