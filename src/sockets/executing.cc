// exec(): the new program keeps the offloaded sockets among its inherited descriptors, if this library is preloaded
// there, too. The variable OFFPATH_SOCKETS_INHERITED tells it where their memory, the sockets to the agent and the
// doorbells of its cores are:
//
//   version,memory,wake,notices,process,count,doorbell,…;handle,signal;…
//
// `version` is the area's, and `count` that of the doorbells. The others, except `process` and `handle`, are
// descriptors. The new program matches its descriptors with the sockets by inodes. A child of vfork() becomes a process
// of the area here, and so does a child of posix_spawn(), which forks and executes within the C library. That child is
// told of the sockets that it inherits or gets copies of (spawn_actions.h), and drops those that it does not find.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sockets/calls.h"
#include "sockets/kernel.h"
#include "sockets/open_descriptors.h"
#include "sockets/spawn_actions.h"
#include "sockets/streams.h"

namespace offpath::sockets {

namespace {

constexpr std::string_view variable = "OFFPATH_SOCKETS_INHERITED=", preload = "LD_PRELOAD=",
                           library = "liboffpath_sockets";

[[nodiscard]] std::uint64_t inode_of(int fd) {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

void keep_over_exec(int fd, bool keep) { kernel::fcntl(fd, F_SETFD, keep ? 0 : FD_CLOEXEC); }

[[nodiscard]] bool preloads(char* const* environment) {
  for (; environment != nullptr && *environment != nullptr; ++environment)
    if (const std::string_view each = *environment; each.starts_with(preload) && each.find(library) != each.npos)
      return true;
  return false;
}

// Closes this library's descriptors at exec() in a child of vfork(), including those that a posix_spawn() of another
// thread was about to keep open.
void keep_none_over_exec() {
  static auto* const call = kernel::next<int(unsigned, unsigned, int)>("close_range");
  const OwnDescriptors& own = own_descriptors();
  for (unsigned first = own.next(0), last; first < OwnDescriptors::numbers; first = own.next(last + 1)) {
    last = first;
    while (own.has(static_cast<int>(last + 1))) ++last;
    static_cast<void>(call(first, last, CLOSE_RANGE_CLOEXEC));
  }
}

// exec() of a child of vfork() does not return, and its allocations belong to the parent: the thread keeps them here
// and uses them again.
struct Prepared {
  std::vector<std::uint64_t> inodes{};
  std::vector<SocketArea::Handle> handles{};
  std::string text{};
  std::vector<char*> environment{};
};
thread_local Prepared prepared;

// Sockets with a descriptor that exec() does not close or that is among `copied`. Lists each socket once.
void find_sockets_left(std::vector<SocketArea::Handle>& left, std::span<const int> copied) {
  std::vector<std::uint64_t>& inodes = prepared.inodes;
  inodes.clear();
  each_descriptor([&](int fd) {
    const int flags = kernel::fcntl(fd, F_GETFD);
    if (flags >= 0 && ((flags & FD_CLOEXEC) == 0 || std::ranges::find(copied, fd) != copied.end()))
      if (const std::uint64_t inode = inode_of(fd); inode != 0) inodes.push_back(inode);
  });
  std::ranges::sort(inodes);
  left.clear();
  for (SocketArea::Handle handle = 0; !inodes.empty() && handle < program().options().flows; ++handle)
    if (program().own(handle).users.load() != 0 && std::ranges::binary_search(inodes, program().socket(handle).inode))
      left.push_back(handle);
}

// Descriptors that exec() keeps open; undone if exec() fails, or once a child has them. `copied`: descriptors that the
// child also has at other numbers.
class HandedOver {
 public:
  enum class To { this_process, child };
  HandedOver(channel::Sockets& connections, To to, std::span<const int> copied)
      : handles_(prepared.handles), process_(connections.area().process()), doorbells_(connections.doorbells()) {
    find_sockets_left(handles_, copied);
    if (handles_.size() > told_max) handles_.clear();
    descriptors_ = {program().memory_fd(), connections.wake_fd(), connections.notice_fd()};
    if (!handles_.empty() && to != To::this_process) make_process(connections);
    keep(true);
  }
  ~HandedOver() {
    const int before = errno;
    keep(false);
    if (is_new_ && !handles_.empty())
      for (const int fd : {descriptors_[1], descriptors_[2]}) {
        if (!program().vforked()) own_descriptors().remove(fd);
        kernel::close(fd);
      }
    errno = before;
  }
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;

  [[nodiscard]] char* const* environment(char* const* given) {
    if (handles_.empty()) return given;
    std::string& text = prepared.text = variable;
    text += std::to_string(wire::tcp_area_version) + ',';
    for (const int fd : descriptors_) text += std::to_string(fd) + ',';
    text += std::to_string(process_) + ',' + std::to_string(doorbells_.size());
    for (const Fd& doorbell : doorbells_) text += ',' + std::to_string(doorbell.get());
    for (const SocketArea::Handle handle : handles_)
      text += ';' + std::to_string(handle) + ',' + std::to_string(program().own(handle).signal);
    std::vector<char*>& all = prepared.environment;
    all.clear();
    for (; given != nullptr && *given != nullptr; ++given)
      if (!std::string_view(*given).starts_with(variable)) all.push_back(*given);
    all.push_back(text.data());
    all.push_back(nullptr);
    return all.data();
  }

 private:
  void make_process(channel::Sockets& connections) {
    auto made = connections.prepare_child(handles_);
    if (!made) {
      handles_.clear();
      return;
    }
    is_new_ = true;
    process_ = made->process;
    descriptors_[1] = out_of_the_way(made->wake.release());
    descriptors_[2] = out_of_the_way(made->notices.release());
  }
  void keep(bool kept) {
    if (handles_.empty()) return;
    for (const int fd : descriptors_) keep_over_exec(fd, kept);
    for (const Fd& doorbell : doorbells_) keep_over_exec(doorbell.get(), kept);
    for (const SocketArea::Handle handle : handles_) keep_over_exec(program().own(handle).signal, kept);
  }

  static constexpr std::size_t told_max = 7168;  // each takes at most 16 bytes, and a variable has at most 128 KiB

  std::vector<SocketArea::Handle>& handles_;
  std::uint32_t process_;
  std::span<const Fd> doorbells_;
  std::array<int, 3> descriptors_{};
  bool is_new_ = false;
};

template <class Execute>
int with_connections(char* const* environment, HandedOver::To to, std::span<const int> copied, const Execute& execute) {
  channel::Sockets* const connections = program().to_hand_over();
  if (connections == nullptr) return execute(environment);
  // Close-on-exec flags are shared by all threads; a child of vfork() has descriptors of its own.
  std::unique_lock alone(program().executing(), std::defer_lock);
  if (program().vforked())
    keep_none_over_exec();
  else
    alone.lock();
  if (!preloads(environment)) return execute(environment);
  HandedOver over(*connections, to, copied);
  return execute(over.environment(environment));
}

template <class Execute>
int with_connections(char* const* environment, const Execute& execute) {
  return with_connections(environment, program().vforked() ? HandedOver::To::child : HandedOver::To::this_process, {},
                          execute);
}

using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*,
                  char* const*);

template <class Execute>
int spawned(char* const* environment, const posix_spawn_file_actions_t* actions, const Execute& execute) {
  return with_connections(environment, HandedOver::To::child, spawn_actions().copied(actions), execute);
}

// ---- the executed program

class Numbers {
 public:
  explicit Numbers(std::string_view text) noexcept : left_(text) {}
  // The next number, or -1 if there is none. Skips the separator.
  [[nodiscard]] int next() noexcept {
    int number = -1;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), number);
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    if (!left_.empty()) left_.remove_prefix(1);
    return error == std::errc() ? number : -1;
  }
  [[nodiscard]] bool done() const noexcept { return left_.empty(); }

