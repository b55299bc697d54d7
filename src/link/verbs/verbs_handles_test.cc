// Tests of RDMA without a device.
#include "link/verbs/verbs_handles.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>

namespace offpath::link {
namespace {

// Fails as the kernel does when the limit of locked memory is exceeded.
ibv_mr* lock_nothing(ibv_pd*, void*, std::size_t, int) {
  errno = ENOMEM;
  return nullptr;
}

TEST(LockedMemory, ALimitThatIsTooLowIsNamedWithTheWayToRaiseIt) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{64 << 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  VerbsCalls calls;
  calls.ibv_reg_mr = lock_nothing;
  const auto region = register_memory(calls, nullptr, &before, 1 << 20, 0);
  EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().code, Error::no_memory);
  for (const char* part : {"1048576 bytes", "64 KiB", "ulimit -l", "LimitMEMLOCK="})
    EXPECT_NE(region.error().message.find(part), std::string::npos) << region.error().message;
}

}  // namespace
}  // namespace offpath::link
