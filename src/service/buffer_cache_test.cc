#include "service/buffer_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "testing/link/emulated.h"

namespace offpath::service {
namespace {

TEST(BufferCache, ClassesWasteAtMostAnEighth) {
  for (std::uint64_t length :
       {1ull, 4096ull, 4097ull, 40'000ull, 65'536ull, 65'537ull, 1'000'000ull, (1ull << 30) + 1}) {
    const std::uint64_t capacity = BufferCache::class_bytes(length);
    EXPECT_GE(capacity, length);
    EXPECT_EQ(capacity % page_bytes, 0u);
    EXPECT_LE(capacity, align_up(length, page_bytes) + length / 8 + page_bytes);
    EXPECT_EQ(BufferCache::class_bytes(capacity), capacity) << "a class is its own class";
  }
}

TEST(BufferCache, BuffersComeBackToTheirUserOnly) {
  auto cache = BufferCache::make({});
  std::byte* first = nullptr;
  {
    Buffer buffer = cache->take(10'000, 1000).value();
    first = buffer.data();
    EXPECT_EQ(cache->used_bytes(), 12'288u);
  }
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(cache->counters().cached_buffers, 1u);
  Buffer strangers = cache->take(10'000, 1001).value();
  EXPECT_NE(strangers.data(), first);
  Buffer own = cache->take(9'000, 1000).value();
  EXPECT_EQ(own.data(), first);
  EXPECT_EQ(own.length(), 9'000u);
  EXPECT_EQ(cache->counters().hits, 1u);
  EXPECT_EQ(cache->counters().misses, 2u);
}

TEST(BufferCache, MemoryThatWasSharedCountsAsSharedInEachLaterBuffer) {
  auto cache = BufferCache::make({});
  const std::byte* first = nullptr;
  {
    Buffer buffer = cache->take(8192, 1).value();
    first = buffer.data();
    EXPECT_FALSE(buffer.is_shared());
  }
  for (const bool shared : {false, true}) {
    Buffer again = cache->take(8192, 1).value();
    ASSERT_EQ(again.data(), first);
    EXPECT_EQ(again.is_shared(), shared);
    EXPECT_GE(again.share(), 0);
    const Buffer moved = std::move(again);
    EXPECT_TRUE(moved.is_shared());
  }
  EXPECT_FALSE(cache->take(100'000, 1).value().is_shared());
}

TEST(BufferCache, ItsBytesAreBounded) {
  auto cache = BufferCache::make({.cached_bytes_max = 100'000});
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(cache->take(32'768, 1).value());
  }
  EXPECT_LE(cache->counters().cached_bytes, 100'000u);
  EXPECT_EQ(cache->counters().cached_buffers, 3u);
  EXPECT_EQ(cache->counters().dropped, 7u);
}

TEST(BufferCache, AFullCacheMakesRoomForWhatIsUsedNow) {
  auto cache = BufferCache::make({.cached_bytes_max = 100'000});
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 3; ++i) buffers.push_back(cache->take(32'768, 1).value());
  }
  {
    const Buffer other = cache->take(65'536, 1).value();
  }
  EXPECT_TRUE(cache->has_free(65'536, 1));
  EXPECT_LE(cache->counters().cached_bytes, 100'000u);
  {
    const Buffer again = cache->take(65'536, 1).value();
  }
  EXPECT_EQ(cache->counters().hits, 1u);
}

TEST(BufferCache, LargeBuffersLeaveInAJob) {
  constexpr std::uint64_t large = 4 << 20;
  auto cache = BufferCache::make({.cached_bytes_max = 3 * large / 2});
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 3; ++i) buffers.push_back(cache->take(large, 1).value());
  }
  // One stays, the others wait to be dropped.
  EXPECT_EQ(cache->counters().cached_buffers, 1u);
  EXPECT_EQ(cache->counters().dropped, 2u);
  EXPECT_EQ(cache->leaving_bytes(), 2 * large);
  cache->drop_leaving();
  EXPECT_EQ(cache->leaving_bytes(), 0u);
  {
    const Buffer other = cache->take(large + large / 8, 1).value();
  }  // replaces the cached buffer
  EXPECT_EQ(cache->leaving_bytes(), large);
  EXPECT_EQ(cache->counters().dropped, 3u);
}

TEST(BufferCache, WhatLeavesCountsAsUsedUntilAJobHasReturnedIt) {
  constexpr std::uint64_t bytes = 65'536, count = 16;
  auto lasting = std::make_shared<link::LastingMemory>();
  auto cache = BufferCache::make({.cached_bytes_max = bytes, .lasting = lasting, .buffers_max = count});
  std::vector<Buffer> buffers;
  std::vector<std::byte*> places;
  for (std::uint64_t i = 0; i < count; ++i) {
    buffers.push_back(cache->take(bytes, 1).value());
    places.push_back(buffers.back().data());
  }
  buffers.clear();
  EXPECT_EQ(cache->counters().cached_buffers, 1u);
  for (std::byte* const place : places) EXPECT_TRUE(lasting->find(place)) << "nothing is unmapped by who lets go";
  EXPECT_EQ(cache->used_bytes(), (count - 1) * bytes);
  EXPECT_EQ(cache->used_bytes_of(1), (count - 1) * bytes);
  EXPECT_EQ(cache->counters().used_buffers, count - 1);
  buffers.push_back(cache->take(2 * bytes, 2).value());  // replaces the cached buffer
  EXPECT_EQ(cache->take(2 * bytes, 2).error().code, Error::no_memory);
  cache->drop_leaving();
  for (std::byte* const place : places) EXPECT_FALSE(lasting->find(place));
  EXPECT_EQ(cache->used_bytes(), 2 * bytes);
  EXPECT_EQ(cache->used_bytes_of(1), 0u);
  EXPECT_TRUE(cache->take(2 * bytes, 2));
}

TEST(BufferCache, WhoHoldsTheDescriptorCanOnlyRead) {
  auto cache = BufferCache::make({});
  Buffer buffer = cache->take(8192, 1).value();
  buffer.data()[0] = std::byte{42};
  const int fd = buffer.share();
  EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(fd, 1 << 20), -1);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  const int again = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR);
  if (again >= 0) {  // opening is allowed, writing is not
    EXPECT_EQ(pwrite(again, "x", 1, 0), -1);
    EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
    close(again);
  }
  void* view = mmap(nullptr, 8192, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_EQ(static_cast<std::byte*>(view)[0], std::byte{42});
  EXPECT_EQ(mprotect(view, 8192, PROT_READ | PROT_WRITE), -1);
  buffer.data()[0] = std::byte{43};  // the agent still writes through its own mapping
  EXPECT_EQ(static_cast<std::byte*>(view)[0], std::byte{43});
  munmap(view, 8192);
}

TEST(BufferCache, APreparedBufferIsFoundByTheNextTakeOfItsClass) {
  OFP_NEEDS_KERNEL("MADV_POPULATE_WRITE, and says that it did it");
  auto cache = BufferCache::make({});
  ASSERT_TRUE(cache->prepare(100'000, 7));
  EXPECT_TRUE(cache->has_free(100'000, 7));
  EXPECT_FALSE(cache->has_free(100'000, 8));
  ASSERT_TRUE(cache->prepare(100'000, 7));
  EXPECT_EQ(cache->counters().cached_buffers, 1u) << "one is enough";
  const Buffer buffer = cache->take(100'000, 7).value();
  EXPECT_EQ(cache->counters().hits, 1u);
  unsigned char resident[32] = {};
  ASSERT_EQ(mincore(buffer.data(), buffer.capacity(), resident), 0);
  for (std::uint64_t page = 0; page < buffer.capacity() / page_bytes; ++page) EXPECT_EQ(resident[page] & 1, 1) << page;
}

TEST(BufferCache, OutlivedByItsBuffers) {
  Buffer buffer;
  {
    auto cache = BufferCache::make({});
    buffer = cache->take(4096, 1).value();
  }
  buffer.data()[4095] = std::byte{1};
  buffer = {};
  EXPECT_FALSE(buffer);
}

TEST(BufferCache, ListsItsBuffersWhileTheyAreMapped) {
  auto lasting = std::make_shared<link::LastingMemory>();
  auto cache = BufferCache::make({.cached_bytes_max = 100'000, .lasting = lasting});
  std::byte* small = nullptr;
  std::byte* large = nullptr;
  {
    auto one = cache->take(8192, 0), other = cache->take(1'000'000, 0);
    ASSERT_TRUE(one && other);
    small = one->data();
    large = other->data();
    EXPECT_TRUE(lasting->find(small));
    ASSERT_TRUE(lasting->find(large + 999'999));
    EXPECT_EQ(lasting->find(large)->length, other->capacity());
  }
  EXPECT_TRUE(lasting->find(small));  // cached for the next one
  EXPECT_TRUE(lasting->find(large));  // too large for the cache, and still mapped
  cache->drop_leaving();
  EXPECT_FALSE(lasting->find(large));
  cache->clear();
  EXPECT_FALSE(lasting->find(small));
}

TEST(BufferCache, BuffersAreCounted) {
  auto cache = BufferCache::make({.buffers_max = 4, .user_buffers_max = 3});
  std::vector<Buffer> buffers;
  for (int i = 0; i < 3; ++i) buffers.push_back(cache->take(8192, 1).value());
  EXPECT_FALSE(cache->has_place_for(1));
  EXPECT_TRUE(cache->has_place_for(2));
  const auto one_more = cache->take(8192, 1);
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code, Error::no_memory);
  EXPECT_EQ(one_more.error().message,
            "user 1 has 3 frames in memory, which is the limit of each user (limits.user_frames_max)");
  buffers.push_back(cache->take(8192, 2).value());
  EXPECT_EQ(cache->take(8192, 2).error().message,
            "4 frames are in memory, which is this agent's limit (limits.frames_max)");
  EXPECT_EQ(cache->take(8, 2).error().code, Error::no_memory) << "the slab of a small one counts as well";
  EXPECT_EQ(cache->used_bytes(), 4 * 8192u);
  // Cached buffers count, and make room for new ones.
  buffers.clear();
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(cache->counters().cached_buffers, 4u);
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(cache->take(65'536, 3).value());
    EXPECT_LE(buffers.size() + cache->counters().cached_buffers, 4u);
  }
  ASSERT_TRUE(cache->prepare(1 << 20, 3));
  EXPECT_LE(buffers.size() + cache->counters().cached_buffers, 4u);
}

TEST(BufferCache, WhatTheKernelRefusesIsAnErrorAndLeavesNothing) {
  auto cache = BufferCache::make({});
  rlimit before{};
  for (const auto resource : {RLIMIT_NOFILE, RLIMIT_AS}) {
    ASSERT_EQ(getrlimit(resource, &before), 0);
    rlimit none = before;
    none.rlim_cur = resource == RLIMIT_NOFILE ? 0 : 1 << 20;
    ASSERT_EQ(setrlimit(resource, &none), 0);
    auto refused = cache->take(1 << 20, 1);
    const Error code = refused ? Error::invalid : refused.error().code;
    const Status prepared = cache->prepare(1 << 20, 1);
    ASSERT_EQ(setrlimit(resource, &before), 0);
    EXPECT_EQ(code, Error::no_memory);
    EXPECT_FALSE(prepared);
  }
  EXPECT_EQ(cache->used_bytes_of(1), 0u);
  EXPECT_TRUE(cache->take(1 << 20, 1));
}

std::uint64_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::uint64_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

TEST(SmallBuffers, TensOfThousandsTakeTensOfMappings) {
  constexpr std::uint64_t count = 70'000;
  auto cache = BufferCache::make({.buffers_max = 80, .user_buffers_max = 70});
  const std::uint64_t before = mappings();
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto taken = cache->take(8 + i % 4089, 1);
    ASSERT_TRUE(taken) << i << ": " << taken.error().message;
    EXPECT_LT(taken->share(), 0);
    store(taken->data(), i);
    store(taken->data() + taken->length() - 8, i);
    buffers.push_back(std::move(*taken));
  }
  const std::uint64_t with_all = mappings();
  EXPECT_LE(with_all, before + 200) << "the allocator of this process has some, too";
  EXPECT_EQ(cache->counters().used_buffers, 69u);
  EXPECT_EQ(cache->used_bytes_of(1), count * page_bytes);
  Buffer strangers = cache->take(8, 2).value();
  std::memset(strangers.data(), 0xFF, page_bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(load<std::uint64_t>(buffers[i].data() + buffers[i].length() - 8), i);
    ASSERT_TRUE(buffers[i].length() < 16 || load<std::uint64_t>(buffers[i].data()) == i) << i;
  }
  strangers = {};
  buffers.clear();
  cache->drop_leaving();
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(cache->counters().used_buffers, 0u);
  cache->clear();
  EXPECT_EQ(cache->counters().cached_bytes, 0u);
  EXPECT_EQ(cache->counters().cached_buffers, 0u);
  EXPECT_LE(mappings() + 60, with_all);
}

TEST(SmallBuffers, PagesComeBackToTheirUserOnly) {
  auto cache = BufferCache::make({});
  Buffer first = cache->take(100, 1).value();
  std::byte* const page = first.data();
  first = {};
  EXPECT_EQ(cache->counters().cached_bytes, page_bytes);
  EXPECT_EQ(cache->counters().cached_buffers, 1u) << "its slab";
  EXPECT_NE(cache->take(100, 2).value().data() - page, 0);
  const Buffer again = cache->take(4096, 1).value();
  EXPECT_EQ(again.data(), page);
  EXPECT_EQ(cache->counters().hits, 1u);
}

TEST(SmallBuffers, PagesThatAreTooManyToBeKeptAreReturnedToTheKernel) {
  OFP_NEEDS_KERNEL("MADV_REMOVE, and mincore that tells of it");
  constexpr std::uint64_t kept = 8, count = 3000;
  auto cache = BufferCache::make({.cached_bytes_max = 8 * kept * page_bytes});
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < count; ++i) {
    buffers.push_back(cache->take(4096, 1).value());
    store(buffers.back().data(), i);
  }
  std::vector<std::byte*> given;
  std::vector<Buffer> left;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i == 1500)
      left.push_back(std::move(buffers[i]));  // keeps its slab alive, and no other slab
    else if (i >= 1024 && i < 2048)
      given.push_back(buffers[i].data());
  }
  buffers.clear();
  EXPECT_EQ(cache->counters().cached_bytes, kept * page_bytes);
  EXPECT_EQ(cache->used_bytes(), (count - kept) * page_bytes) << "until they are returned";
  cache->drop_leaving();
  EXPECT_EQ(cache->used_bytes(), page_bytes);
  EXPECT_EQ(cache->leaving_bytes(), 0u);
  EXPECT_EQ(cache->counters().used_buffers, 1u);
  for (std::byte* const page : given) {
    unsigned char resident = 0;
    ASSERT_EQ(mincore(page, page_bytes, &resident), 0) << "its slab is there";
    EXPECT_EQ(resident & 1, 0);
  }
  EXPECT_EQ(load<std::uint64_t>(left[0].data()), 1500u);
  const Buffer again = cache->take(4096, 1).value();
  EXPECT_EQ(cache->used_bytes(), 2 * page_bytes);
}

TEST(SmallBuffers, ACopyIsSealedAndStaysAsItIs) {
  auto cache = BufferCache::make({});
  const Buffer buffer = cache->take(2000, 1).value();
  std::memset(buffer.data(), 'a', 2000);
  std::memset(buffer.data() + 2000, 'x', page_bytes - 2000);  // left over from the previous object
  const Fd copy = buffer.copy().value();
  std::memset(buffer.data(), 'b', 2000);
  std::string bytes(page_bytes, '-');
  EXPECT_EQ(pread(copy.get(), bytes.data(), bytes.size(), 0), 2000);
  EXPECT_EQ(bytes.substr(0, 2000), std::string(2000, 'a'));
  EXPECT_EQ(pwrite(copy.get(), "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(copy.get(), 0), -1);
  EXPECT_EQ(mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, copy.get(), 0), MAP_FAILED);
  EXPECT_GE(cache->take_file(2000, 1).value().share(), 0);
}

TEST(SmallBuffers, AreTakenAndGivenBackWhileAJobReturnsThem) {
  auto cache = BufferCache::make({.cached_bytes_max = 16 * page_bytes});
  std::atomic<bool> over = false;
  std::thread job([&] {
    while (!over) cache->drop_leaving();
  });
  const auto work = [&cache](uid_t user) {
    std::vector<Buffer> buffers;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const std::uint64_t value = i << 8 | user;
      buffers.push_back(cache->take(i % 97 == 0 ? 40'000 : 4096, user).value());
      store(buffers.back().data(), value);
      store(buffers.back().data() + 4088, value);
      if (buffers.size() < 2000) continue;
      for (const Buffer& each : buffers)
        EXPECT_EQ(load<std::uint64_t>(each.data()), load<std::uint64_t>(each.data() + 4088));
      buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(i % 1000), buffers.end());
    }
  };
  std::thread one(work, 1), other(work, 2);
  one.join();
  other.join();
  over = true;
  job.join();
  cache->drop_leaving();
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(cache->counters().used_buffers, 0u);
}

}  // namespace
}  // namespace offpath::service
