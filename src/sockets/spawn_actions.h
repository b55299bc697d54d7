// What a child of posix_spawn() does with its descriptors before it executes a program: the C library keeps that to
// itself, so what matters here is noted while it is told.
#pragma once

#include <spawn.h>

#include <map>
#include <mutex>
#include <vector>

namespace offpath::sockets {

class SpawnActions {
 public:
  // Those that it has elsewhere, too: whether or not they close with exec().
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
