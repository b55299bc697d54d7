#include "base/memory_reserve.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#ifndef __has_feature  // Clang's; GCC defines the others
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
#define OFP_SANITIZED true
#else
#define OFP_SANITIZED false
#endif

namespace offpath {
namespace {

// Fails even after the reserve was freed.
void* allocate_too_much() { return ::operator new(std::size_t{1} << 62); }

template <class Function>
void in_a_thread(Function function) {
  std::thread(function).join();
}

TEST(MemoryReserve, IsGivenBackOnceBeforeAnAllocationFails) {
  if (OFP_SANITIZED) GTEST_SKIP() << "the sanitizer's operator new ends the process and calls no handler";
  const MemoryReserve reserve;
  ASSERT_TRUE(MemoryReserve::is_whole());
  in_a_thread([] {
    MemoryReserve::protect_this_thread();
    EXPECT_THROW(allocate_too_much(), std::bad_alloc);  // the reserve was freed, and was not enough
  });
  EXPECT_TRUE(MemoryReserve::is_whole()) << "it is taken again as soon as there is memory";
}

// Every agent has one: it costs address space, and a page or two of each piece.
TEST(MemoryReserve, TakesNoPages) {
  if (OFP_SANITIZED) GTEST_SKIP() << "the sanitizer's malloc touches memory";
  const auto page = static_cast<std::ptrdiff_t>(sysconf(_SC_PAGESIZE));
  constexpr auto all = static_cast<std::ptrdiff_t>(MemoryReserve::pieces_max * MemoryReserve::piece_bytes);
  if (2 * page * static_cast<std::ptrdiff_t>(MemoryReserve::pieces_max) > all / 2)
    GTEST_SKIP() << "a piece has no page to itself";
  const auto resident_bytes = [page] {
    std::ifstream file("/proc/self/statm");
    std::ptrdiff_t pages = 0, resident = 0;
    file >> pages >> resident;
    return resident * page;
  };
  const std::ptrdiff_t before = resident_bytes();
  const MemoryReserve reserve;
  ASSERT_TRUE(MemoryReserve::is_whole());
  EXPECT_LT(resident_bytes() - before, all / 2);
}

// Calls the handler as operator new does: once for each failed allocation.
TEST(MemoryReserve, GivesAProtectedThreadOneMoreTry) {
  const MemoryReserve reserve;
  in_a_thread([] {
    MemoryReserve::protect_this_thread();
    EXPECT_NO_THROW(std::get_new_handler()());
    EXPECT_THROW(std::get_new_handler()(), std::bad_alloc);
    EXPECT_TRUE(MemoryReserve::is_whole());
    EXPECT_NO_THROW(std::get_new_handler()());
  });
}

TEST(MemoryReserve, IsNotThereForThreadsThatRunJobs) {
  const MemoryReserve reserve;
  in_a_thread([] { EXPECT_THROW(std::get_new_handler()(), std::bad_alloc); });
  in_a_thread([] {
    MemoryReserve::protect_this_thread();
    EXPECT_NO_THROW(std::get_new_handler()());
  });
}

}  // namespace
}  // namespace offpath
