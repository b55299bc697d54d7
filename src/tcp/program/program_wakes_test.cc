#include "tcp/program/program_wakes.h"

#include <gtest/gtest.h>

#include "base/sleep_flag.h"
#include "testing/tcp/service_parts.h"

namespace offpath::tcp {
namespace {

using channel::SleepWord;

class ProgramWakesTest : public testing::Test {
 protected:
  // An event that concerns process 0.
  void post(std::uint32_t handle) {
    wire::TcpEvent told{};
    told.handle = handle;
    told.what = wire::tcp_event::received;
    ASSERT_TRUE(program.area.post(told, wire::tcp_process_bit(0)).value());
  }
  void fall_asleep() { SleepFlag(program.area.memory().data() + wire::tcp_word::process_asleep(0)).set(); }

  ServiceParts parts;
  Program& program = parts.add();
  ProgramWakes wakes;
};

TEST_F(ProgramWakesTest, AProcessThatSleepsIsWokenOnceForItsEvents) {
  fall_asleep();
  post(1);
  post(2);
  wakes.look(program);
  EXPECT_EQ(wakes.take(), (std::vector<ProgramWakes::Process>{{program.number, 0}}));
  post(3);
  wakes.look(program);
  EXPECT_TRUE(wakes.take().empty()) << "it is awake";
}

TEST_F(ProgramWakesTest, ThreadsThatSleepOnAConnectionAreWoken) {
  const SleepWord word = program.area.sleep_word(1);
  const SleepWord::Value before = word.begin();
  post(1);
  wakes.look(program);
  EXPECT_FALSE(wakes.empty());
  EXPECT_EQ(word.sleep(before, nullptr), EAGAIN) << "a wake has begun since";
  EXPECT_TRUE(word.is_waking());
  wakes.wake_threads(parts.programs);
  EXPECT_FALSE(word.is_waking());
  EXPECT_TRUE(wakes.empty());
}

TEST_F(ProgramWakesTest, AWakeThatADeadProcessBeganIsFinished) {
  program.set(program.held.use(1), Held::Is::flow);
  const SleepWord word = program.area.sleep_word(1);
  static_cast<void>(word.begin());
  ASSERT_TRUE(word.take());  // and the process is killed
  wakes.look(program);
  EXPECT_TRUE(wakes.empty()) << "nobody says that a process has ended";
  ProgramWakes::look_for_unfinished(program);
  wakes.look(program);
  EXPECT_FALSE(wakes.empty());
  EXPECT_FALSE(program.wakes_left_at);
  wakes.wake_threads(parts.programs);
  EXPECT_FALSE(word.is_waking());
}

TEST_F(ProgramWakesTest, AProgramThatHasLeftIsNotWoken) {
  static_cast<void>(program.area.sleep_word(1).begin());
  post(1);
  wakes.look(program);
  parts.programs.remove(program, *parts.stack, 0);
  wakes.wake_threads(parts.programs);
  EXPECT_TRUE(wakes.empty());
}

}  // namespace
}  // namespace offpath::tcp
