#include "link/local/sealed_memory.h"

#include <gtest/gtest.h>

#include "testing/link/asked_file_systems.h"

namespace offpath::link {
namespace {

TEST(SealedMemory, NoFileSystemButThatOfMemoryIsAsked) {
  for (const Fd& fd : descriptors_of_no_memory()) {
    ASSERT_TRUE(fd);
    const auto mapped = map_sealed(fd.get(), page_bytes, "a segment");
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code, Error::denied);
  }
  EXPECT_TRUE(asked_descriptors.empty());
  // Counts the calls: only memory is asked.
  const auto memory = allocate_sealed(page_bytes);
  ASSERT_TRUE(memory);
  EXPECT_TRUE(map_sealed(memory->fd(), page_bytes, "a segment"));
  EXPECT_FALSE(asked_descriptors.empty());
}

}  // namespace
}  // namespace offpath::link
