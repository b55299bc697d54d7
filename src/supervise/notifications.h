// Calls of a supervised program that its filter has stopped, and how each of them ends.
//
// A call stays open until it is answered: its thread waits, and the supervisor does not. A signal may end it before;
// the functions below then fail.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::supervise {

struct Call {
  std::uint64_t id = 0;
  pid_t thread = 0;
  int number = 0;
  std::array<std::uint64_t, 6> arguments{};
  [[nodiscard]] int integer(unsigned index) const noexcept { return static_cast<int>(arguments[index]); }
};

class Notifications {
 public:
  // Error::unsupported: the kernel is too old.
  [[nodiscard]] static Result<Notifications> open(Fd listener);

  [[nodiscard]] int descriptor() const noexcept { return listener_.get(); }
  // After descriptor() became readable. nullopt: the call has ended meanwhile.
  [[nodiscard]] std::optional<Call> next();
  [[nodiscard]] bool is_open(const Call& call) const noexcept;

  // These end the call. False: a signal has ended it before.
  // `value`: its result, or a negative errno.
  bool answer(const Call& call, std::int64_t value) noexcept;
  bool let_continue(const Call& call) noexcept;  // the kernel does it
  // The result is a new descriptor of the program for the file of `fd`. Returns its number; -ENOENT: a signal has ended
  // the call; another negative errno: the program has no room for it, and the call is still open.
  [[nodiscard]] int answer_descriptor(const Call& call, int fd, bool close_on_exec) noexcept;

  // The program's descriptor `number` names the file of `fd` from now on; the call stays open. False: see errno.
  [[nodiscard]] bool replace(const Call& call, int fd, int number, bool close_on_exec) noexcept;

 private:
  Notifications(Fd listener, std::size_t bytes) : listener_(std::move(listener)), received_(bytes) {}
  Fd listener_;
  std::vector<std::byte> received_;  // as large as the kernel's struct
};

}  // namespace offpath::supervise
