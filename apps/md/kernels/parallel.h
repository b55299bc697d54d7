// A rank's threads: runs a loop in blocks of consecutive elements. The only code that uses OpenMP.
#pragma once

#include <cstddef>

namespace md {

// Calls work(block, first, last) for every block, in parallel. Blocks depend only on `threads` and `elements`.
template <class Work>
void in_blocks(int threads, std::size_t elements, const Work& work) {
  const auto edge = [&](int block) {
    return elements * static_cast<std::size_t>(block) / static_cast<std::size_t>(threads);
  };
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
#endif
  for (int block = 0; block < threads; ++block) work(block, edge(block), edge(block + 1));
}

}  // namespace md
