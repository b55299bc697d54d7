#include "pool/query/query_loops.h"

namespace offpath::pool {

namespace baseline {
extern const LoopTable table;
}
#if defined(OFP_QUERY_LOOPS_X86)
namespace avx2 {
extern const LoopTable table;
}
namespace avx512 {
extern const LoopTable table;
}
#endif

const LoopTable& baseline_loops() noexcept { return baseline::table; }

const LoopTable& loops() noexcept {
#if defined(OFP_QUERY_LOOPS_X86)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return avx512::table;
  if (__builtin_cpu_supports("avx2")) return avx2::table;
#endif
  return baseline::table;
}

}  // namespace offpath::pool
