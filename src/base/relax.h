// A hint to the processor in a loop that waits for another core.
#pragma once

namespace offpath {

inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace offpath
