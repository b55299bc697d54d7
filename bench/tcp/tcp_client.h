// The kernel's end of the TCP benchmark: talks to bench_tcp_server, offloaded or in the kernel, in the same way.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::bench {

// One server: its address, and the processes whose CPU time counts as the host's.
struct StreamServer {
  sockaddr_in at{};  // of its first port
  pid_t pid = -1;

  // The roles of its ports: see tcp_server.c.
  enum Role : std::uint16_t { echo, stream, timed, posts, once, stamped, threaded, costs };
  [[nodiscard]] static Result<StreamServer> parse(std::string_view address_and_pid);  // ADDRESS:PORT:PID
  [[nodiscard]] Result<Fd> connect(Role role) const;                                  // without Nagle's algorithm
  [[nodiscard]] Result<std::int64_t> cpu_ns() const;
};

[[nodiscard]] Status send_all(int fd, const void* bytes, std::size_t length);
[[nodiscard]] Status receive_all(int fd, void* bytes, std::size_t length);

// Median nanoseconds of that many messages and their echoes, one after the other.
[[nodiscard]] Result<double> round_trips(int fd, std::size_t bytes, std::size_t times);

// Connections that always have a message under way.
class BusyConnections {
 public:
  static constexpr std::size_t message_bytes = 64;

  [[nodiscard]] static Result<BusyConnections> open(const StreamServer& server, std::size_t count);
  // Runs for the duration, then until everything has come back. Returns the number of echoes. `latencies_ns`: how long
  // each took, from the begin of its send.
  [[nodiscard]] Result<std::uint64_t> run(TimeNs duration, std::vector<double>* latencies_ns = nullptr);

 private:
  Fd epoll_;
  std::vector<Fd> connections_;
};

// Opens connections that are asked 64 bytes and closed by the server, a number at a time, for the duration. Returns
// their number.
[[nodiscard]] Result<std::uint64_t> short_connections(const StreamServer& server, std::size_t at_a_time,
                                                      TimeNs duration);

// Sends `in` bytes to the server, then receives `out` bytes. Nanoseconds until the last has arrived.
[[nodiscard]] Result<double> stream(int fd, std::uint64_t in, std::uint64_t out);

// The same on several connections at once, each with a thread of its own.
[[nodiscard]] Result<double> streams_of_threads(const std::vector<Fd>& connections, std::uint64_t in,
                                                std::uint64_t out);

// All servers send as fast as they can: the bytes that arrived on each connection in `duration`, without the first
// `begin`.
[[nodiscard]] Result<std::vector<std::uint64_t>> streams_at_once(const std::vector<Fd>& connections, TimeNs begin,
                                                                 TimeNs duration);

// Median nanoseconds of a server's send(), of so many that a StreamServer::posts connection asks for. The first, which
// is colder, is left out.
[[nodiscard]] Result<double> median_of_posts(int fd, std::uint64_t posts);

}  // namespace offpath::bench
