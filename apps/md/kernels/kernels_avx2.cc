#include "md/kernels/kernel_set.h"
#include "md/kernels/pack_avx2.h"

namespace md {

extern const Kernels kernels_avx2;
constinit const Kernels kernels_avx2 = kernel_set<PackAvx2, PackAvx2Float>("avx2");

}  // namespace md
