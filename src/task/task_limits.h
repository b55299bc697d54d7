// Limits of tasks (task_service.h), of messages between lanes (lane_messages.h), and of programs' own plug-ins
// (user_plugins.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "plugin/call.h"
#include "wire/messages/lane_messages.h"

namespace offpath::task {

struct UserPluginOptions {
  bool permitted = false;  // task.user_plugins
  uid_t agent = 0;         // the agent's own user
  bool may_change_user = false;
  std::size_t of_user_max = 4;  // different files
  unsigned workers = 2;         // the next three are for each file
  std::uint64_t memory_bytes = 1 << 30;
  TimeNs deadline_ns = 60 * second_ns;
  plugin::Sandbox sandbox = plugin::Sandbox::on;
};

struct LaneLimits {
  std::uint64_t lane_bytes_max = wire::message_bytes_max;  // bytes that one lane has sent and that were not received
  std::uint64_t bytes_max = 1ull << 30;                    // the same for all lanes
  std::uint64_t lane_bytes_min = 1ull << 20;  // a lane may always have this much: it does not wait for another team
  std::size_t lane_messages_max = 16384;
  std::size_t descriptors_max = 4096, lane_descriptors_min = 32;  // likewise, for messages stored in a descriptor
  std::size_t lane_operations_max = 1024;
};

struct TaskLimits {
  std::size_t sessions_max = 64;                  // of one channel
  std::size_t tasks_max = 1024;                   // of one channel
  std::size_t ahead_max = 4;                      // of a lane: being pulled, pulled or called
  std::size_t side_by_side_max = 64;              // likewise, of a session without a lane
  std::uint64_t resident_bytes_max = 1ull << 30;  // of one session
  UserPluginOptions user_plugins{};
  LaneLimits messages{};
};

}  // namespace offpath::task
