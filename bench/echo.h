// A message through two processes by sockets, and back: the machine's cost of the hops between a program, its agent and
// another process. All of them sleep while they wait, or all of them spin.
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::bench {

class Echo {
 public:
  static constexpr std::size_t message_bytes = 64;

  // Those that spin offer their core to others after a microsecond, as agents do, and fall asleep after a millisecond
  // without a message, so that they are out of the way of others' turns.
  enum class Wait { asleep, spinning };

  [[nodiscard]] static Result<std::unique_ptr<Echo>> start(int first_core, int second_core, Wait wait);
  ~Echo();
  [[nodiscard]] Result<double> ask();  // nanoseconds
  [[nodiscard]] const char* waits() const noexcept { return wait_ == Wait::asleep ? "asleep" : "spinning"; }

 private:
  [[nodiscard]] bool receive(int socket, char* bytes) const;
  [[noreturn]] void pass_on(int core, int from, int onward, int unused, int other_unused) const;
  Wait wait_ = Wait::asleep;
  Fd socket_;
  pid_t children_[2] = {-1, -1};
};

}  // namespace offpath::bench
