// One call of a user's function, as services request it and receive its result. Read this first in src/plugin, and
// offpath/plugin.h before it; then workers.h (decisions), worker_process.h (a process), message.h (their messages), and
// worker.h and worker_context.h (the other side).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "wire/messages/function_outputs.h"

namespace offpath::plugin {

using CallNumber = std::uint64_t;    // given by Workers; grows
using WorkerNumber = std::uint64_t;  // of one process; grows, so a late event of an old process is recognised

inline constexpr std::size_t arguments_bytes_max = 16 << 20;
inline constexpr std::uint64_t copied_bytes_max = 16 << 20;  // for inputs without a descriptor: the loop copies them
inline constexpr std::size_t inputs_max = 65536;
inline constexpr std::size_t input_descriptors_max =
    4000;  // different descriptors of one call, which a worker can open
inline constexpr std::size_t key_bytes_max = 65536;
// the most descriptors of one message, less a few
inline constexpr std::size_t outputs_max = wire::function_outputs_max;

// The calls that the kernel refuses to the agent and its workers (security.sandbox). log: none; the kernel's log has
// the calls that would be refused.
enum class Sandbox : std::uint8_t { on, log, off };
inline constexpr std::string_view sandbox_names[] = {"on", "log", "off"};
[[nodiscard]] inline std::optional<Sandbox> sandbox_of(std::string_view name) {
  for (const Sandbox each : {Sandbox::on, Sandbox::log, Sandbox::off})
    if (sandbox_names[static_cast<std::size_t>(each)] == name) return each;
  return std::nullopt;
}

// A [[plugin]] of the configuration. docs/guides/plugins.md describes the limits.
struct PluginOptions {
  std::string name, path;
  unsigned workers = 1;
  std::uint64_t memory_bytes = 1 << 30;  // private memory of a worker; also the limit of all outputs of one call
  TimeNs deadline_ns = 60 * second_ns;   // the longest time of a call, including the wait for a worker
  TimeNs start_deadline_ns = 10 * second_ns;
  std::size_t waiting_max = 256;
  std::optional<uid_t> user;  // none: the agent's
  gid_t group = 0;            // of `user`
  int nice = 0;
  std::vector<unsigned> cores;  // empty: all cores
  Sandbox sandbox = Sandbox::on;
  // of `user`, who named it: opened with that user's rights, and its output is not in the agent's log
  bool own = false;
};

// One input object of a function. Its bytes are a piece of a descriptor, which the worker maps, or in the agent's
// memory, and are copied. `owner` keeps both until the call has ended.
struct Input {
  std::string row, column;
  bool arrow = false;
  int fd = -1;               // a memfd sealed against writing (WRITE or FUTURE_WRITE); -1: `data`
  std::uint64_t offset = 0;  // in fd, a multiple of page_bytes
  std::uint64_t bytes = 0;   // in fd
  Bytes data;
  std::shared_ptr<const void> owner;
  std::uint64_t kept = 0;  // not 0: workers keep this descriptor mapped under that number as long as `owner` lives
  std::uint64_t kept_bytes = 0;  // the whole descriptor
};

// Memory for an output of this name, instead of the worker's own: kept mapped like inputs, but writable. Its readers
// must expect that the worker still writes. Sealed SHRINK and GROW.
struct Room {
  std::string name;
  std::uint64_t bytes = 0;
  int fd = -1;
  std::uint64_t kept = 0, kept_bytes = 0;
  std::shared_ptr<const void> owner;
};

// The costs of a call, filled in as it proceeds. `ended` is not before `began`.
struct CallReport {
  WorkerNumber worker = 0;
  TimeNs began = 0, ended = 0;
};

struct Call {
  std::string plugin, function;
  std::vector<std::byte> arguments;
  std::vector<Input> inputs;
  TimeNs deadline_ns = never;                   // a point in time; the plug-in's own deadline may come earlier
  std::uint64_t output_bytes_max = UINT64_MAX;  // of all outputs together; the plug-in's memory may be less
  std::vector<Room> rooms{};
  std::uint64_t session = 0;     // for the function, like the next two
  unsigned lane = 0, lanes = 0;  // lanes not 0: always on the same worker
  // The team of a lane whose functions wait for messages of other lanes: the same object in all calls of the lane,
  // which lives as long as the lane. Null: worker `lane`, modulo the number of workers.
  std::shared_ptr<const std::string> team{};
  std::shared_ptr<CallReport> report{};  // may be null
  // A plug-in of the caller, if none of this name is configured: its workers live as long as it has an owner.
  std::shared_ptr<const PluginOptions> own{};
  std::string own_refused{};  // the reason if the caller's own plug-in may not run
};

// A request of a function during its call: to send a message to another lane of its team, or to receive one.
using OperationNumber = std::uint64_t;  // of one call's
struct Operation {
  enum class Kind : std::uint8_t { send, receive } kind = Kind::send;
  WorkerNumber worker = 0;
  CallNumber call = 0;
  OperationNumber number = 0;
  std::uint64_t session = 0;
  TimeNs deadline_ns = never;  // for this operation: shortly before its call's
  std::uint32_t lane = 0, tag = 0;
  std::uint64_t bytes = 0;            // of the message; for a receive: size of the room
  std::vector<std::byte> enclosed{};  // the message, or
  Fd memory{};                        // its memory, sealed like an output
};
struct OperationAnswer {
  Status status{};
  std::uint64_t bytes = 0;  // of the message, even if it is too large for the room
  std::vector<std::byte> enclosed{};
  int fd = -1;                          // its memory instead, from offset 0
  std::shared_ptr<const void> owner{};  // keeps it alive until the worker has read it
};

// A result: shared memory that no process can change any more (sealed SHRINK, GROW, WRITE). It can be mapped, passed to
// readers or dropped.
struct Output {
  std::string name;
  bool arrow = false;
  std::uint64_t bytes = 0;
  Fd memory;             // present even if `bytes` is 0
  bool in_room = false;  // it is in the call's room of that name instead
};
using Outputs = std::vector<Output>;

// How a worker's process ended.
struct Exit {
  bool by_signal = false;
  int value = 0;  // signal or exit code
};
[[nodiscard]] std::string exit_text(const Exit& exit);  // "was killed by SIGSEGV", "exited with 3"

}  // namespace offpath::plugin
