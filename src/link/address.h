// Addresses at which agents listen: "unix:/path", "tcp:HOST:PORT", "tls:HOST:PORT", "verbs:HOST:PORT" or
// "doca:HOST:PORT" ([::1] for IPv6 addresses).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "wire/control.h"

namespace offpath::link {

inline constexpr std::size_t unix_path_bytes_max = 107;  // the kernel's, without the zero at its end

struct Address {
  enum class Kind { unix_socket, tcp, tls, verbs, doca };

  Kind kind = Kind::unix_socket;
  std::string path;  // of a Unix socket
  std::string host;
  std::uint16_t port = 0;  // 0: any, when listening

  [[nodiscard]] static Result<Address> parse(std::string_view text);
  [[nodiscard]] std::string text() const;
};

// The agent's default address: unix:/run/offpath/agent.sock for root, unix:$XDG_RUNTIME_DIR/offpath/agent.sock for
// other users. Error::invalid: that variable does not name a directory.
[[nodiscard]] Result<Address> default_address();
// The agent for a program that names none: at the default address of the program's user, else at root's.
// Error::invalid: no socket exists at either.
[[nodiscard]] Result<Address> find_default_agent();

// Makes a non-blocking listening socket. A socket file without a listener is replaced; one with a listener is
// Error::exists. `everyone`: other users may connect (the handshake decides about access). Sets the chosen port if
// `address` left it open.
[[nodiscard]] Result<Fd> listen_at(Address& address, bool everyone);

// The next connection, non-blocking; an empty Fd if none waits.
[[nodiscard]] Result<Fd> accept_from(int listener);

// A connected, non-blocking socket. Without a listener the error names the remedy.
[[nodiscard]] Result<Fd> dial(const Address& address, TimeNs deadline);

// Disables Nagle's algorithm, and ends a connection whose other machine does not answer.
void tune_network_socket(int socket) noexcept;

// A machine that was switched off or disconnected can only be detected by its silence. The kernel probes an idle
// connection from half of this time on, and waits as long for sent data to be acknowledged: no program needs a thread
// for it, and a waiting socket becomes readable. Whole seconds, between the two bounds.
inline constexpr TimeNs silence_default_ns = wire::silence_ms_default * millisecond_ns;
void end_when_silent(int socket, TimeNs silence_ns) noexcept;

}  // namespace offpath::link
