#include "sockets/spawn_actions.h"

#include "sockets/calls.h"
#include "sockets/kernel.h"
#include "sockets/open_descriptors.h"

namespace offpath::sockets {

// Never destroyed: see program().
SpawnActions& spawn_actions() noexcept {
  static SpawnActions* const only = new SpawnActions;
  return *only;
}

std::vector<int> SpawnActions::copied(const posix_spawn_file_actions_t* actions) {
  const std::lock_guard lock(lock_);
  const auto found = copied_.find(actions);
  return found == copied_.end() ? std::vector<int>{} : found->second;
}

void SpawnActions::note_copied(const posix_spawn_file_actions_t* actions, int fd) {
  const std::lock_guard lock(lock_);
  copied_[actions].push_back(fd);
}

void SpawnActions::forget(const posix_spawn_file_actions_t* actions) {
  const std::lock_guard lock(lock_);
  copied_.erase(actions);
}

}  // namespace offpath::sockets

using namespace offpath::sockets;

OFP_CALL int posix_spawn_file_actions_init(posix_spawn_file_actions_t* actions) noexcept {
  static auto* const call = kernel::next<int(posix_spawn_file_actions_t*)>("posix_spawn_file_actions_init");
  spawn_actions().forget(actions);
  return call(actions);
}

OFP_CALL int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t* actions) noexcept {
  static auto* const call = kernel::next<int(posix_spawn_file_actions_t*)>("posix_spawn_file_actions_destroy");
  spawn_actions().forget(actions);
  return call(actions);
}

OFP_CALL int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t* actions, int fd, int to) noexcept {
  static auto* const call =
      kernel::next<int(posix_spawn_file_actions_t*, int, int)>("posix_spawn_file_actions_adddup2");
  const int code = call(actions, fd, to);
  if (code == 0) spawn_actions().note_copied(actions, fd);
  return code;
}

// This library's descriptors must last until the child executes: closes the others one by one.
OFP_CALL int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int from) noexcept {
  static auto* const call =
      kernel::next<int(posix_spawn_file_actions_t*, int)>("posix_spawn_file_actions_addclosefrom_np");
  if (from < 0 || program().to_hand_over() == nullptr) return call(actions, from);
  std::vector<int> found;
  {
    // Once it is held, descriptors that another thread makes for a child are marked as this library's.
    const std::lock_guard lock(program().executing());
    each_descriptor([&](int fd) { found.push_back(fd); });
  }
  for (const int fd : found)
    if (fd >= from && !own_descriptors().has(fd))
      if (const int code = ::posix_spawn_file_actions_addclose(actions, fd); code != 0) return code;
  return 0;
}
