#include "supervise/options.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace offpath::supervise {
namespace {

constexpr std::string_view allowed = "reno cubic\n", available = "reno cubic dctcp\n";

TEST(CongestionOfTheKernel, IsChosenAmongWhatEverybodyMay) {
  using std::string_view_literals::operator""sv;
  const auto error = [](std::string_view value) { return congestion_error(value, "cubic", allowed, available); };
  for (const std::string_view value : {"reno"sv, "cubic"sv, "reno\0junk"sv}) EXPECT_EQ(error(value), 0) << value;
  EXPECT_EQ(error("dctcp"), EPERM);
  for (const std::string_view value : {"bbr"sv, "cubi"sv, "reno cubic"sv, "\n"sv, ""sv, "\0reno"sv})
    EXPECT_EQ(error(value), ENOENT) << value;
}

// As the kernel has it: the algorithm that a socket goes by may be named again.
TEST(CongestionOfTheKernel, MayBeThePresentOne) {
  EXPECT_EQ(congestion_error("dctcp", "dctcp", allowed, available), 0);
  EXPECT_EQ(congestion_error("", "", allowed, available), ENOENT);
}

// The kernel's lists could not be read.
TEST(CongestionOfTheKernel, IsRefusedWhereNothingIsKnown) {
  EXPECT_EQ(congestion_error("reno", "cubic", "", ""), ENOENT);
}

}  // namespace
}  // namespace offpath::supervise
