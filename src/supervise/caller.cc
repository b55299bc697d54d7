#include "supervise/caller.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace offpath::supervise {

namespace {

struct Name {
  std::array<char, 32> text{};
};
Name name_of(const char* format, int number) noexcept {
  Name name;
  static_cast<void>(std::snprintf(name.text.data(), name.text.size(), format, number));
  return name;
}

// `word` begins with the end of the line before: the program chooses its name, and the kernel escapes ends of lines in
// it.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view word, int base) noexcept {
  const std::size_t at = text.find(word);
  if (at == text.npos) return std::nullopt;
  return std::strtoull(text.data() + at + word.size(), nullptr, base);
}

// Of every socket. A name of a socket in a file system, opened with O_PATH, has the device of that file system.
const dev_t sockets_device = []() noexcept {
  const Fd any(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct stat status{};
  return ::fstat(any.get(), &status) == 0 ? status.st_dev : 0;
}();

#ifndef PIDFD_THREAD
constexpr unsigned PIDFD_THREAD = O_EXCL;
#endif

}  // namespace

std::optional<Caller> Caller::of(const Call& call, const Notifications& calls) {
  Fd folder(::open(name_of("/proc/%d", call.thread).text.data(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder || !calls.is_open(call)) return std::nullopt;
  return Caller(call, calls, std::move(folder));
}

ino_t Caller::socket_at(int number) const noexcept {
  struct stat status{};
  if (number < 0 || ::fstatat(folder_.get(), name_of("fd/%d", number).text.data(), &status, 0) != 0) return 0;
  return S_ISSOCK(status.st_mode) && status.st_dev == sockets_device ? status.st_ino : 0;
}

// Null-terminated; 0: none.
std::size_t Caller::read_file(const char* name, std::span<char> to) const noexcept {
  const Fd file(::openat(folder_.get(), name, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file ? ::read(file.get(), to.data(), to.size() - 1) : 0;
  to[got > 0 ? static_cast<std::size_t>(got) : 0] = 0;
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

std::optional<Caller::Flags> Caller::flags_of(int number) const noexcept {
  std::array<char, 256> text;
  const std::size_t length = read_file(name_of("fdinfo/%d", number).text.data(), text);
  const auto flags = number_after({text.data(), length}, "\nflags:", 8);
  if (!flags) return std::nullopt;
  return Flags{.non_blocking = (*flags & O_NONBLOCK) != 0, .close_on_exec = (*flags & O_CLOEXEC) != 0};
}

Fd Caller::copy_of(int number, ino_t socket) const noexcept {
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, call_.thread, PIDFD_THREAD)));
  if (!process) {  // before Linux 6.9: only by the first thread
    std::array<char, 512> text;
    const std::size_t length = read_file("status", text);
    const auto first = number_after({text.data(), length}, "\nTgid:", 10);
    if (first) process = Fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(*first), 0)));
  }
  if (!process) return {};
  Fd copy(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
  struct stat status{};
  if (!copy || ::fstat(copy.get(), &status) != 0 || status.st_dev != sockets_device || status.st_ino != socket)
    return {};
  return copy;
}

// The descriptor keeps the memory that the thread had when it was opened.
Fd Caller::memory(int flags) const noexcept {
  Fd opened(::openat(folder_.get(), "mem", flags | O_CLOEXEC));
  if (opened && !calls_.is_open(call_)) opened.reset();
  return opened;
}

bool Caller::read(std::uint64_t address, MutableBytes to) const noexcept {
  if (to.empty()) return true;
  const Fd opened = memory(O_RDONLY);
  return opened &&
         ::pread(opened.get(), to.data(), to.size(), static_cast<off_t>(address)) == static_cast<ssize_t>(to.size());
}

bool Caller::write(std::uint64_t address, Bytes from) const noexcept {
  if (from.empty()) return true;
  const Fd opened = memory(O_WRONLY);
  return opened && ::pwrite(opened.get(), from.data(), from.size(), static_cast<off_t>(address)) ==
                       static_cast<ssize_t>(from.size());
}

// A process has every capability in a user namespace that it makes.
bool Caller::has_right(int capability) const noexcept {
  struct stat own{}, callers{};
  if (::stat("/proc/self/ns/user", &own) != 0 || ::fstatat(folder_.get(), "ns/user", &callers, 0) != 0 ||
      own.st_dev != callers.st_dev || own.st_ino != callers.st_ino)
    return false;
  std::array<char, 4096> text;
  const std::size_t length = read_file("status", text);
  const std::uint64_t effective = number_after({text.data(), length}, "\nCapEff:", 16).value_or(0);
  return (effective >> capability & 1) != 0 && calls_.is_open(call_);
}

ino_t Caller::network() const noexcept {
  struct stat status{};
  return ::fstatat(folder_.get(), "ns/net", &status, 0) == 0 ? status.st_ino : 0;
}

}  // namespace offpath::supervise
