// Where an agent listens: "unix:/path", "tcp:HOST:PORT", "tls:HOST:PORT" or "verbs:HOST:PORT" ([::1] for IPv6 addresses).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::link {

struct Address {
  enum class Kind { unix_socket, tcp, tls, verbs };

  Kind kind = Kind::unix_socket;
  std::string path;  // of a Unix socket
  std::string host;
  std::uint16_t port = 0;  // 0: any, when listening

  [[nodiscard]] static Result<Address> parse(std::string_view text);
  [[nodiscard]] std::string text() const;
};

// A non-blocking listening socket. A socket file that nobody listens on any more is replaced; one that answers is
// Error::exists. `everyone`: users other than this process's may connect (who is let in, the handshake decides).
// Fills in the port that was chosen where `address` left it open.
[[nodiscard]] Result<Fd> listen_at(Address& address, bool everyone);

// The next connection, non-blocking; an empty Fd if none waits.
[[nodiscard]] Result<Fd> accept_from(int listener);

// A connected, non-blocking socket. Says what to do if nobody listens.
[[nodiscard]] Result<Fd> dial(const Address& address, TimeNs deadline);

// No delay for small frames, probes that notice a silent peer, room for a few data frames.
void tune_network_socket(int socket) noexcept;

}  // namespace offpath::link
