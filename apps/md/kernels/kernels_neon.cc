#include "md/kernels/kernel_set.h"
#include "md/kernels/pack_neon.h"

namespace md {

extern const Kernels kernels_neon;
constinit const Kernels kernels_neon = kernel_set<PackNeon, PackNeonFloat>("neon");

}  // namespace md
