#include "link/card/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "link/local/sealed_memory.h"

namespace offpath::link {
namespace {

constexpr std::uint64_t several = 4 * huge_page_bytes;

// Of the mapping that begins at `memory`, from /proc/self/smaps; empty: there is none.
std::string field(const std::byte* memory, std::string_view name) {
  std::ifstream maps("/proc/self/smaps");
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(memory));
  std::string line;
  for (bool here = false; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) here = line.starts_with(start);
    if (here && line.starts_with(fmt::format("{}:", name))) return line.substr(name.size() + 1);
  }
  return {};
}

bool asked(const std::byte* memory) { return field(memory, "VmFlags").find(" hg") != std::string::npos; }

// Whether this machine gives huge pages to those who ask.
bool grants(const char* file, bool shared) {
  std::ifstream setting(std::string("/sys/kernel/mm/transparent_hugepage/") + file);
  const std::string text{std::istreambuf_iterator<char>(setting), {}};
  for (const char* each : {"[always]", "[within_size]", shared ? "[advise]" : "[madvise]", "[force]"})
    if (text.find(each) != std::string::npos) return true;
  return false;
}

bool knows_huge_pages() { return std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good(); }

TEST(HugePages, AreAskedForWhereOneHasRoom) {
  if (!knows_huge_pages()) GTEST_SKIP() << "a kernel without transparent huge pages";
  const auto large = allocate_sealed(several), small = allocate_sealed(huge_page_bytes - page_bytes);
  ASSERT_TRUE(large && small);
  for (const auto* each : {&*large, &*small}) ask_for_huge_pages({each->data(), each->length()});
  EXPECT_TRUE(asked(large->data()));
  EXPECT_FALSE(asked(small->data()));
}

// A machine that grants them may have no free memory in large pieces.
void expect_huge(const std::byte* memory, std::string_view name) {
  EXPECT_TRUE(asked(memory));
  const std::uint64_t kib = std::stoul(field(memory, name));
  if (kib == 0)
    std::puts("no memory of a huge page's size was free");
  else
    EXPECT_GE(kib, huge_page_bytes >> 10);
}

TEST(HugePages, AreUsedForSharedMemoryWhereTheMachineGrantsThem) {
  if (!grants("shmem_enabled", true)) GTEST_SKIP() << "this machine grants none to shared memory";
  const auto memory = allocate_sealed(several);
  ASSERT_TRUE(memory);
  ask_for_huge_pages({memory->data(), memory->length()});
  std::memset(memory->data(), 1, several);
  expect_huge(memory->data(), "ShmemPmdMapped");
}

// Most machines grant them for private memory alone.
TEST(HugePages, AreUsedForPrivateMemoryWhereTheMachineGrantsThem) {
  if (!grants("enabled", false)) GTEST_SKIP() << "this machine grants none";
  void* const data = mmap(nullptr, several, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  ask_for_huge_pages({static_cast<std::byte*>(data), several});
  std::memset(data, 1, several);
  expect_huge(static_cast<std::byte*>(data), "AnonHugePages");
  EXPECT_EQ(munmap(data, several), 0);
}

TEST(HugePages, MemoryIsWholeWithoutThem) {
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) _exit(2);
    const auto memory = allocate_sealed(several);
    if (!memory) _exit(3);
    ask_for_huge_pages({memory->data(), memory->length()});
    std::memset(memory->data(), 7, several);
    for (std::uint64_t at = 0; at < several; at += page_bytes)
      if (memory->data()[at] != std::byte{7}) _exit(4);
    _exit(std::stoul(field(memory->data(), "ShmemPmdMapped")) == 0 ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace offpath::link
