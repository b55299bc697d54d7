// Network namespaces of a test's own, gone with its process: one for this thread and one for the peer.
#pragma once

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "base/fd.h"

namespace offpath::kernel_test {

// Runs on a thread of its own, in a namespace; its threads and programs are there too.
inline void in_namespace(int fd, const std::function<void()>& what) {
  std::thread([&] {
    if (::setns(fd, CLONE_NEWNET) == 0) what();
  }).join();
}

[[nodiscard]] inline bool run(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

struct NamespacePair {
  Fd peer;
  std::string missing;  // why it could not be made

  NamespacePair() {
    if (!run("ip -V")) {
      missing = "there is no program ip";
    } else if (::unshare(CLONE_NEWNET) != 0) {
      missing = fmt::format("a network namespace cannot be made: {}", std::strerror(errno));
    } else {
      std::thread([&] {
        if (::unshare(CLONE_NEWNET) == 0) peer = Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
      }).join();
      if (!peer) missing = "a second network namespace cannot be made";
    }
  }

  // Interfaces `near` here, without an address, and `far` there, with these unique addresses.
  [[nodiscard]] bool connect(const std::string& far_address, const std::string& far_address6) {
    bool good = run(fmt::format(
        "ip link add near type veth peer name far && ip link set near up && ip link set far netns /proc/{}/fd/{}",
        ::getpid(), peer.get()));
    in_namespace(peer.get(), [&] {
      static_cast<void>(run("sysctl -w net.ipv6.conf.far.accept_dad=0"));
      good &=
          run(fmt::format("ip link set lo up && ip addr add {} dev far && ip addr add {} dev far nodad && "
                          "ip link set far up",
                          far_address, far_address6));
    });
    // An interface that has no address answers nothing, but for IPv6's own chatter.
    static_cast<void>(run("sysctl -w net.ipv6.conf.near.disable_ipv6=1"));
    return good;
  }
};

}  // namespace offpath::kernel_test
