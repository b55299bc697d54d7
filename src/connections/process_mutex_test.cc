#include "connections/process_mutex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <thread>

namespace offpath::channel {
namespace {

// Memory that a forked child shares.
struct Shared {
  ProcessMutex lock;
  int value = 0;
};

class ProcessMutexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
    shared_->lock.init();
  }
  void TearDown() override { munmap(shared_, sizeof(Shared)); }

  template <class Body>
  void in_child(const Body& body) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      body();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
  }

  Shared* shared_ = nullptr;
};

TEST_F(ProcessMutexTest, AProcessThatDiesWithItLeavesItToTheNextOne) {
  in_child([&] {
    shared_->lock.lock();
    shared_->value = 1;
  });
  EXPECT_FALSE(shared_->lock.take()) << "its owner died";
  EXPECT_EQ(shared_->value, 1) << "the data is as the dead process left it";
  shared_->lock.unlock();
  EXPECT_TRUE(shared_->lock.take()) << "the death is reported once";
  shared_->lock.unlock();
}

TEST_F(ProcessMutexTest, ADeathAfterTheUnlockIsNone) {
  in_child([&] {
    const std::lock_guard lock(shared_->lock);
    shared_->value = 2;
  });
  EXPECT_TRUE(shared_->lock.take());
  EXPECT_EQ(shared_->value, 2);
  shared_->lock.unlock();
}

TEST_F(ProcessMutexTest, ADeathWhileAnotherOneWaitsWakesThatOne) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    shared_->lock.lock();
    static_cast<void>(!write(ready[1], "x", 1));
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  bool clean = true;
  std::thread waiter([&] {
    clean = shared_->lock.take();
    shared_->lock.unlock();
  });
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  waiter.join();
  EXPECT_FALSE(clean);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(ProcessMutexTest, OneHolderAtATime) {
  constexpr int rounds = 20'000;
  const auto count = [&] {
    for (int i = 0; i < rounds; ++i) {
      const std::lock_guard lock(shared_->lock);
      ++shared_->value;
    }
  };
  std::thread other(count);
  in_child(count);
  other.join();
  EXPECT_EQ(shared_->value, 2 * rounds);
}

}  // namespace
}  // namespace offpath::channel
