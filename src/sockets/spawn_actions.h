// Notes which descriptors a child of posix_spawn() copies before it executes its program. The C library does not reveal
// this, so it is noted when the program adds the actions.
#pragma once

#include <spawn.h>

#include <map>
#include <mutex>
#include <vector>

namespace offpath::sockets {

class SpawnActions {
 public:
  // Descriptors that the child also has at other numbers, whether or not they close with exec().
  [[nodiscard]] std::vector<int> copied(const posix_spawn_file_actions_t* actions);
  void note_copied(const posix_spawn_file_actions_t* actions, int fd);
  void forget(const posix_spawn_file_actions_t* actions);

  void before_fork() { lock_.lock(); }
  void after_fork() { lock_.unlock(); }

 private:
  std::mutex lock_;
  std::map<const posix_spawn_file_actions_t*, std::vector<int>> copied_;
};

[[nodiscard]] SpawnActions& spawn_actions() noexcept;

}  // namespace offpath::sockets
