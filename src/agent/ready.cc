#include "agent/ready.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "agent/status/json.h"
#include "base/fd.h"

namespace offpath::agent {

std::string ready_line(const ReadyFacts& facts) {
  Json json;
  json.begin_object().member("name", facts.name).member("address", facts.addresses.front().text());
  json.key("addresses").begin_list();
  for (const link::Address& address : facts.addresses) json.value(address.text());
  json.end_list();
  for (const auto& [key, text] : {std::pair("http", &facts.http), std::pair("flight", &facts.flight)}) {
    json.key(key);
    if (text->empty())
      json.null();
    else
      json.value(*text);
  }
  json.member("pid", facts.process);
  if (!facts.cores.empty()) {
    json.key("cores").begin_list();
    for (const pid_t process : facts.cores) json.begin_object().member("pid", process).end_object();
    json.end_list();
  }
  return json.end_object().text() + "\n";
}

Status tell_ready(const std::string& line, int fd) {
  const ssize_t written = write(fd, line.data(), line.size());
  const int error_number = errno;
  if (fd > STDERR_FILENO) close(fd);
  if (written != static_cast<ssize_t>(line.size())) {
    return fail_errno(written < 0 ? error_number : EIO, fmt::format("writing the ready line to descriptor {}", fd));
  }
  return {};
}

void notify_service_manager(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un to{};
  if (path == nullptr || std::strlen(path) >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) return;
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, path, std::strlen(path));
  if (path[0] == '@') to.sun_path[0] = '\0';
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  if (socket) {
    [[maybe_unused]] auto ignored =
        sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), length);
  }
}

}  // namespace offpath::agent
