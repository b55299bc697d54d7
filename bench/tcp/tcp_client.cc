#include "tcp_client.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <string>

#include "machine.h"
#include "measure.h"

namespace offpath::bench {

namespace {

constexpr std::size_t events_max = 64;
constexpr TimeNs patience_ns = 10 * second_ns;

sockaddr_in port_of(const StreamServer& server, StreamServer::Role role) {
  sockaddr_in at = server.at;
  at.sin_port = htons(static_cast<std::uint16_t>(ntohs(at.sin_port) + role));
  return at;
}

Result<Fd> make_socket(int flags) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) return fail_errno(errno, "socket");
  const int on = 1;
  const timeval limit{patience_ns / second_ns, 0};
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return fd;
}

Result<Fd> watch_many() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "epoll_create1");
  return epoll;
}

Status watch(int epoll, int fd, std::uint32_t events, std::uint64_t number, int operation = EPOLL_CTL_ADD) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) return fail_errno(errno, "epoll_ctl");
  return {};
}

Result<int> wait_for_events(int epoll, std::array<epoll_event, events_max>& events) {
  for (;;) {
    const int ready = ::epoll_wait(epoll, events.data(), events_max, static_cast<int>(patience_ns / millisecond_ns));
    if (ready > 0) return ready;
    if (ready == 0) return fail(Error::timeout, "the server did not answer for {} s", patience_ns / second_ns);
    if (errno != EINTR) return fail_errno(errno, "epoll_wait");
  }
}

}  // namespace

Result<StreamServer> StreamServer::parse(std::string_view text) {
  const std::size_t last = text.rfind(':'), first = text.find(':');
  StreamServer server;
  server.at.sin_family = AF_INET;
  if (first == last || ::inet_pton(AF_INET, std::string(text.substr(0, first)).c_str(), &server.at.sin_addr) != 1)
    return fail(Error::invalid, "'{}': ADDRESS:PORT:PID of a server is expected", text);
  server.at.sin_port = htons(static_cast<std::uint16_t>(std::atoi(std::string(text.substr(first + 1)).c_str())));
  server.pid = std::atoi(std::string(text.substr(last + 1)).c_str());
  return server;
}

Result<Fd> StreamServer::connect(Role role) const {
  OFP_ASSIGN(Fd fd, make_socket(0));
  const sockaddr_in to = port_of(*this, role);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    return fail_errno(errno, "connect to the server");
  return fd;
}

Result<std::int64_t> StreamServer::cpu_ns() const { return process_cpu_ns(pid); }

Status send_all(int fd, const void* bytes, std::size_t length) {
  const char* from = static_cast<const char*>(bytes);
  while (length > 0) {
    const ssize_t sent = ::send(fd, from, length, MSG_NOSIGNAL);
    if (sent < 0) return fail_errno(errno, "send to the server");
    from += sent;
    length -= static_cast<std::size_t>(sent);
  }
  return {};
}

Status receive_all(int fd, void* bytes, std::size_t length) {
  char* to = static_cast<char*>(bytes);
  while (length > 0) {
    const ssize_t got = ::recv(fd, to, length, 0);
    if (got < 0) return fail_errno(errno, "recv from the server");
    if (got == 0) return fail(Error::closed, "the server closed the connection, and {} bytes are missing", length);
    to += got;
    length -= static_cast<std::size_t>(got);
  }
  return {};
}

Result<double> round_trips(int fd, std::size_t bytes, std::size_t times) {
  std::vector<char> message(bytes, 'x');
  std::vector<double> ns;
  ns.reserve(times);
  for (std::size_t i = 0; i < times; ++i) {
    const std::uint64_t began = ticks();
    OFP_TRY(send_all(fd, message.data(), bytes));
    OFP_TRY(receive_all(fd, message.data(), bytes));
    ns.push_back(double(ticks() - began) * ns_per_tick());
  }
  return median(ns);
}

Result<BusyConnections> BusyConnections::open(const StreamServer& server, std::size_t count) {
  BusyConnections made;
  OFP_ASSIGN(made.epoll_, watch_many());
  for (std::size_t i = 0; i < count; ++i) {
    OFP_ASSIGN(Fd fd, server.connect(StreamServer::echo));
    OFP_TRY(watch(made.epoll_.get(), fd.get(), EPOLLIN, i));
    made.connections_.push_back(std::move(fd));
  }
  return made;
}

Result<std::uint64_t> BusyConnections::run(TimeNs duration, std::vector<double>* latencies_ns) {
  std::array<char, message_bytes> message{};
  std::vector<std::size_t> came(connections_.size());
  std::vector<std::uint64_t> sent_at(connections_.size());
  const auto send = [&](std::size_t number) {
    if (latencies_ns != nullptr) sent_at[number] = ticks();
    return send_all(connections_[number].get(), message.data(), message.size());
  };
  for (std::size_t number = 0; number < connections_.size(); ++number) OFP_TRY(send(number));
  std::uint64_t echoes = 0;
  const TimeNs until = monotonic_ns() + duration;
  for (std::size_t open = connections_.size(); open > 0;) {
    std::array<epoll_event, events_max> events;
    OFP_ASSIGN(const int ready, wait_for_events(epoll_.get(), events));
    const bool over = monotonic_ns() >= until;
    for (int i = 0; i < ready; ++i) {
      const std::size_t number = events[static_cast<std::size_t>(i)].data.u64;
      const int fd = connections_[number].get();
      const ssize_t got = ::recv(fd, message.data(), message.size() - came[number], MSG_DONTWAIT);
      if (got <= 0) return fail_errno(got < 0 ? errno : ECONNRESET, "a busy connection");
      came[number] += static_cast<std::size_t>(got);
      if (came[number] < message.size()) continue;
      came[number] = 0;
      ++echoes;
      if (latencies_ns != nullptr) latencies_ns->push_back(double(ticks() - sent_at[number]) * ns_per_tick());
      if (over)
        --open;
      else
        OFP_TRY(send(number));
    }
  }
  return echoes;
}

