#include "base/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>

namespace offpath {
namespace {

TEST(Queue, IsLikeADeque) {
  std::mt19937 random(7);
  Queue<std::string> queue;
  std::deque<std::string> expected;
  for (int step = 0; step < 20'000; ++step) {
    // Grows for a while, and then shrinks.
    const auto choice = random() % 10;
    const bool grows = step / 500 % 2 == 0;
    if (choice < (grows ? 6u : 3u) || expected.empty()) {
      queue.emplace_back(std::to_string(step));
      expected.emplace_back(std::to_string(step));
    } else if (choice < 9) {
      queue.pop_front();
      expected.pop_front();
    } else {
      const auto place = static_cast<std::ptrdiff_t>(random() % expected.size());
      queue.erase(queue.begin() + place);
      expected.erase(expected.begin() + place);
    }
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_EQ(queue.empty(), expected.empty());
    if (expected.empty()) continue;
    ASSERT_EQ(queue.front(), expected.front());
    ASSERT_EQ(queue.back(), expected.back());
    ASSERT_TRUE(std::equal(queue.begin(), queue.end(), expected.begin(), expected.end()));
  }
}

TEST(Queue, KeepsNothingOfWhatHasGone) {
  Queue<std::shared_ptr<int>> queue;
  const auto first = std::make_shared<int>(1), second = std::make_shared<int>(2);
  queue.push_back(first);
  queue.push_back(second);
  queue.pop_front();
  EXPECT_EQ(first.use_count(), 1);
  queue.clear();
  EXPECT_EQ(second.use_count(), 1);
}

TEST(Queue, OfSteadyLengthTakesSteadyMemory) {
  Queue<int> queue;
  for (int i = 0; i < 10; ++i) queue.push_back(i);
  std::set<const int*> places;
  for (int i = 0; i < 1000; ++i) {
    queue.push_back(i);
    queue.pop_front();
    if (i >= 500) places.insert(&queue.front());
  }
  EXPECT_LT(*places.rbegin() - *places.begin(), 64);
}

}  // namespace
}  // namespace offpath
