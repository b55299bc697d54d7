#include "agent/connections/crossing.h"

#include <utility>

namespace offpath::agent {

namespace {
constexpr std::size_t mailbox_max = 1024;
}  // namespace

Crossing::Crossing(loop::Loop& to) : box_(to, mailbox_max, [](const Task& task, TimeNs now) { task(now); }) {}

void Crossing::post(Task task) {
  if (waiting_.empty() && box_.post(std::move(task))) return;
  waiting_.push_back(std::move(task));
}

bool Crossing::post_if_room(Task task) { return waiting_.empty() && box_.post(std::move(task)); }

bool Crossing::flush() {
  while (!waiting_.empty() && box_.post(std::move(waiting_.front()))) waiting_.pop_front();
  return waiting_.empty();
}

}  // namespace offpath::agent
