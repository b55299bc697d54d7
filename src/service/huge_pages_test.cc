#include "service/huge_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "service/buffer_cache.h"
#include "testing/link/emulated.h"

namespace offpath::service {
namespace {

constexpr std::uint64_t bytes = 2 * huge_page_bytes + 5 * page_bytes;
constexpr uid_t user = 7;

// Of the mapping that begins at `memory`, from /proc/self/smaps.
std::uint64_t huge_bytes_at(const std::byte* memory) {
  std::ifstream maps("/proc/self/smaps");
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(memory));
  constexpr std::string_view name = "ShmemPmdMapped:";
  std::string line;
  for (bool here = false; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) here = line.starts_with(start);
    if (here && line.starts_with(name)) return std::stoull(line.substr(name.size())) << 10;
  }
  return 0;
}

std::int64_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

std::uint64_t memory_of(int fd) {
  struct stat file{};
  return fstat(fd, &file) == 0 ? static_cast<std::uint64_t>(file.st_blocks) * 512 : 0;
}

TEST(HugePagesTest, AFileIsMappedAtABoundaryAndNothingElseStays) {
  for (const std::uint64_t length : {page_bytes, huge_page_bytes, bytes}) {
    const Fd fd = memory_file("test").value();
    ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(length)), 0);
    const std::int64_t before = mappings();
    for (int i = 0; i < 8; ++i) {  // at several distances from a boundary
      void* const other = mmap(nullptr, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::byte* const data = map_for_huge_pages(fd.get(), length).value();
      const std::uint64_t boundary = length >= huge_page_bytes ? huge_page_bytes : page_bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % boundary, 0u);
      data[length - 1] = std::byte{1};
      EXPECT_EQ(munmap(data, length), 0);
      EXPECT_EQ(munmap(other, page_bytes), 0);
    }
    EXPECT_LE(mappings(), before + 2) << "the allocator of this process has some, too";
  }
}

TEST(HugePagesTest, APreparedBufferIsInThemWhereTheKernelPermitsIt) {
  OFP_NEEDS_KERNEL("MADV_COLLAPSE");
  const auto cache = BufferCache::make({});
  ASSERT_TRUE(cache->prepare(bytes, user));
  if (cache->counters().huge_refusals > 0) GTEST_SKIP() << "this kernel refuses, or has no memory in large pieces";
  EXPECT_EQ(cache->counters().huge_bytes, 2 * huge_page_bytes);
  const Buffer buffer = cache->take(bytes, user).value();
  EXPECT_EQ(cache->counters().hits, 1u);
  EXPECT_EQ(huge_bytes_at(buffer.data()), 2 * huge_page_bytes);
  EXPECT_EQ(memory_of(buffer.share()), buffer.capacity()) << "no more memory than it counts";
  EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte each) { return each == std::byte{0}; }));
  constexpr int seals = F_SEAL_SEAL | F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_EQ(fcntl(buffer.share(), F_GET_SEALS) & seals, seals);
}

TEST(HugePagesTest, NoneAreAskedForWithoutTheSettingOrForLess) {
  const auto without = BufferCache::make({.huge_pages = false}), with = BufferCache::make({});
  ASSERT_TRUE(without->prepare(bytes, user));
  ASSERT_TRUE(with->prepare(huge_page_bytes / 2, user));
  for (const auto& cache : {without, with}) {
    EXPECT_EQ(cache->counters().huge_bytes, 0u);
    EXPECT_EQ(cache->counters().huge_refusals, 0u);
  }
}

// In a process that gets no huge pages.
TEST(HugePagesTest, ARefusalIsCountedAndNothingIsAskedForAWhile) {
  OFP_NEEDS_KERNEL("PR_SET_THP_DISABLE");
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) _exit(2);
    const auto cache = BufferCache::make({});
    std::vector<Buffer> buffers;
    for (std::uint64_t i = 0; i <= HugePages::pause + 1; ++i) {
      if (!cache->prepare(huge_page_bytes, user)) _exit(3);
      buffers.push_back(cache->take(huge_page_bytes, user).value());
      unsigned char resident = 0;
      const std::byte* const last = buffers.back().data() + huge_page_bytes - page_bytes;
      if (mincore(const_cast<std::byte*>(last), page_bytes, &resident) != 0 || (resident & 1) == 0) _exit(4);
      if (cache->counters().huge_refusals != (i <= HugePages::pause ? 1 : 2)) _exit(5);
    }
    _exit(cache->counters().huge_bytes == 0 ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace offpath::service
