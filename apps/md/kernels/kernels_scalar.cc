#include "md/kernels/kernel_set.h"
#include "md/kernels/pack_scalar.h"

namespace md {

extern const Kernels kernels_scalar;
constinit const Kernels kernels_scalar = kernel_set<PackScalar<double>, PackScalar<float>>("scalar");

}  // namespace md
