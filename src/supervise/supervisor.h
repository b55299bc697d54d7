// A program and all processes that it starts, supervised (docs/internals/supervise.md). Read this first in
// src/supervise, then filter.h (which calls stop), stream_pair.h (the replacement of a socket), relay.h (bytes) and
// calls.h.
//
// The supervisor is the parent of the program and adopts its orphans, so it may inspect all of them. It stays until the
// last one has ended.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"
#include "sockets/policy.h"
#include "supervise/calls.h"

namespace offpath::supervise {

class Supervisor {
 public:
  // Starts `command`, an argument vector for execvp. `counts_all`: see set_filter().
  [[nodiscard]] static Result<std::unique_ptr<Supervisor>> start(const sockets::Policy& policy, char** command,
                                                                 bool counts_all);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Until the program's last process has ended. Returns the wait status of its first one.
  [[nodiscard]] Result<int> run();
  [[nodiscard]] std::uint64_t rings() const noexcept { return calls_.rings(); }

 private:
  Supervisor(const sockets::Policy& policy, std::string name, Notifications calls, pid_t program, Fd signals);
  void on_signals();
  void reap();
  void pass_on(int signal) const;

  pid_t program_;
  Fd signals_;
  Calls calls_;
  std::optional<int> status_;
};

}  // namespace offpath::supervise
