#include "plugin/output_memory.h"

#include <gtest/gtest.h>

#include "base/memory_file.h"
#include "testing/link/asked_file_systems.h"

namespace offpath::plugin {
namespace {

TEST(OutputMemory, NoFileSystemButThatOfMemoryIsAsked) {
  for (const Fd& fd : descriptors_of_no_memory()) {
    ASSERT_TRUE(fd);
    const Status checked = check_output(fd.get(), 1, "an output");
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, Error::protocol);
  }
  EXPECT_TRUE(asked_descriptors.empty());
  // Counts the calls: only memory is asked.
  const auto memory = sealed_copy("offpath-test", bytes_of("x"));
  ASSERT_TRUE(memory);
  EXPECT_TRUE(check_output(memory->get(), 1, "an output"));
  EXPECT_FALSE(asked_descriptors.empty());
}

}  // namespace
}  // namespace offpath::plugin
