#include "group/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace offpath::group {

namespace {

constexpr std::size_t line_bytes_max = 4096;
constexpr int size_max = 65536;

Result<int> environment_number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return fail(Error::not_found,
                "{} is not set, so no launcher that exchanges addresses started this process: start it by mpirun of "
                "MPICH, Intel MPI or Open MPI, or by srun with --mpi=pmi2 or --mpi=pmix, or name the others by "
                "group.members",
                variable);
  }
  int number = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  if (error != std::errc() || rest != end || number < 0)
    return fail(Error::protocol, "{} is '{}', which is not a number", variable, text);
  return number;
}

// The value of a field in "cmd=x field=value other=value"; a value that the line does not have is empty.
std::string_view value_of(std::string_view line, std::string_view field) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    const std::size_t middle = word.find('=');
    if (middle != std::string_view::npos && word.substr(0, middle) == field) return word.substr(middle + 1);
  }
  return {};
}

// Whether the descriptor is ready for `events` before the deadline.
Status await(int fd, short events, TimeNs deadline) {
  for (;;) {
    const TimeNs left = deadline - monotonic_ns();
    if (left <= 0)
      return fail(Error::timeout, "the launcher did not answer: some of its agents have not published their address");
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(std::min<TimeNs>(left / millisecond_ns + 1, 1000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "poll");
  }
}

}  // namespace

Result<Launcher> Launcher::from_environment() {
  OFP_ASSIGN(const int fd, environment_number("PMI_FD"));
  OFP_ASSIGN(const int rank, environment_number("PMI_RANK"));
  OFP_ASSIGN(const int size, environment_number("PMI_SIZE"));
  if (size < 1 || size > size_max || rank >= size)
    return fail(Error::protocol, "PMI_RANK is {}, PMI_SIZE is {}", rank, size);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return fail(Error::protocol, "PMI_FD names descriptor {}, which is not open", fd);
  return Launcher(Fd(fd), rank, size);
}

Result<std::vector<std::string>> Launcher::exchange(const std::string& own, TimeNs deadline) {
  OFP_ASSERT(own.find_first_of(" \n") == std::string::npos);
  OFP_TRY(ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", "", deadline));
  OFP_ASSIGN(const std::string longest, ask("cmd=get_maxes", "maxes", "vallen_max", deadline));
  std::size_t value_max = 0;
  std::from_chars(longest.data(), longest.data() + longest.size(), value_max);
  if (own.size() >= value_max)
    return fail(Error::too_large, "the launcher takes values of less than {} bytes, the address is {}", value_max, own);
  OFP_ASSIGN(const std::string space, ask("cmd=get_my_kvsname", "my_kvsname", "kvsname", deadline));
  OFP_TRY(
      ask(fmt::format("cmd=put kvsname={} key=offpath-{} value={}", space, rank_, own), "put_result", "", deadline));
  OFP_TRY(ask("cmd=barrier_in", "barrier_out", "", deadline));
  std::vector<std::string> all;
  for (int rank = 0; rank < size_; ++rank) {
    OFP_ASSIGN(std::string address,
               ask(fmt::format("cmd=get kvsname={} key=offpath-{}", space, rank), "get_result", "value", deadline));
    all.push_back(std::move(address));
  }
  OFP_TRY(ask("cmd=finalize", "finalize_ack", "", deadline));
  return all;
}

Result<std::string> Launcher::ask(const std::string& line, std::string_view wanted, std::string_view field,
                                  TimeNs deadline) {
  OFP_TRY(send(line + '\n', deadline));
  OFP_ASSIGN(const std::string answer, read_line(deadline));
  const std::string_view rc = value_of(answer, "rc");
  const std::string_view value = field.empty() ? std::string_view("-") : value_of(answer, field);
  if (value_of(answer, "cmd") != wanted || !(rc.empty() || rc == "0") || value.empty())
    return fail(Error::protocol, "the launcher was asked '{}' and answered '{}'", line, answer);
  return std::string(value);
}

Status Launcher::send(std::string line, TimeNs deadline) const {
  for (std::string_view rest = line; !rest.empty();) {
    OFP_TRY(await(connection_.get(), POLLOUT, deadline));
    const ssize_t sent = ::send(connection_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return fail_errno(errno, "send to the launcher");
    if (sent > 0) rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::string> Launcher::read_line(TimeNs deadline) {
  for (;;) {
    if (const std::size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    if (unread_.size() > line_bytes_max)
      return fail(Error::protocol, "the launcher sends a line of more than {} bytes", line_bytes_max);
    OFP_TRY(await(connection_.get(), POLLIN, deadline));
    std::array<char, 1024> bytes;
    const ssize_t got = recv(connection_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return fail(Error::peer_lost, "the launcher has closed its connection");
    if (got < 0 && errno != EINTR && errno != EAGAIN) return fail_errno(errno, "recv from the launcher");
    if (got > 0) unread_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace offpath::group
