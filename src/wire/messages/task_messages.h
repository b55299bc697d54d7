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

// Tasks (docs/guides/tasks.md): functions over the program's own memory. A session is opened with lines in the
// program's memory, one for each task under way. The agent writes to the first word of each line: the ticket whose
// inputs have been pulled. Done: the number for later requests.
inline constexpr std::uint64_t task_line_bytes = 64;
inline constexpr std::uint32_t task_any_lane = 0xFFFF'FFFFu;
inline constexpr std::uint32_t task_lines_max = 4096, task_lanes_max = 1u << 20;
inline constexpr std::size_t task_inputs_max = 128, task_pieces_max = 1024, task_outputs_max = 128, task_after_max = 64,
                             task_plugins_max = 64, task_path_bytes_max = 1024;

// A plug-in of the program's own: run if the agent's configuration permits it (task.user_plugins).
struct TaskPlugin {
  std::string_view name, path;
};

struct TaskOpen {
  // its number among `lanes`; its tasks run in order, on the lane's worker. task_any_lane: on any worker, as they
  // become ready
  // ready
  std::uint32_t lane;
  std::uint32_t lanes;
  BufferRef lines;  // in a segment
  std::vector<TaskPlugin> plugins{};
  std::string_view team{};  // the team whose lanes exchange messages; empty: none
};

// An input, or a piece of one: those that follow each other under one name are pieces of one input, one behind the
// other, of the same version. With a version it is kept under its name, as that version: a later task that names both
// uses it without a pull, if it is still there. If only a part differs from another version, `changed_from`, only that
// part is pulled onto it; not in pieces.
struct TaskInput {
  BufferRef source;            // no bytes: it has to be there already
  std::uint64_t bytes;         // of the input or piece
  std::uint64_t version;       // 0: for this task only
  std::uint64_t changed_from;  // 0: none given
  std::uint64_t changed_at, changed_bytes;
  std::string_view name;
};

// An output, of at most `bytes`. With a version it is kept as an input for later tasks.
struct TaskOutput {
  BufferRef target;  // in a segment. No bytes: it is not pushed
  std::uint64_t bytes;
  std::uint64_t version;
  std::string_view name;
};

// Answered by TaskDone. Its inputs have been pulled when line `line` has its ticket, unless it fails before.
struct TaskRun {
  std::uint64_t session;
  std::uint32_t line;
  std::int64_t wait_ns;  // for the whole task; 0: the plug-in's deadline counts
  std::string_view plugin, function;
  std::vector<std::uint64_t> after;  // tickets of earlier tasks of this channel
  std::vector<TaskInput> inputs;
  std::vector<TaskOutput> outputs;
  Bytes arguments;
};

// Done when the task's inputs have been pulled, or it has ended.
struct TaskWait {
  std::uint64_t ticket;
};

// Cancels a task that is not pushing yet. The task is still answered; this request has no answer of its own.
struct TaskCancel {
  std::uint64_t ticket;
};

// Cancels its tasks and drops kept inputs. Done.
struct TaskClose {
  std::uint64_t session;
};

struct TaskDone {
  std::uint64_t worker;  // identifies the process: static variables of functions live as long as it stays the same
  std::int64_t pulled_ns, queued_ns, ran_ns, pushed_ns;  // how long each step took; queued: until a worker began
  std::uint64_t pulled_bytes;
  std::vector<std::uint64_t> output_bytes;  // in the order of the request
};

// clang-format off: a list
#define OFFPATH_TASK_MESSAGES(X) X(TaskOpen) X(TaskRun) X(TaskWait) X(TaskCancel) X(TaskClose) X(TaskDone)
// clang-format on
OFFPATH_TASK_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
