#include "agent/flight.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <utility>

namespace offpath::agent {

namespace {

constexpr std::size_t calls_max = 256;  // on their way to the loop
constexpr auto look = std::chrono::milliseconds(50);
constexpr int looks_max = 200;
constexpr std::size_t token_bytes_min = 16, token_bytes_max = 1024;
constexpr std::size_t pem_bytes_max = 1 << 20;

Result<std::string> read_file(const std::string& path, std::size_t bytes_max, bool secret) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, fmt::format("open {}", path));
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "fstat");
  if (secret && (status.st_mode & 077) != 0)
    return fail(Error::denied, "{} may be read by others (mode {:o}): chmod 600", path, status.st_mode & 0777);
  std::string text(bytes_max + 1, '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  if (got < 0) return fail_errno(errno, fmt::format("read {}", path));
  if (static_cast<std::size_t>(got) > bytes_max) return fail(Error::too_large, "{} has more than {} bytes", path, bytes_max);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

Result<std::string> read_token(const std::string& path) {
  OFP_ASSIGN(std::string token, read_file(path, token_bytes_max, true));
  if (token.ends_with('\n')) token.pop_back();
  if (token.size() < token_bytes_min)
    return fail(Error::invalid, "{}: the token has {} characters, {} are needed at least", path, token.size(), token_bytes_min);
  for (const char each : token)
    if (each <= ' ' || each > '~') return fail(Error::invalid, "{}: a token is of printable characters without blanks", path);
  return token;
}

}  // namespace

class FlightEndpoint::Backend final : public pool::FlightBackend {
 public:
  Backend(loop::Loop& loop, Dispatcher& dispatcher)
      : dispatcher_(dispatcher),
        calls_(loop, calls_max, [](std::function<void(TimeNs)> call, TimeNs now) { call(now); }) {
    loop.add(calls_);
  }
  void close() { closed_ = true; }

  Result<std::vector<std::string>> pools() override {
    return ask<std::vector<std::string>>([this](TimeNs) -> Result<std::vector<std::string>> {
      std::vector<std::string> names;
      for (const auto& pool : dispatcher_.pools().pools())
        if (pool.user == user_ || user_ == 0) names.push_back(pool.name);
      return names;
    });
  }
  Result<std::vector<pool::QuerySource>> choose(const std::string& pool, const std::string& row_glob,
                                                const std::string& column_glob) override {
    return ask<std::vector<pool::QuerySource>>(
        [this, pool, row_glob, column_glob](TimeNs) { return dispatcher_.choose(pool, row_glob, column_glob, user_); });
  }
  Status put(const std::string& pool, const std::string& row_key, const std::string& column_key, pool::FramePtr frame) override {
    for (const auto* key : {&pool, &row_key, &column_key})
      if (key->size() > wire::key_bytes_max)
        return fail(Error::too_large, "a key has {} bytes, at most {} are allowed", key->size(), wire::key_bytes_max);
    return wait_for<void>([this, pool, row_key, column_key, frame = std::move(frame)](TimeNs now, const Tell<void>& tell) {
      dispatcher_.put({pool, row_key, column_key, user_, 0, false}, frame, now, tell);
    });
  }
  Result<std::uint64_t> drop(const std::string& pool, const std::string& row_glob, const std::string& column_glob) override {
    return ask<std::uint64_t>(
        [this, pool, row_glob, column_glob](TimeNs) { return dispatcher_.drop(pool, row_glob, column_glob, user_); });
  }

 private:
  template <class T>
  using Tell = std::function<void(Result<T>)>;

  template <class T>
  Result<T> ask(std::function<Result<T>(TimeNs)> call) {
    return wait_for<T>([call = std::move(call)](TimeNs now, const Tell<T>& tell) { tell(call(now)); });
  }

  // Runs `call` on the loop, which tells the result, there and then or later. It has a place of its own, for the caller may be
  // gone by then.
  template <class T>
  Result<T> wait_for(std::function<void(TimeNs, const Tell<T>&)> call) {
    const auto answer = std::make_shared<std::promise<Result<T>>>();
    std::future<Result<T>> future = answer->get_future();
    if (closed_) return fail(Error::closed, "the agent was stopped");
    const Tell<T> tell = [answer](Result<T> result) { answer->set_value(std::move(result)); };
    if (!calls_.post([tell, call = std::move(call)](TimeNs now) { call(now, tell); }))
      return fail(Error::would_block, "{} calls are waiting for the agent's loop, which is the limit", calls_max);
    for (int looks = 0; looks < looks_max; ++looks) {
      if (future.wait_for(look) == std::future_status::ready) return future.get();
      if (closed_) return fail(Error::closed, "the agent was stopped");
    }
    return fail(Error::timeout, "the agent's loop did not answer in time");
  }

  Dispatcher& dispatcher_;
  uid_t user_ = geteuid();
  std::atomic<bool> closed_ = false;
  loop::Mailbox<std::function<void(TimeNs)>> calls_;
};

FlightEndpoint::FlightEndpoint(link::Address listen, std::unique_ptr<Backend> backend)
    : listen_(std::move(listen)), backend_(std::move(backend)) {}

FlightEndpoint::~FlightEndpoint() {
  backend_->close();
  server_.reset();
}

Result<std::unique_ptr<FlightEndpoint>> FlightEndpoint::start(const FlightSettings& settings, const DispatcherOptions& options,
                                                              loop::Loop& loop, Dispatcher& dispatcher) {
  pool::FlightOptions flight;
  flight.host = settings.listen.host;
  flight.port = settings.listen.port;
  OFP_ASSIGN(flight.token, read_token(settings.token_file));
  if (settings.listen.kind == link::Address::Kind::tls) {
    OFP_ASSIGN(flight.certificate, read_file(settings.tls_certificate_file, pem_bytes_max, false));
    OFP_ASSIGN(flight.key, read_file(settings.tls_key_file, pem_bytes_max, true));
  }
  flight.memory_bytes_max = options.mover.memory_bytes_max;
  flight.user = geteuid();
  flight.queries_max = settings.queries_max;
  flight.query = options.queries.query;
  std::unique_ptr<FlightEndpoint> endpoint(
      new FlightEndpoint(settings.listen, std::make_unique<Backend>(loop, dispatcher)));
  OFP_ASSIGN(endpoint->server_, pool::FlightServer::start(std::move(flight), *endpoint->backend_, dispatcher.shared_buffers()));
  endpoint->listen_.port = endpoint->server_->port();
  return endpoint;
}

std::string FlightEndpoint::text() const {
  const bool ipv6 = listen_.host.find(':') != std::string::npos;
  return fmt::format("grpc+{}://{}{}{}:{}", listen_.kind == link::Address::Kind::tls ? "tls" : "tcp", ipv6 ? "[" : "", listen_.host,
                     ipv6 ? "]" : "", listen_.port);
}

}  // namespace offpath::agent
