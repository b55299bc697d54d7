#include "md/kernels/kernel_set.h"
#include "md/kernels/pack_avx512.h"

namespace md {

extern const Kernels kernels_avx512;
constinit const Kernels kernels_avx512 = kernel_set<PackAvx512, PackAvx512Float>("avx512");

}  // namespace md
