// For tests that qemu-user runs, as it does those built for another processor: it translates system calls, and does not
// know all of them. What needs one that is missing says so and is skipped; it runs in a guest with a kernel of its own
// (tests/hw).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/clock.h"

namespace offpath::link {

// CMake says so, where it starts the tests in an emulator. Not found out by trying: a kernel that refuses has to fail
// them.
inline bool emulated() { return std::getenv("OFFPATH_EMULATED") != nullptr; }
// Longer than anything takes that a test waits for.
inline TimeNs patience_ns() { return (emulated() ? 60 : 10) * second_ns; }

}  // namespace offpath::link

// At the beginning of a test; `call` is what qemu-user lacks.
#define OFP_NEEDS_KERNEL(call) \
  if (::offpath::link::emulated()) GTEST_SKIP() << "qemu-user has no " << (call)
