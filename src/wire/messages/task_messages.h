// Tasks (docs/guides/tasks.md): functions over the program's own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// Tasks (docs/guides/tasks.md): functions over the program's own memory. A session is opened with words of memory of
// the program's own, one for each task under way. Done: the number that later requests name it by. the first word of
// each is the agent's: the ticket whose inputs have been pulled
inline constexpr std::uint64_t task_line_bytes = 64;
inline constexpr std::uint32_t task_any_lane = 0xFFFF'FFFFu;
inline constexpr std::uint32_t task_lines_max = 4096, task_lanes_max = 1u << 20;
inline constexpr std::size_t task_inputs_max = 128, task_outputs_max = 128, task_after_max = 64, task_plugins_max = 64,
                             task_path_bytes_max = 1024;

// A plug-in of the program's own: run where the agent's configuration permits it (task.user_plugins).
struct TaskPlugin {
  std::string_view name, path;
};

struct TaskOpen {
  // which of `lanes`; its tasks run in order, on the worker that stands for it. task_any_lane: on any, as they get
  // ready
  std::uint32_t lane;
  std::uint32_t lanes;
  BufferRef lines;  // in a segment
  std::vector<TaskPlugin> plugins{};
  std::string_view team{};  // whose lanes send each other messages; empty: none
};

// An input. With a version it stays under its name, as that version: a task that names both has it without a pull, if
// it is still there. Where only a part differs from `changed_from`, another version, that part alone is pulled onto it.
struct TaskInput {
  BufferRef source;            // no bytes: it has to be there
  std::uint64_t bytes;         // of the input
  std::uint64_t version;       // 0: for this task alone
  std::uint64_t changed_from;  // 0: not said
  std::uint64_t changed_at, changed_bytes;
  std::string_view name;
};

// An output, of at most `bytes`. With a version it stays as an input for later tasks.
struct TaskOutput {
  BufferRef target;  // in a segment. No bytes: it is not pushed
  std::uint64_t bytes;
  std::uint64_t version;
  std::string_view name;
};

// Answered by TaskDone. Its inputs have been pulled when word `line` says its ticket; that is not said of one that
// fails before.
struct TaskRun {
  std::uint64_t session;
  std::uint32_t line;
  std::int64_t wait_ns;  // for all of it; 0: the plug-in's time counts
  std::string_view plugin, function;
  std::vector<std::uint64_t> after;  // tickets of this channel's tasks
  std::vector<TaskInput> inputs;
  std::vector<TaskOutput> outputs;
  Bytes arguments;
};

// Done when the inputs of that task have been pulled, or it has ended.
struct TaskWait {
  std::uint64_t ticket;
};

// The task is answered all the same: cancelled, if it was not pushing yet. This has no answer of its own.
struct TaskCancel {
  std::uint64_t ticket;
};

// Its tasks are cancelled, and what was kept is gone. Done.
struct TaskClose {
  std::uint64_t session;
};

struct TaskDone {
  std::uint64_t worker;  // tells processes apart: static variables of functions live as long as it stays the same
  std::int64_t pulled_ns, queued_ns, ran_ns, pushed_ns;  // how long each took; queued: until a worker began with it
  std::uint64_t pulled_bytes;
  std::vector<std::uint64_t> output_bytes;  // in the order of the request
};

// clang-format off: a list
#define OFFPATH_TASK_MESSAGES(X) X(TaskOpen) X(TaskRun) X(TaskWait) X(TaskCancel) X(TaskClose) X(TaskDone)
// clang-format on
OFFPATH_TASK_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
