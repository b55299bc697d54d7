#include "md/lj_kernel.h"
#include "md/pack_scalar.h"
#include "md/search_kernel.h"

namespace md {

extern const Kernels kernels_scalar;
const Kernels kernels_scalar{"scalar",
                             lj<PackScalar<double>, false>,
                             lj<PackScalar<double>, true>,
                             lj<PackScalar<float>, false>,
                             lj<PackScalar<float>, true>,
                             find_neighbours<PackScalar<double>>};

}  // namespace md
