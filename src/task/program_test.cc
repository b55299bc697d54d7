#include "task/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

namespace offpath::task {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProgramTest : public ::testing::Test {
 protected:
  // Its number is its ticket plus 100.
  Task& add(std::uint64_t ticket, std::vector<std::uint64_t> after = {}) {
    Task& task = tasks_.emplace_back();
    task.number = 100 + ticket;
    task.ticket = ticket;
    task.after = std::move(after);
    program_.add(task);
    return task;
  }
  Program program_{1000, {}};
  std::deque<Task> tasks_;
};

TEST_F(ProgramTest, HasSoManySessionsAndTasks) {
  EXPECT_TRUE(program_.may_open(1));
  program_.open();
  EXPECT_EQ(program_.may_open(1).error().code, Error::too_large);
  program_.close();
  EXPECT_TRUE(program_.may_open(1));
  Task& task = add(5);
  EXPECT_EQ(program_.may_add(6, 1).error().code, Error::would_block);
  EXPECT_THAT(program_.end(task, {}), IsEmpty());
  EXPECT_TRUE(program_.may_add(6, 1));
}

TEST_F(ProgramTest, ATicketNamesOneTaskAtATime) {
  Task& task = add(5);
  EXPECT_EQ(program_.find(5), &task);
  const Status twice = program_.may_add(5, 10);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Error::protocol);
  (void)program_.end(task, {});
  EXPECT_EQ(program_.find(5), nullptr);
  EXPECT_TRUE(program_.may_add(5, 10));
}

TEST_F(ProgramTest, ATaskWaitsForThoseThatItComesAfterAndAreUnderWay) {
  Task& first = add(1);
  Task& second = add(2);
  (void)program_.end(second, {});
  Task& third = add(3, {1, 2, 3, 77});
  EXPECT_EQ(third.waits_for, 1u) << "not for itself, for what has succeeded, or for what is unknown";
  EXPECT_THAT(program_.end(first, {}), ElementsAre(103));
}

TEST_F(ProgramTest, ATaskAfterOneThatFailedHasItsReason) {
  Task& first = add(1);
  (void)program_.end(first, fail(Error::function_failed, "no such luck"));
  Task& second = add(2, {1});
  ASSERT_TRUE(second.because);
  EXPECT_EQ(second.because->ticket, 1u);
  EXPECT_THAT(second.because->why, HasSubstr("no such luck"));
  (void)program_.end(second, fail(Error::cancelled, "comes after"));
  Task& third = add(3, {2});
  ASSERT_TRUE(third.because);
  EXPECT_EQ(third.because->ticket, 1u) << "the first of a chain";
}

TEST_F(ProgramTest, RemembersSoManyThatFailedTheNewest) {
  for (std::uint64_t ticket = 1; ticket <= Program::failed_max + 1; ++ticket)
    (void)program_.end(add(ticket), fail(Error::timeout, "late"));
  EXPECT_FALSE(add(10'000, {1}).because);
  EXPECT_TRUE(add(10'001, {2}).because);
}

}  // namespace
}  // namespace offpath::task
