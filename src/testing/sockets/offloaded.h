// A program whose sockets are offloaded to a double of an agent. All tests of a process share the double, because the
// library keeps its state for the whole process. The tests' socket calls are the library's.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "sockets/program.h"
#include "testing/sockets/area_agent.h"

namespace offpath::sockets {

// As `offpath sockets` would set it; before anything asks for the policy.
inline void set_policy_of_tests() {
  ::setenv("OFFPATH_AGENT", "unix:/nowhere", 1);
  ::setenv("OFFPATH_SOCKETS_ADDRESS", "10.9.0.2,fd09::2", 1);
  ::setenv("OFFPATH_SOCKETS_LISTEN", "8000", 1);
  ::setenv("OFFPATH_SOCKETS_CONNECT", "10.9.0.0/24,fd09::/64", 1);
  ::setenv("OFFPATH_SOCKETS_MAX", "64", 1);
  ::setenv("OFFPATH_SOCKETS_RING", "1048576", 1);  // tests send much at a time, and the double advises no larger rings
}

class Offloaded : public testing::Test {
 protected:
  using Handle = FakeAreaAgent::Handle;
  static constexpr std::uint16_t listened_port = 8000;  // the port that the policy names

  Offloaded() { static_cast<void>(agent()); }
  ~Offloaded() override {
    for (const int fd : made_) ::close(fd);
  }

  static FakeAreaAgent& agent() {
    static FakeAreaAgent* const only = [] {
      auto* const made = new FakeAreaAgent(program().options());  // for good: the library has its memory until the end
      Socket::make_all(made->kept());
      program().take_up(
          channel::Sockets::inherit(made->memory_fd(), made->first_process(), program().options()).value());
      return made;
    }();
    return *only;
  }

  int keep(int fd) {
    if (fd >= 0) made_.push_back(fd);
    return fd;
  }
  int tcp(int flags = 0) { return keep(::socket(AF_INET, SOCK_STREAM | flags, 0)); }

  static sockaddr_in name_of(const char* address, std::uint16_t port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    ::inet_pton(AF_INET, address, &name.sin_addr);
    return name;
  }
  static int connect(int fd, const char* address, std::uint16_t port) {
    const sockaddr_in name = name_of(address, port);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name);
  }
  static int bind(int fd, const char* address, std::uint16_t port) {
    const sockaddr_in name = name_of(address, port);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name);
  }
  // A connection that is there. `handle`: the agent's name for it.
  int connected(Handle& handle, int flags = 0) {
    const int fd = tcp();
    EXPECT_EQ(connect(fd, "10.9.0.1", 80), 0) << errno;
    handle = agent().last_connected();
    if (flags != 0) set_non_blocking(fd);
    return fd;
  }
  static void set_non_blocking(int fd) { ASSERT_EQ(::fcntl(fd, F_SETFL, O_NONBLOCK), 0); }

  static bool is_offloaded(int fd) { return static_cast<bool>(descriptors().find(fd)); }
  // errno of a call that failed; 0: it did not.
  static int error_of(std::ptrdiff_t result) { return result < 0 ? errno : 0; }
  static int pending_error(int fd) {
    int code = -1;
    socklen_t length = sizeof code;
    EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length), 0);
    return code;
  }

 private:
  std::vector<int> made_;
};

}  // namespace offpath::sockets