 private:
  std::string_view left_;
};

void take_up(std::string_view text) {
  Numbers numbers(text);
  if (numbers.next() != static_cast<int>(wire::tcp_area_version)) return;  // of another version of this library
  const int memory = numbers.next(), wake = numbers.next(), notices = numbers.next(), process = numbers.next();
  for (const int fd : {memory, wake, notices}) {
    if (inode_of(fd) == 0 && fd != memory) return;
    keep_over_exec(fd, false);
  }
  std::vector<Fd> doorbells;
  for (int left = numbers.next(); left > 0 && !numbers.done(); --left) {
    doorbells.emplace_back(numbers.next());
    keep_over_exec(doorbells.back().get(), false);
  }
  auto connections = channel::Sockets::inherit(memory, {static_cast<std::uint32_t>(process), Fd(wake), Fd(notices)},
                                               program().options(), std::move(doorbells));
  if (!connections) return;
  program().take_up(std::move(*connections));
  std::vector<std::pair<std::uint64_t, int>> there;  // inodes and descriptors
  each_descriptor([&](int fd) {
    if (const std::uint64_t inode = inode_of(fd); inode != 0) there.emplace_back(inode, fd);
  });
  std::ranges::sort(there);
  while (!numbers.done()) {
    const auto handle = static_cast<SocketArea::Handle>(numbers.next());
    const int signal = numbers.next();
    if (handle >= program().options().flows || signal < 0) break;
    keep_over_exec(signal, false);
    std::vector<int> found;
    own_descriptors().add(signal);
    const std::uint64_t inode = program().socket(handle).inode;
    for (auto at = std::lower_bound(there.begin(), there.end(), std::pair(inode, 0));
         at != there.end() && at->first == inode; ++at)
      found.push_back(at->second);
    program().take_up(handle, signal, found);
  }
  program().drop_what_was_not_taken_up();
  take_standard_streams();
}

