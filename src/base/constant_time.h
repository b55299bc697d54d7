// Comparison of secrets (proofs, tokens) that takes as long for a wrong one as for the right one.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace offpath {

// The time depends on the length of `secret` alone.
[[nodiscard]] inline bool equal_in_constant_time(Bytes secret, Bytes given) noexcept {
  volatile unsigned differs = secret.size() != given.size();  // volatile: no end of the loop at the first difference
  for (std::size_t i = 0; i < secret.size() && !given.empty(); ++i)
    differs = differs | std::to_integer<unsigned>(secret[i] ^ given[i % given.size()]);
  return differs == 0;
}

}  // namespace offpath
