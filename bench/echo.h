// A message through two processes by sockets, and back: the machine's cost of the hops between a program, its agent and
// another process. All of them sleep while they wait.
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::bench {

class Echo {
 public:
  static constexpr std::size_t message_bytes = 64;

  [[nodiscard]] static Result<std::unique_ptr<Echo>> start(int first_core, int second_core);
  ~Echo();
  [[nodiscard]] Result<double> ask();  // nanoseconds

 private:
  [[noreturn]] static void pass_on(int core, int from, int onward, int unused, int other_unused);
  Fd socket_;
  pid_t children_[2] = {-1, -1};
};

}  // namespace offpath::bench
