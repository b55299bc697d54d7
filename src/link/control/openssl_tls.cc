#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <new>

#include "link/control/openssl_crypto.h"

namespace offpath::link {

namespace {

// OpenSSL's own socket BIO uses write(2), which raises SIGPIPE in the program; this one does not.
int write_socket(BIO* bio, const char* data, int length) {
  BIO_clear_retry_flags(bio);
  const auto socket = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  const ssize_t sent = send(socket, data, static_cast<std::size_t>(length), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int read_socket(BIO* bio, char* data, int length) {
  BIO_clear_retry_flags(bio);
  const auto socket = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  const ssize_t got = recv(socket, data, static_cast<std::size_t>(length), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long control_socket_bio(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

struct FreeMethod {
  void operator()(BIO_METHOD* method) const noexcept { BIO_meth_free(method); }
};

BIO* new_socket_bio(int socket) try {
  static const std::unique_ptr<BIO_METHOD, FreeMethod> method = [] {
    std::unique_ptr<BIO_METHOD, FreeMethod> made(
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "offpath socket"));
    if (!made) throw std::bad_alloc();  // not cached, so the next session tries again
    BIO_meth_set_write(made.get(), write_socket);
    BIO_meth_set_read(made.get(), read_socket);
    BIO_meth_set_ctrl(made.get(), control_socket_bio);
    return made;
  }();
  BIO* bio = BIO_new(method.get());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  BIO_set_init(bio, 1);
  return bio;
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::string why() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "unknown reason" : text;
}

// The error may come from a wrong date in the certificate or a wrong clock here.
std::string about_dates(long verified) {
  if (verified != X509_V_ERR_CERT_NOT_YET_VALID && verified != X509_V_ERR_CERT_HAS_EXPIRED) return {};
  char text[32] = "?";
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return fmt::format(
      "; this machine's clock says {}: correct it if it is wrong, else renew the agent's certificate (SIGHUP makes the "
      "agent read it)",
      text);
}

class OpensslSession final : public TlsSession {
 public:
  explicit OpensslSession(SSL* session) noexcept : session_(session) {}
  ~OpensslSession() override { SSL_free(session_); }

  [[nodiscard]] Result<Binding> binding() const override;
  [[nodiscard]] Result<std::size_t> receive(MutableBytes to) override;
  [[nodiscard]] Result<std::size_t> send(Bytes from) override;
  [[nodiscard]] bool wants_write() const noexcept override { return receive_wants_write_ || send_wants_write_; }

 private:
  [[nodiscard]] tl::unexpected<Failure> failure(int returned, std::string_view call);
  [[nodiscard]] bool only_waits(int returned, bool& wants_write);

  SSL* session_;
  bool receive_wants_write_ = false, send_wants_write_ = false;
};

class OpensslContext final : public TlsContext {
 public:
  [[nodiscard]] static Result<std::unique_ptr<OpensslContext>> create(bool server);

  [[nodiscard]] SSL_CTX* get() const noexcept { return context_.get(); }
  [[nodiscard]] Result<std::unique_ptr<TlsSession>> accept(int socket) const override;
  [[nodiscard]] Result<std::unique_ptr<TlsSession>> connect(int socket, const std::string& host) const override;

 private:
  struct Free {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  };
  explicit OpensslContext(SSL_CTX* context) noexcept : context_(context) {}
  [[nodiscard]] Result<SSL*> open(int socket) const;
  std::unique_ptr<SSL_CTX, Free> context_;
};

bool OpensslSession::only_waits(int returned, bool& wants_write) {
  const int error = SSL_get_error(session_, returned);
  wants_write = error == SSL_ERROR_WANT_WRITE;
  return wants_write || error == SSL_ERROR_WANT_READ;
}

tl::unexpected<Failure> OpensslSession::failure(int returned, std::string_view call) {
  const int error_number = errno;  // of the socket, if it caused the failure
  switch (SSL_get_error(session_, returned)) {
    case SSL_ERROR_ZERO_RETURN:
      return fail(Error::peer_lost, "the other side closed the connection");
    case SSL_ERROR_SYSCALL:
      ERR_clear_error();
      if (is_silence(error_number)) return fail(Error::timeout, "the other machine does not answer");
      return fail(Error::peer_lost, "the other side closed the connection");
    default:
      break;
  }
  if (const long verified = SSL_get_verify_result(session_); verified != X509_V_OK) {
    ERR_clear_error();
    return fail(Error::denied, "{}: the agent's certificate is refused: {}{}", call,
                X509_verify_cert_error_string(verified), about_dates(verified));
  }
  const unsigned long code = ERR_peek_error();
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    ERR_clear_error();
    return fail(Error::peer_lost, "the other side closed the connection");
  }
  return fail(Error::protocol, "{}: {}", call, why());
}

Result<TlsSession::Binding> OpensslSession::binding() const {
  Binding bytes{};
  ERR_clear_error();
  static constexpr std::string_view label = "EXPORTER-offpath-shared-key";
  const int made = SSL_export_keying_material(session_, reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                                              label.data(), label.size(), nullptr, 0, 0);
  if (made != 1) return fail(Error::no_memory, "SSL_export_keying_material: {}", why());
  return bytes;
}

Result<std::size_t> OpensslSession::receive(MutableBytes to) {
  std::size_t total = 0;
  receive_wants_write_ = false;
  while (total < to.size()) {
    ERR_clear_error();
    const int got =
        SSL_read(session_, to.data() + total, static_cast<int>(std::min<std::size_t>(to.size() - total, INT_MAX)));
    if (got > 0) {
      total += static_cast<std::size_t>(got);
      continue;
    }
    if (only_waits(got, receive_wants_write_) || total > 0) break;
    return failure(got, "TLS");
  }
  return total;
}

Result<std::size_t> OpensslSession::send(Bytes from) {
  std::size_t total = 0;
  send_wants_write_ = false;
  while (total < from.size()) {
    ERR_clear_error();
    const int sent =
        SSL_write(session_, from.data() + total, static_cast<int>(std::min<std::size_t>(from.size() - total, INT_MAX)));
    if (sent > 0) {
      total += static_cast<std::size_t>(sent);
      continue;
    }
    if (only_waits(sent, send_wants_write_) || total > 0) break;
    return failure(sent, "TLS");
  }
  return total;
}

Result<std::unique_ptr<OpensslContext>> OpensslContext::create(bool server) {
  ERR_clear_error();
  std::unique_ptr<OpensslContext> made(
      new OpensslContext(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method())));
  SSL_CTX* context = made->get();
  if (context == nullptr) return fail(Error::no_memory, "SSL_CTX_new: {}", why());
  // Before TLS 1.3 the exported binding() is unique to a session only with the extended master secret (RFC 7627).
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  return made;
}

Result<SSL*> OpensslContext::open(int socket) const {
  ERR_clear_error();
  SSL* session = SSL_new(context_.get());
  BIO* bio = session == nullptr ? nullptr : new_socket_bio(socket);
  if (bio == nullptr) {
    SSL_free(session);
    return fail(Error::no_memory, "SSL_new: {}", why());
  }
  SSL_set_bio(session, bio, bio);
  return session;
}

Result<std::unique_ptr<TlsSession>> OpensslContext::accept(int socket) const {
  OFP_ASSIGN(SSL * session, open(socket));
  SSL_set_accept_state(session);
  return std::make_unique<OpensslSession>(session);
}

Result<std::unique_ptr<TlsSession>> OpensslContext::connect(int socket, const std::string& host) const {
  OFP_ASSIGN(SSL * session, open(socket));
  auto made = std::make_unique<OpensslSession>(session);
  SSL_set_connect_state(session);
  X509_VERIFY_PARAM* wanted = SSL_get0_param(session);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) != 1) {  // not an IP address: a name
    ERR_clear_error();
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size()) != 1 ||
        SSL_set_tlsext_host_name(session, host.c_str()) != 1)
      return fail(Error::invalid, "TLS: the host name '{}' cannot be checked: {}", host, why());
  }
  return made;
}

}  // namespace

Result<std::unique_ptr<TlsContext>> openssl_tls_for_agent(const std::string& certificate_file,
                                                          const std::string& key_file) {
  OFP_ASSIGN(auto made, OpensslContext::create(true));
  SSL_CTX* context = made->get();
  if (SSL_CTX_use_certificate_chain_file(context, certificate_file.c_str()) != 1)
    return fail(Error::invalid, "TLS certificate file {}: {}", certificate_file, why());
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1)
    return fail(Error::invalid, "TLS key file {}: {}", key_file, why());
  if (SSL_CTX_check_private_key(context) != 1)
    return fail(Error::invalid, "TLS key file {} does not belong to the certificate in {}", key_file, certificate_file);
  return made;
}

Result<std::unique_ptr<TlsContext>> openssl_tls_for_host(const std::string& ca_file) {
  OFP_ASSIGN(auto made, OpensslContext::create(false));
  SSL_CTX* context = made->get();
  if (SSL_CTX_load_verify_file(context, ca_file.c_str()) != 1)
    return fail(Error::invalid, "TLS CA file {}: {}", ca_file, why());
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return made;
}

}  // namespace offpath::link
