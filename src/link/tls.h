// TLS 1.2 or later over a connected, non-blocking TCP socket (OpenSSL). The agent shows a certificate; the host
// checks it against its CA file and the name or IP address it asked for. Who the host is, the shared key proves
// inside (authentication.h).
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace offpath::link {

// One connection. Never blocks, never raises SIGPIPE. Belongs to one thread at a time.
class TlsSession {
 public:
  using Binding = std::array<std::byte, 32>;

  TlsSession(ssl_st* session) noexcept : session_(session) {}
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  // TLS's own handshake is part of the first receive and send.
  // What only the two ends of this session know (RFC 5705), for authentication.h. Not before something was received.
  [[nodiscard]] Binding binding() const;
  [[nodiscard]] Result<std::size_t> receive(MutableBytes to);  // 0: nothing now
  // 0: nothing now; then the next call has to offer the same bytes, or more.
  [[nodiscard]] Result<std::size_t> send(Bytes from);
  // What kept receive or send from going on was that the socket took no more bytes.
  [[nodiscard]] bool wants_write() const noexcept { return receive_wants_write_ || send_wants_write_; }

 private:
  [[nodiscard]] tl::unexpected<Failure> failure(int returned, std::string_view call);
  [[nodiscard]] bool only_waits(int returned, bool& wants_write);

  ssl_st* session_;
  bool receive_wants_write_ = false, send_wants_write_ = false;
};

class TlsContext {
 public:
  [[nodiscard]] static Result<TlsContext> for_agent(const std::string& certificate_file, const std::string& key_file);
  [[nodiscard]] static Result<TlsContext> for_host(const std::string& ca_file);
  TlsContext(TlsContext&&) noexcept = default;
  TlsContext& operator=(TlsContext&&) noexcept = default;

  // The socket stays the caller's and must outlive the session.
  [[nodiscard]] Result<std::unique_ptr<TlsSession>> accept(int socket) const;
  [[nodiscard]] Result<std::unique_ptr<TlsSession>> connect(int socket, const std::string& host) const;

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const noexcept;
  };
  explicit TlsContext(ssl_ctx_st* context) noexcept : context_(context) {}
  [[nodiscard]] static Result<TlsContext> create(bool server);
  [[nodiscard]] Result<ssl_st*> open(int socket) const;
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

}  // namespace offpath::link
