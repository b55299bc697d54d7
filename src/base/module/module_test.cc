#include "base/module/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace offpath {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Table {
  const char* version;
  int number;
};

constexpr std::string_view part = "module_test_part.so";
const std::string beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();

TEST(Module, IsFoundFromTheProgramsFolder) {
  for (const std::string_view folder : {"parts", "../tests/parts"}) {
    const auto table =
        load_table<Table>({part, folder, OFFPATH_VERSION, "tests need it", "the test"}, "of_this_version");
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ((*table)->number, 42);
  }
}

TEST(Module, ThatIsMissingIsNamedWithWhatBringsIt) {
  const auto beside_it = load_table<Table>({part, "", OFFPATH_VERSION, "tests need it", "the test"}, "of_this_version");
  ASSERT_FALSE(beside_it);
  EXPECT_EQ(beside_it.error().code, Error::unsupported);
  EXPECT_THAT(beside_it.error().message, AllOf(HasSubstr("tests need it, loaded from " + beside + "/module_test_part"),
                                               HasSubstr("No such file"), HasSubstr("install the test again")));
}

TEST(Module, OfAnotherVersionIsRefused) {
  const auto other =
      load_table<Table>({part, "parts", OFFPATH_VERSION, "tests need it", "the test"}, "of_another_version");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Error::unsupported);
  EXPECT_THAT(other.error().message, AllOf(HasSubstr(beside + "/parts/module_test_part.so has version 0.0.1"),
                                           HasSubstr("of this process"), HasSubstr("start it again")));
}

TEST(Module, HasAPathWhereverTheProgramIs) {
  const auto path_of = [](std::string_view own, std::string_view folder) {
    return module_path(own, {"m.so", folder, "", "", ""});
  };
  EXPECT_EQ(path_of("/usr/bin/a", "../lib/offpath"), "/usr/lib/offpath/m.so");
  EXPECT_EQ(path_of("/usr/lib/a.so", ""), "/usr/lib/m.so");
  EXPECT_EQ(path_of("/usr/bin/a (deleted)", "../lib"), "/usr/lib/m.so");
  EXPECT_EQ(path_of("/b/a", "../lib"), "/lib/m.so");
  EXPECT_EQ(path_of("/a", "../../lib"), "/lib/m.so");
  EXPECT_EQ(path_of("/a", ""), "/m.so");
  EXPECT_EQ(path_of("a", "../lib"), "/lib/m.so");
  EXPECT_EQ(path_of("/memfd:a (deleted)", "../lib"), "/lib/m.so");
}

TEST(Module, WithoutTheTableIsRefused) {
  const auto none = load_table<Table>({part, "parts", OFFPATH_VERSION, "tests need it", "the test"}, "of_no_version");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("of_no_version"));
}

}  // namespace
}  // namespace offpath
