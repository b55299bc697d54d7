// For tests built for another processor, run by qemu-user: it translates system calls, and lacks some. A test that
// needs a missing call declares it and is skipped; it runs in a guest with a kernel of its own (tests/hw).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/clock.h"

namespace offpath::link {

// Set by CMake when it starts the tests in an emulator. Not detected by trying, because a kernel that refuses the call
// has to fail the test.
inline bool emulated() { return std::getenv("OFFPATH_EMULATED") != nullptr; }
// Longer than anything takes that a test waits for, also under a sanitizer on a machine that does much else.
inline TimeNs patience_ns() { return 60 * second_ns; }
inline int patience_ms() { return static_cast<int>(patience_ns() / millisecond_ns); }
inline TimeNs soon() { return monotonic_ns() + patience_ns(); }

}  // namespace offpath::link

// At the beginning of a test; `call`: the system call that qemu-user lacks.
#define OFP_NEEDS_KERNEL(call) \
  if (::offpath::link::emulated()) GTEST_SKIP() << "qemu-user has no " << (call)
