// TLS 1.3 over a connected, non-blocking TCP socket. The agent presents a certificate; the host checks it against its
// CA file and the requested name or IP address. The host is authenticated inside the session by the shared key
// (authentication.h). openssl_tls.cc implements it with OpenSSL; crypto.h gives the reason for the interface.
#pragma once

#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::link {

// One connection. Never blocks, never raises SIGPIPE. Belongs to one thread at a time.
class TlsSession {
 public:
  using Binding = std::array<std::byte, 32>;

  TlsSession() = default;
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  virtual ~TlsSession() = default;

  // TLS's own handshake is part of the first receive and send. Error::timeout: the other machine was given up
  // (address.h). binding() returns a value known only to the two ends of this session (RFC 5705), for authentication.h.
  // Valid after the first received bytes.
  [[nodiscard]] virtual Result<Binding> binding() const = 0;
  [[nodiscard]] virtual Result<std::size_t> receive(MutableBytes to) = 0;  // 0: nothing now
  // 0: nothing now; then the next call has to offer the same bytes, or more.
  [[nodiscard]] virtual Result<std::size_t> send(Bytes from) = 0;
  // True if receive or send stopped because the socket accepted no more bytes.
  [[nodiscard]] virtual bool wants_write() const noexcept = 0;
};

// Whether the error number means that the kernel gave the other machine up.
[[nodiscard]] constexpr bool is_silence(int error_number) noexcept {
  return error_number == ETIMEDOUT || error_number == EHOSTUNREACH || error_number == ENETUNREACH ||
         error_number == EHOSTDOWN || error_number == ENETDOWN;
}

class TlsContext {
 public:
  [[nodiscard]] static Result<std::unique_ptr<TlsContext>> for_agent(const std::string& certificate_file,
                                                                     const std::string& key_file);
  [[nodiscard]] static Result<std::unique_ptr<TlsContext>> for_host(const std::string& ca_file);

  TlsContext() = default;
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  virtual ~TlsContext() = default;

  // The socket stays the caller's and must outlive the session.
  [[nodiscard]] virtual Result<std::unique_ptr<TlsSession>> accept(int socket) const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<TlsSession>> connect(int socket, const std::string& host) const = 0;
};

}  // namespace offpath::link
