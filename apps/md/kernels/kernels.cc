#include "md/kernels/kernels.h"

#include <array>
#include <string>

#include "md/files/bad_input.h"

namespace md {

extern const Kernels kernels_scalar;
#if defined(__x86_64__)
extern const Kernels kernels_avx2, kernels_avx512;
#elif defined(__aarch64__)
extern const Kernels kernels_neon;
#endif

const Kernels* const* available_kernels(std::size_t& count) {
  struct Available {
    std::array<const Kernels*, 3> kernels{};
    std::size_t count = 0;
    Available() {
#if defined(__x86_64__)
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512dq")) {
        kernels[count++] = &kernels_avx512;
      }
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) kernels[count++] = &kernels_avx2;
#elif defined(__aarch64__)
      kernels[count++] = &kernels_neon;
#endif
      kernels[count++] = &kernels_scalar;
    }
  };
  static const Available available;
  count = available.count;
  return available.kernels.data();
}

const Kernels& choose_kernels(std::string_view name) {
  std::size_t count = 0;
  const Kernels* const* available = available_kernels(count);
  std::string names;
  for (std::size_t k = 0; k < count; ++k) {
    if (name == "auto" || available[k]->name == name) return *available[k];
    names += ", " + std::string(available[k]->name);
  }
  throw BadInput("no kernels for '" + std::string(name) + "' on this processor; available: auto" + names);
}

}  // namespace md
