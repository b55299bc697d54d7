// The basis of tests against the kernel's own TCP: a pair of namespaces for the whole program, connected once. Where
// none can be made they are skipped, with the reason.
#pragma once

#include <gtest/gtest.h>

#include "namespace_pair.h"

namespace offpath::kernel_test {

class BesideTheKernel : public testing::Test {
 protected:
  void SetUp() override {
    if (!namespaces().missing.empty()) GTEST_SKIP() << namespaces().missing;
    static const bool connected = namespaces().connect("10.9.0.1/24", "fd00::a09:1/120");
    ASSERT_TRUE(connected);
  }
  // In the peer's namespace; waits for its end.
  static void in_far(const std::function<void()>& what) { in_namespace(namespaces().peer.get(), what); }

 private:
  static NamespacePair& namespaces() {
    static NamespacePair pair;
    return pair;
  }
};

}  // namespace offpath::kernel_test
