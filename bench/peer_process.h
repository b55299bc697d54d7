// A peer of the agent in a separate process, pinned to the agent's core. It sleeps in a read until it gets a command,
// carries it out, times itself, and answers with one figure; so subject and peer can take turns on one core without
// disturbing each other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::bench {

// One turn: `repeats` times, `outstanding` operations at once, each of which fetches `columns` buffers. Column c of
// operation i is buffer (start + i * columns + c) % buffers of the rotation.
struct Pull {
  std::uint64_t source = 0;  // address of buffer 0 in its owner; not used by UCX
  std::uint64_t stride_bytes = 0;
  std::uint64_t buffers = 1;
  std::uint64_t start = 0;
  std::uint64_t column_bytes = 0;
  std::uint32_t columns = 1;
  std::uint32_t outstanding = 1;
  std::uint32_t repeats = 1;
  std::uint32_t unrecorded = 1;  // repeats before these, to warm caches and a core's clock

  [[nodiscard]] std::uint64_t offset_of(std::uint64_t operation, std::uint64_t column) const noexcept {
    return (start + operation * columns + column) % buffers * stride_bytes;
  }
};

class Puller {
 public:
  virtual ~Puller() = default;
  // Median nanoseconds of one repeat, i.e. of `outstanding` operations.
  [[nodiscard]] virtual Result<double> pull(const Pull& turn) = 0;
};

class PeerProcess {
 public:
  // Runs in the child after it is pinned; its result lives until the parent ends.
  using Make = std::function<Result<std::unique_ptr<Puller>>()>;

  // Forks: call it before the program starts threads or opens channels.
  [[nodiscard]] static Result<PeerProcess> start(int core, const Make& make);
  PeerProcess(PeerProcess&& other) noexcept : socket_(std::move(other.socket_)), pid_(std::exchange(other.pid_, -1)) {}
  PeerProcess& operator=(PeerProcess&&) = delete;
  ~PeerProcess();

  [[nodiscard]] Result<double> pull(const Pull& turn);
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  PeerProcess(Fd socket, pid_t pid) noexcept : socket_(std::move(socket)), pid_(pid) {}
  Fd socket_;
  pid_t pid_ = -1;
};

// Times `repeats` calls of `repeat(first_operation)` for a Pull; returns the median in nanoseconds.
[[nodiscard]] Result<double> time_repeats(const Pull& turn, const std::function<Status(std::uint64_t)>& repeat);

// The primitive itself: one process_vm_readv per operation for any number of columns, from `source_pid` (0: the
// parent).
[[nodiscard]] PeerProcess::Make make_raw_reader(pid_t source_pid = 0);

// UCX's ucp_get, one per column, from a process that sleeps. The owner of the source is a second process, which the
// start also forks; its memory has `source_bytes`. Fails with a reason if UCX is not available.
[[nodiscard]] Result<PeerProcess> start_ucx_reader(int source_core, int reader_core, std::uint64_t source_bytes);

}  // namespace offpath::bench