[[gnu::constructor]] void at_start() {
  const std::string name(variable.substr(0, variable.size() - 1));
  const char* const told = std::getenv(name.c_str());
  if (told == nullptr) return;
  const std::string text = told;
  ::unsetenv(name.c_str());
  take_up(text);
}

// The arguments of execl() and its variants, with the null at the end.
std::vector<char*> words_of(const char* first, va_list& more) {
  std::vector<char*> words{const_cast<char*>(first)};
  while (words.back() != nullptr) words.push_back(va_arg(more, char*));
  return words;
}

}  // namespace

}  // namespace offpath::sockets

using namespace offpath::sockets;

OFP_CALL int execve(const char* path, char* const* words, char* const* environment) noexcept {
  static auto* const call = kernel::next<int(const char*, char* const*, char* const*)>("execve");
  return with_connections(environment, [&](char* const* told) { return call(path, words, told); });
}

OFP_CALL int execv(const char* path, char* const* words) noexcept { return execve(path, words, environ); }

OFP_CALL int execvpe(const char* name, char* const* words, char* const* environment) noexcept {
  static auto* const call = kernel::next<int(const char*, char* const*, char* const*)>("execvpe");
  return with_connections(environment, [&](char* const* told) { return call(name, words, told); });
}

OFP_CALL int execvp(const char* name, char* const* words) noexcept { return execvpe(name, words, environ); }

OFP_CALL int fexecve(int fd, char* const* words, char* const* environment) noexcept {
  static auto* const call = kernel::next<int(int, char* const*, char* const*)>("fexecve");
  return with_connections(environment, [&](char* const* told) { return call(fd, words, told); });
}

OFP_CALL int posix_spawn(pid_t* child, const char* path, const posix_spawn_file_actions_t* actions,
                         const posix_spawnattr_t* attributes, char* const* words, char* const* environment) {
  static auto* const call = kernel::next<Spawn>("posix_spawn");
  return spawned(environment, actions,
                 [&](char* const* told) { return call(child, path, actions, attributes, words, told); });
}

OFP_CALL int posix_spawnp(pid_t* child, const char* name, const posix_spawn_file_actions_t* actions,
                          const posix_spawnattr_t* attributes, char* const* words, char* const* environment) {
  static auto* const call = kernel::next<Spawn>("posix_spawnp");
  return spawned(environment, actions,
                 [&](char* const* told) { return call(child, name, actions, attributes, words, told); });
}

OFP_CALL int execl(const char* path, const char* first, ...) noexcept {
  va_list more;
  va_start(more, first);
  const auto words = words_of(first, more);
  va_end(more);
  return execve(path, words.data(), environ);
}

OFP_CALL int execlp(const char* name, const char* first, ...) noexcept {
  va_list more;
  va_start(more, first);
  const auto words = words_of(first, more);
  va_end(more);
  return execvpe(name, words.data(), environ);
}

OFP_CALL int execle(const char* path, const char* first, ...) noexcept {
  va_list more;
  va_start(more, first);
  const auto words = words_of(first, more);
  char* const* const environment = va_arg(more, char* const*);
  va_end(more);
  return execve(path, words.data(), environment);
}
