// For tests: an agent that serves one handshake at a time, and pairs of ends that came out of one.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "link/handshake/handshake.h"
#include "link/verbs/verbs_link.h"
#include "testing/link/emulated.h"

namespace offpath::link {

// A directory that goes away with everything in it that a test put there by name.
class TestDirectory {
 public:
  TestDirectory() {
    char path[] = "/tmp/offpath_link_XXXXXX";
    OFP_ASSERT(mkdtemp(path) != nullptr);
    path_ = path;
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory() {
    for (const std::string& name : names_) ::unlink((path_ + "/" + name).c_str());
    ::rmdir(path_.c_str());
  }
  std::string file(const std::string& name) {
    names_.push_back(name);
    return path_ + "/" + name;
  }
  // A new file; replaces an earlier one of this name.
  std::string write(const std::string& name, std::string_view content, mode_t mode = 0600) {
    const std::string path = file(name);
    ::unlink(path.c_str());
    const Fd made(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    OFP_ASSERT(::write(made.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    OFP_ASSERT(fchmod(made.get(), mode) == 0);
    return path;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> names_;
};

// Listens from its construction on. The policy may be changed until a handshake begins.
class TestAgent {
 public:
  struct Arrival {
    std::unique_ptr<AgentLink> link;  // null if refused
    wire::Hello hello;
    uid_t uid = 0;
    pid_t pid = 0;
    bool by_old_key = false;
    Failure failure{Error::closed, "no handshake took place"};
  };

  explicit TestAgent(const std::string& address_text = "") {
    auto parsed = Address::parse(address_text.empty() ? "unix:" + directory_.file("agent") : address_text);
    OFP_ASSERT(parsed);
    address = std::move(*parsed);
    auto listening = listen_at(address, true);
    OFP_ASSERT(listening);
    listener = std::move(*listening);
  }

  // Waits for one client and serves its handshake.
  Arrival serve() {
    Arrival arrival;
    pollfd look{listener.get(), POLLIN, 0};
    if (::poll(&look, 1, patience_ms()) != 1) return arrival;
    auto accepted = accept_from(listener.get());
    OFP_ASSERT(accepted && *accepted);
    AgentHandshake handshake(std::move(*accepted), address.kind, policy, monotonic_ns());
    while (handshake.advance(monotonic_ns()) == AgentHandshake::State::pending) {
      look = {handshake.fd(), static_cast<short>(handshake.wants_write() ? POLLIN | POLLOUT : POLLIN), 0};
      ::poll(&look, 1, 100);
    }
    if (handshake.state() == AgentHandshake::State::failed) {
      arrival.failure = handshake.failure();
      return arrival;
    }
    arrival.hello = handshake.hello();
    arrival.uid = handshake.uid();
    arrival.pid = handshake.pid();
    arrival.by_old_key = handshake.knows_an_old_key_only();
    wire::Welcome welcome;
    welcome.incarnation = 77;
    welcome.memory_bytes_max = 1 << 30;
    welcome.agent_name = "test agent";
    welcome.agent_version = "0.0.1";
    auto link = handshake.accept(welcome);
    if (link)
      arrival.link = std::move(*link);
    else
      arrival.failure = std::move(link).error();
    return arrival;
  }

  // Both ends in this process.
  std::pair<Result<std::unique_ptr<HostLink>>, Arrival> meet(const HostOptions& options = {}) {
    Arrival arrival;
    std::atomic<bool> connected = false;
    std::thread agent([&] {
      arrival = serve();
      // A queue pair is connected after the welcome, while the agent's loop runs. Events wait for a poll that takes
      // any.
      while (arrival.link && !connected) arrival.link->poll(monotonic_ns(), {});
    });
    auto host = connect(address, options, soon());
    connected = true;
    agent.join();
    return {std::move(host), std::move(arrival)};
  }

  Address address;
  Fd listener;
  AgentPolicy policy;

 private:
  TestDirectory directory_;
};

// Both ends of one link, for the fixtures of those who test one.
class ConnectedPair {
 protected:
  explicit ConnectedPair(const std::string& address = "") : agent(address) {}

  void meet(const HostOptions& options) {
    auto [connected, arrival] = agent.meet(options);
    ASSERT_TRUE(connected) << connected.error().message;
    ASSERT_TRUE(arrival.link) << arrival.failure.message;
    host = std::move(*connected);
    there = std::move(arrival.link);
    hello = std::move(arrival.hello);
  }
  Status announce(RegionId range, std::uint32_t generation, const void* base, std::uint64_t length) {
    OFP_ASSIGN(const std::uint32_t key, host->announce_range(range, generation, base, length));
    return there->attach_range(range, generation, reinterpret_cast<std::uint64_t>(base), length, key);
  }
  // announce_segment waits for the agent, so the agent polls meanwhile.
  Status announce_segment(RegionId segment, const SegmentMemory& memory) {
    Status announced;
    std::atomic<bool> done = false;
    std::thread program([&] {
      announced = host->announce_segment(segment, memory, soon());
      done = true;
    });
    while (!done) {
      std::array<LinkEvent, 4> events;
      there->poll(monotonic_ns(), events);
    }
    program.join();
    return announced;
  }

  TestDirectory directory;
  TestAgent agent;
  std::unique_ptr<HostLink> host;
  std::unique_ptr<AgentLink> there;
  wire::Hello hello;
};

// Both ends of a control connection.
struct Sockets {
  ControlSocket host, agent;
};

// A control connection between an address of this machine and itself, in the state after the handshake.
inline Sockets connect_sockets(Address address) {
  address.port = 0;
  auto listener = listen_at(address, false);
  OFP_ASSERT(listener);
  auto host = dial(address, soon());
  OFP_ASSERT(host);
  pollfd look{listener->get(), POLLIN, 0};
  OFP_ASSERT(::poll(&look, 1, patience_ms()) == 1);
  auto agent = accept_from(listener->get());
  OFP_ASSERT(agent && *agent);
  return {ControlSocket(std::move(*host), ControlSocket::Kind::network),
          ControlSocket(std::move(*agent), ControlSocket::Kind::network)};
}

// An address of this machine that belongs to an RDMA device, or the reason why there is none.
inline Result<std::string> rdma_address() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return fail_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(first, ::freeifaddrs);
  Result<std::string> found = fail(Error::unsupported, "this machine has no network");
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text.data(), text.size());
    Address address;
    address.kind = Address::Kind::verbs;
    address.host = text.data();
    if (auto usable = check_verbs(address))
      return address.host;
    else
      found = tl::unexpected<Failure>(std::move(usable).error());
  }
  return found;
}

// The actions of a loop that watches the link's wakes.
inline void take_wakes(AgentLink& link) {
  pollfd wakes{link.wake_fd(), POLLIN, 0};
  if (wakes.fd < 0 || ::poll(&wakes, 1, 0) != 1) return;
  std::uint64_t count = 0;
  if (::read(wakes.fd, &count, sizeof count) == sizeof count) link.on_wake();
}

// The actions of a loop that watches the link's descriptors.
inline void tell_readable(AgentLink& link) {
  std::array<pollfd, 2> looks{{{link.event_fd(), POLLIN, 0}, {link.life_fd(), POLLIN, 0}}};
  if (::poll(looks.data(), looks.size(), 0) > 0) link.on_readable();
}

// Polls the agent's end until `wanted` says of an event that it is the one; its copy. Fails the test when
// that takes too long, and returns `closed`. `meanwhile` runs between polls.
inline LinkEvent await_event(AgentLink& link, const std::function<bool(const LinkEvent&)>& wanted,
                             const std::function<void()>& meanwhile = {}) {
  const TimeNs deadline = soon();
  while (monotonic_ns() < deadline) {
    take_wakes(link);
    std::array<LinkEvent, 1> events;  // one at a time, so that those after the one wanted are not lost
    if (link.poll(monotonic_ns(), events) == 1 && wanted(events[0])) return std::move(events[0]);
    if (meanwhile) meanwhile();
  }
  ADD_FAILURE() << "the event did not come in time";
  return {LinkEvent::Kind::closed, 0, fail(Error::timeout, "no event"), Fd()};
}

inline LinkEvent await_kind(AgentLink& link, LinkEvent::Kind kind, const std::function<void()>& meanwhile = {}) {
  return await_event(link, [kind](const LinkEvent& event) { return event.kind == kind; }, meanwhile);
}

// One operation, from its post to its event.
inline Status read_one(AgentLink& link, ReadPiece piece, const std::function<void()>& meanwhile = {}) {
  link.read(4711, {&piece, 1});
  return await_event(link, [](const LinkEvent& event) { return event.token == 4711; }, meanwhile).status;
}
inline Status write_one(AgentLink& link, WritePiece piece, const std::function<void()>& meanwhile = {}) {
  link.write(4712, {&piece, 1});
  return await_event(link, [](const LinkEvent& event) { return event.token == 4712; }, meanwhile).status;
}

}  // namespace offpath::link
