#include "connections/area/process_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace offpath::channel {
namespace {

using Handles = std::vector<ProcessTable::Handle>;

class ProcessTableTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  Handles held(std::uint32_t number) const {
    Handles all;
    table_.for_each_held(number, [&](ProcessTable::Handle handle) { all.push_back(handle); });
    return all;
  }
  Handles changed(std::uint32_t number) const {
    Handles all;
    while (const auto handle = table_.take_changed(number)) all.push_back(*handle);
    return all;
  }

  const std::uint32_t flows_ = GetParam();
  std::uint32_t count_ = 0;
  std::vector<Line> memory_{ProcessTable::process_bytes(flows_) * wire::tcp_processes_max / sizeof(Line)};
  ProcessTable table_{memory_.front().bytes, flows_, count_};
};

INSTANTIATE_TEST_SUITE_P(Flows, ProcessTableTest, ::testing::Values(70, 1000, wire::tcp_flows_max));

TEST_P(ProcessTableTest, NumbersOfEndedProcessesAreGivenAgain) {
  for (std::uint32_t i = 0; i < wire::tcp_processes_max; ++i) EXPECT_EQ(table_.add().value(), i);
  const auto refused = table_.add();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::no_space);
  table_.remove(3);
  EXPECT_EQ(table_.add().value(), 3u);
  EXPECT_EQ(table_.count(), wire::tcp_processes_max);
}

TEST_P(ProcessTableTest, EachProcessHoldsItsOwnHandles) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(table_.add());
  const Handles handles{0, 1, 63, flows_ - 1};
  for (const auto handle : handles) table_.hold(0, handle);
  table_.hold(1, 1);
  EXPECT_EQ(held(0), handles);
  EXPECT_EQ(held(1), Handles{1});
  table_.let_all_go(1);
  EXPECT_FALSE(table_.is_held(0, 1));
  EXPECT_FALSE(table_.is_held(1, 1));
  table_.for_each_held(0, [&](ProcessTable::Handle handle) { table_.let_go(0, handle); });
  EXPECT_TRUE(held(0).empty());
}

TEST_P(ProcessTableTest, EachChangeIsTakenOnceByTheProcessItIsFor) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(table_.add());
  EXPECT_FALSE(table_.has_changed(1));
  Handles handles{flows_ - 1, 0, 40, flows_ / 2};
  for (const auto handle : handles) {
    table_.set_changed(1, handle, 0);
    table_.set_changed(1, handle, 0);
  }
  EXPECT_TRUE(table_.has_changed(1));
  EXPECT_FALSE(table_.has_changed(0));
  std::ranges::sort(handles);
  EXPECT_EQ(changed(1), handles);
  EXPECT_FALSE(table_.has_changed(1));
}

TEST_P(ProcessTableTest, AChangeThatAnotherProcessTookInIsTold) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(table_.add());
  table_.set_changed(0, 5, 0);
  EXPECT_FALSE(table_.was_told(0)) << "it took the change in by itself";
  table_.set_changed(1, 5, 0);
  EXPECT_TRUE(table_.was_told(1));
  table_.forget_told(1);
  EXPECT_FALSE(table_.was_told(1));
}

TEST_P(ProcessTableTest, ANewProcessFindsNothingOfAnEndedOne) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(table_.add());
  table_.set_changed(1, flows_ - 1, 1);
  table_[1].slept.flags = 1;
  table_.remove(1);
  EXPECT_EQ(table_.add().value(), 1u);
  EXPECT_TRUE(changed(1).empty());
  EXPECT_EQ(table_[1].slept.flags, 0u);
  EXPECT_TRUE(table_.is_any_alive());
  table_[0].is = ProcessTable::Process::Is::leaving;
  table_.remove(1);
  EXPECT_FALSE(table_.is_any_alive());
}

}  // namespace
}  // namespace offpath::channel
