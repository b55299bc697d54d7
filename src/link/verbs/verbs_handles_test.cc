// Tests of RDMA without a device.
#include "link/verbs/verbs_handles.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "link/local/sealed_memory.h"

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

bool were_asked_for = false;

ibv_mr* look_at_flags(ibv_pd*, void* base, std::size_t, int) {
  std::ifstream maps("/proc/self/smaps");
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(base));
  std::string line;
  for (bool here = false; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) here = line.starts_with(start);
    if (here && line.starts_with("VmFlags:")) were_asked_for = line.find(" hg") != std::string::npos;
  }
  return nullptr;
}

TEST(Segments, AreInHugePagesBeforeTheyArePinned) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "no transparent huge pages";
  auto memory = allocate_sealed(8 << 20);
  ASSERT_TRUE(memory);
  VerbsCalls calls;
  calls.ibv_reg_mr = look_at_flags;
  EXPECT_FALSE(register_segment(calls, nullptr, memory->bytes(), 0));
  EXPECT_TRUE(were_asked_for);
}

}  // namespace
}  // namespace offpath::link
