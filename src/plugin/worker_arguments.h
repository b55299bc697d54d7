// The start parameters of a worker: its descriptors and its command line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plugin/call.h"

namespace offpath::plugin {

// Descriptors that a worker starts with.
inline constexpr int
    worker_socket = 3,
    // the second: a page with the agent's word for cancelled calls, and one with the worker's for finished calls
    worker_control = 4;

struct WorkerOptions {
  std::string path;
  std::uint64_t memory_bytes = 0;
  int nice = 0;
  std::vector<unsigned> cores;
  bool own = false;  // owned by this worker's user: checked, opened and loaded with that user's rights
  struct Identity {
    uid_t user;
    gid_t group;
  };
  std::optional<Identity> becomes{};  // none: it stays the agent's user
  pid_t agent = 0;
  Sandbox sandbox = Sandbox::on;
};

// The command line of offpath-worker, made by the agent: PATH MEMORY NICE CORES ("0,2,3" or "-") WHOSE ("own" or
// "configured") USER GROUP (numbers, or "-" twice) AGENT (its pid) SANDBOX ("on", "log" or "off").
[[nodiscard]] std::vector<std::string> worker_arguments(const WorkerOptions& options);
[[nodiscard]] Result<WorkerOptions> read_worker_arguments(const std::vector<std::string>& arguments);

}  // namespace offpath::plugin
