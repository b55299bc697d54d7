#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

namespace offpath {
namespace {

// What fails whatever is given back.
void* allocate_too_much() { return ::operator new(std::size_t{1} << 62); }

template <class Function>
void in_a_thread(Function function) {
  std::thread(function).join();
}

TEST(MemoryReserve, IsGivenBackOnceBeforeAnAllocationFails) {
  const MemoryReserve reserve;
  ASSERT_TRUE(MemoryReserve::is_whole());
  in_a_thread([] {
    MemoryReserve::protect_this_thread();
    EXPECT_THROW(allocate_too_much(), std::bad_alloc);  // it was given back, and was not enough
  });
  EXPECT_TRUE(MemoryReserve::is_whole()) << "it is taken again as soon as there is memory";
}

// The handler as operator new calls it, once for each time that the allocation fails.
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
