#include "task/task_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

namespace offpath::task {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr service::ChannelNumber channel = 3;

class TaskRoomTest : public ::testing::Test {
 protected:
  TaskRoomTest() { session_.number = 1, session_.channel = channel; }
  // A task with an input and an output of so many bytes.
  Task& task(std::uint64_t bytes, Session* session = nullptr) {
    Task& made = tasks_.emplace_back();
    made.number = tasks_.size();
    made.session = session != nullptr ? session : &session_;
    made.plugin = "p", made.function = "f";
    made.inputs.push_back({{}, bytes, 0, 0, 0, 0, "x"});
    made.outputs.push_back({{}, bytes, 0, "y"});
    return made;
  }
  // The task's input takes the piece found for it.
  Result<bool> take(Task& task) {
    std::vector<ResidentMemory::Found> found(1);
    auto taken = room_.take(task, 1000, found);
    if (taken && *taken) task.inputs[0].memory = std::move(found[0].memory);
    return taken;
  }
  static void end(Task& task) {
    task.inputs[0].memory.reset();
    task.outputs[0].room.reset();
  }

  std::uint64_t free_bytes_ = 1 << 20;
  TaskRoom room_{service::BufferCache::make({.huge_pages = false}),
                 [this](std::uint64_t bytes) { return bytes <= free_bytes_; }};
  Session session_;
  std::deque<Task> tasks_;
};

TEST_F(TaskRoomTest, TakesAllThatATaskNeedsOrNothing) {
  Task& fits = task(4096);
  EXPECT_TRUE(take(fits).value());
  EXPECT_EQ(fits.room_bytes, 8192u);
  EXPECT_GE(fits.outputs[0].room->capacity(), 4096u);
  EXPECT_EQ(room_.target_bytes(), fits.outputs[0].room->capacity());
  Task& large = task(600 << 10);  // the input has room, the output has not
  free_bytes_ = 610 << 10;
  large.outputs[0].bytes_max = 4 << 20;
  EXPECT_FALSE(take(large).value());
  EXPECT_EQ(large.inputs[0].memory, nullptr);
  EXPECT_EQ(large.outputs[0].room, nullptr);
}

TEST_F(TaskRoomTest, UsesTheSessionsPiecesAgain) {
  Task& first = task(4096);
  EXPECT_TRUE(take(first).value());
  const std::uint64_t input = first.inputs[0].memory->number, output = first.outputs[0].room->number();
  EXPECT_NE(input, output);
  end(first);
  free_bytes_ = 0;
  Task& second = task(4096);
  EXPECT_TRUE(take(second).value()) << "it needs no other memory";
  EXPECT_EQ(second.inputs[0].memory->number, input);
  EXPECT_EQ(second.outputs[0].room->number(), output);
}

TEST_F(TaskRoomTest, UnusedPiecesOfAllSessionsAreReleasedForATaskWithoutRoom) {
  Session other;
  other.number = 2, other.channel = channel + 1;
  Task& first = task(64 << 10, &other);
  EXPECT_TRUE(take(first).value());
  end(first);
  EXPECT_GT(room_.target_bytes(), 0u);
  free_bytes_ = 0;
  Task& second = task(4096);
  EXPECT_FALSE(take(second).value());
  EXPECT_EQ(room_.target_bytes(), 0u);
  EXPECT_FALSE(room_.is_freed()) << "the others that wait gain nothing";
}

TEST_F(TaskRoomTest, TheOldestTaskOfAProgramGetsRoomFirst) {
  Task& first = task(8192);
  Task& second = task(4096);
  free_bytes_ = 0;
  EXPECT_FALSE(take(first).value());
  room_.wait(first);
  EXPECT_TRUE(room_.waits());
  free_bytes_ = 1 << 20;
  EXPECT_FALSE(take(second).value()) << "it would overtake";
  room_.wait(second);
  EXPECT_THAT(room_.waiting(), ElementsAre(1, 2));
  EXPECT_EQ(room_.oldest(), 1u);
  EXPECT_TRUE(take(first).value());
  room_.stop_waiting(first);
  EXPECT_FALSE(room_.is_waiting(first));
  EXPECT_TRUE(take(second).value());
  room_.close_channel(channel);
  EXPECT_FALSE(room_.waits());
  EXPECT_THAT(room_.waiting(), IsEmpty());
}

TEST_F(TaskRoomTest, ATaskThatNeverFitsFails) {
  room_.set_memory_max([] { return std::uint64_t{8191}; });
  const auto taken = take(task(4096));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Error::too_large);
}

TEST_F(TaskRoomTest, AnOutputInUseIsCountedUntilItIsFreed) {
  Task& used = task(4096);
  EXPECT_TRUE(take(used).value());
  room_.close_session(session_.number);
  EXPECT_GT(room_.target_bytes(), 0u);
  EXPECT_FALSE(room_.is_freed());
  end(used);
  EXPECT_EQ(room_.target_bytes(), 0u);
  EXPECT_TRUE(room_.take_freed());
  EXPECT_FALSE(room_.is_freed());
}

}  // namespace
}  // namespace offpath::task
