// The kernel's end of the TCP benchmark: asks bench_tcp_server, which is offloaded or the kernel's own, and sees no
// difference.
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

// One server: where it is, and the processes whose CPU time is the host's.
struct StreamServer {
  sockaddr_in at{};  // of its first port
  pid_t pid = -1;

  // What its ports do: see tcp_server.c.
  enum Role : std::uint16_t { echo, stream, timed, posts, once, stamped };
  [[nodiscard]] static Result<StreamServer> parse(std::string_view address_and_pid);  // ADDRESS:PORT:PID
  [[nodiscard]] Result<Fd> connect(Role role) const;                                  // without Nagle's algorithm
  [[nodiscard]] Result<std::int64_t> cpu_ns() const;
};

[[nodiscard]] Status send_all(int fd, const void* bytes, std::size_t length);
[[nodiscard]] Status receive_all(int fd, void* bytes, std::size_t length);

// Median nanoseconds of so many messages and their echoes, one after the other.
[[nodiscard]] Result<double> round_trips(int fd, std::size_t bytes, std::size_t times);

// Connections each of which has a message on its way all the time.
class BusyConnections {
 public:
  static constexpr std::size_t message_bytes = 64;

  [[nodiscard]] static Result<BusyConnections> open(const StreamServer& server, std::size_t count);
  // For so long; then until everything is back. How many echoes came.
  [[nodiscard]] Result<std::uint64_t> run(TimeNs duration);

 private:
  Fd epoll_;
  std::vector<Fd> connections_;
};

// Connections opened, asked 64 bytes, and closed by the server, so many at a time, for so long. How many there were.
[[nodiscard]] Result<std::uint64_t> short_connections(const StreamServer& server, std::size_t at_a_time,
                                                      TimeNs duration);

// `in` bytes go to the server, then `out` bytes come back. Nanoseconds until the last has come.
[[nodiscard]] Result<double> stream(int fd, std::uint64_t in, std::uint64_t out);

// All servers send as fast as they can: how many bytes came on each connection in `duration`, the first `begin` left
// out.
[[nodiscard]] Result<std::vector<std::uint64_t>> streams_at_once(const std::vector<Fd>& connections, TimeNs begin,
                                                                 TimeNs duration);

}  // namespace offpath::bench