Result<std::uint64_t> short_connections(const StreamServer& server, std::size_t at_a_time, TimeNs duration) {
  struct Short {
    Fd fd;
    bool asked = false;
  };
  OFP_ASSIGN(const Fd epoll, watch_many());
  const sockaddr_in to = port_of(server, StreamServer::once);
  std::vector<Short> all(at_a_time);
  const auto begin = [&](std::size_t number) -> Status {
    OFP_ASSIGN(all[number].fd, make_socket(SOCK_NONBLOCK));
    all[number].asked = false;
    if (::connect(all[number].fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS)
      return fail_errno(errno, "connect to the server");
    return watch(epoll.get(), all[number].fd.get(), EPOLLOUT, number);
  };
  for (std::size_t number = 0; number < at_a_time; ++number) OFP_TRY(begin(number));
  std::array<char, BusyConnections::message_bytes> message{};
  std::uint64_t ended = 0;
  const TimeNs until = monotonic_ns() + duration;
  for (std::size_t open = at_a_time; open > 0;) {
    std::array<epoll_event, events_max> events;
    OFP_ASSIGN(const int ready, wait_for_events(epoll.get(), events));
    const bool over = monotonic_ns() >= until;
    for (int i = 0; i < ready; ++i) {
      const std::size_t number = events[static_cast<std::size_t>(i)].data.u64;
      Short& each = all[number];
      if (!each.asked) {
        OFP_TRY(send_all(each.fd.get(), message.data(), message.size()));
        OFP_TRY(watch(epoll.get(), each.fd.get(), EPOLLIN, number, EPOLL_CTL_MOD));
        each.asked = true;
        continue;
      }
      const ssize_t got = ::recv(each.fd.get(), message.data(), message.size(), 0);
      if (got > 0) continue;
      if (got < 0) return fail_errno(errno, "a short connection");
      ++ended;
      each.fd.reset();
      if (over)
        --open;
      else
        OFP_TRY(begin(number));
    }
  }
  return ended;
}

Result<double> stream(int fd, std::uint64_t in, std::uint64_t out) {
  static thread_local std::array<char, 128 << 10> chunk;
  const std::uint64_t head[2] = {in, out};
  const std::uint64_t began = ticks();
  OFP_TRY(send_all(fd, head, sizeof head));
  for (std::uint64_t left = in; left > 0;) {
    const std::size_t length = std::min<std::uint64_t>(left, chunk.size());
    OFP_TRY(send_all(fd, chunk.data(), length));
    left -= length;
  }
  for (std::uint64_t left = out; left > 0;) {
    const ssize_t got = ::recv(fd, chunk.data(), std::min<std::uint64_t>(left, chunk.size()), 0);
    if (got <= 0) return fail_errno(got < 0 ? errno : ECONNRESET, "recv from the server");
    left -= static_cast<std::uint64_t>(got);
  }
  return double(ticks() - began) * ns_per_tick();
}

Result<double> streams_of_threads(const std::vector<Fd>& connections, std::uint64_t in, std::uint64_t out) {
  std::vector<std::future<Result<double>>> all;
  const std::uint64_t began = ticks();
  for (const Fd& each : connections)
    all.push_back(std::async(std::launch::async, [&, fd = each.get()] { return stream(fd, in, out); }));
  Status done;
  for (auto& each : all)
    if (auto one = each.get(); !one) done = tl::unexpected(one.error());
  OFP_TRY(done);
  return double(ticks() - began) * ns_per_tick();
}

Result<std::vector<std::uint64_t>> streams_at_once(const std::vector<Fd>& connections, TimeNs begin, TimeNs duration) {
  static std::array<char, 128 << 10> chunk;
  OFP_ASSIGN(const Fd epoll, watch_many());
  const std::uint64_t head[2] = {0, 1ull << 40};  // more than can arrive
  for (std::size_t i = 0; i < connections.size(); ++i) {
    OFP_TRY(send_all(connections[i].get(), head, sizeof head));
    OFP_TRY(watch(epoll.get(), connections[i].get(), EPOLLIN, i));
  }
  std::vector<std::uint64_t> came(connections.size());
  const TimeNs counted_from = monotonic_ns() + begin;
  for (TimeNs now = 0; now < counted_from + duration;) {
    std::array<epoll_event, events_max> events;
    OFP_ASSIGN(const int ready, wait_for_events(epoll.get(), events));
    now = monotonic_ns();
    for (int i = 0; i < ready; ++i) {
      const std::size_t number = events[static_cast<std::size_t>(i)].data.u64;
      const ssize_t got = ::recv(connections[number].get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN))
        return fail_errno(got < 0 ? errno : ECONNRESET, "recv from the server");
      if (got > 0 && now >= counted_from) came[number] += static_cast<std::uint64_t>(got);
    }
  }
  return came;
}

Result<double> median_of_posts(int fd, std::uint64_t posts) {
  std::array<char, BusyConnections::message_bytes> message{};
  std::vector<double> ns;
  OFP_TRY(send_all(fd, &posts, sizeof posts));
  for (std::uint64_t i = 0; i < posts; ++i) {
    OFP_TRY(receive_all(fd, message.data(), message.size()));
    std::uint64_t spent = 0;
    std::memcpy(&spent, message.data(), sizeof spent);
    if (i > 0) ns.push_back(double(spent));
  }
  return median(ns);
}

}  // namespace offpath::bench
