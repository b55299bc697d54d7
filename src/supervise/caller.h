// The thread whose call the supervisor handles: its memory, its descriptors, its rights. All are reached by its folder
// in /proc. The call is checked to be open after the folder was opened, so this is never another process that got the
// same number later.
//
// A signal may end the call at any time, and the thread may then execute another program. The call is therefore checked
// again after the memory was opened, which is then that of the call, and after the rights were read. A write may still
// reach the memory of a call that has just been interrupted. Flags and descriptors are those of the moment.
//
// Memory is copied once, and the copy is used. Reading needs the rights of ptrace(2): the supervisor is an ancestor of
// every process of the program.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/fd.h"
#include "supervise/notifications.h"

namespace offpath::supervise {

class Caller {
 public:
  // `call` and `calls` outlive it. nullopt: see errno; ENOENT: the call has ended, EMFILE and ENFILE: there is no room
  // for a descriptor.
  [[nodiscard]] static std::optional<Caller> of(const Call& call, const Notifications& calls);

  // The socket that the descriptor names, by its inode; 0: it names no socket.
  [[nodiscard]] ino_t socket_at(int number) const noexcept;
  struct Flags {
    bool non_blocking, close_on_exec;
  };
  [[nodiscard]] std::optional<Flags> flags_of(int number) const noexcept;
  // A copy of the descriptor, if it still names this socket.
  [[nodiscard]] Fd copy_of(int number, ino_t socket) const noexcept;

  // False: EFAULT.
  [[nodiscard]] bool read(std::uint64_t address, MutableBytes to) const noexcept;
  [[nodiscard]] bool write(std::uint64_t address, Bytes from) const noexcept;

  // Whether it has the capability in the supervisor's user namespace.
  [[nodiscard]] bool has_right(int capability) const noexcept;
  // Inode of its network namespace.
  [[nodiscard]] ino_t network() const noexcept;

 private:
  Caller(const Call& call, const Notifications& calls, Fd folder) noexcept
      : call_(call), calls_(calls), folder_(std::move(folder)) {}
  [[nodiscard]] std::size_t read_file(const char* name, std::span<char> to) const noexcept;
  [[nodiscard]] Fd memory(int flags) const noexcept;

  const Call& call_;
  const Notifications& calls_;
  Fd folder_;
};

}  // namespace offpath::supervise
