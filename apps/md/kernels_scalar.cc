#include "md/kernel_set.h"
#include "md/pack_scalar.h"

namespace md {

extern const Kernels kernels_scalar;
constinit const Kernels kernels_scalar = kernel_set<PackScalar<double>, PackScalar<float>>("scalar");

}  // namespace md
