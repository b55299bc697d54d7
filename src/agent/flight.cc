#include "agent/flight.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <iterator>
#include <thread>
#include <utility>

#include "agent/services/dispatcher.h"
#include "agent/span_export.h"
#include "base/log.h"
#include "loop/mailbox.h"
#include "pool/flight/flight_server.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

namespace offpath::agent {

namespace {

constexpr std::size_t calls_max = 256;  // under way to the loop
constexpr auto look = std::chrono::milliseconds(50);
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
  if (static_cast<std::size_t>(got) > bytes_max)
    return fail(Error::too_large, "{} has more than {} bytes", path, bytes_max);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace

Result<std::string> read_token(const std::string& path) {
  OFP_ASSIGN(std::string token, read_file(path, token_bytes_max, true));
  if (token.ends_with('\n')) token.pop_back();
  if (token.size() < token_bytes_min)
    return fail(Error::invalid, "{}: the token has {} characters, at least {} are needed", path, token.size(),
                token_bytes_min);
  for (const char each : token)
    if (each <= ' ' || each > '~')
      return fail(Error::invalid, "{}: a token consists of printable characters without blanks", path);
  return token;
}

class FlightEndpoint::Backend final : public pool::FlightBackend {
 public:
  Backend(loop::Loop& loop, Dispatcher& dispatcher)
      : dispatcher_(dispatcher),
        calls_(loop, calls_max, [](std::function<void(TimeNs)> call, TimeNs now) { call(now); }) {
    loop.add(calls_);
  }
  void close() { closed_ = true; }

  Result<std::vector<std::string>> pools(const Cancelled& cancelled) override {
    return wait_for<std::vector<std::string>>(cancelled, [this](TimeNs, const Tell<std::vector<std::string>>& tell) {
      std::vector<std::string> names;
      for (const auto& pool : dispatcher_.pools().pools())
        if ((pool.user == user_ || user_ == 0) && !pool::is_reserved(pool.name)) names.push_back(pool.name);
      for (const auto& pool : dispatcher_.sifts().pools())
        if (pool.user == user_ || user_ == 0) names.push_back(pool.name);
      tell(std::move(names));
    });
  }
  Result<std::map<std::string, std::string>> addresses(const Cancelled& cancelled) override {
    using Addresses = std::map<std::string, std::string>;
    return wait_for<Addresses>(cancelled, [this](TimeNs, const Tell<Addresses>& tell) {
      Addresses found;
      const auto add = [&found](const group::Identity& id) {
        if (!id.flight.empty()) found.emplace(id.name, id.flight);
      };
      if (const group::Group* const group = dispatcher_.group(); group != nullptr) {
        add(group->membership().self().id);
        for (const auto& [name, member] : group->membership().others()) add(member.id);
      }
      tell(std::move(found));
    });
  }
  Result<std::unique_ptr<pool::FlightCall>> open(Cancelled cancelled) override;

 private:
  class Call;
  template <class T>
  using Tell = std::function<void(Result<T>)>;

  // Runs `call` on the loop, which reports the result at once or later. The result has shared storage, because the
  // caller may be gone by then.
  template <class T>
  Result<T> wait_for(const Cancelled& cancelled, std::function<void(TimeNs, const Tell<T>&)> call) {
    const auto answer = std::make_shared<std::promise<Result<T>>>();
    std::future<Result<T>> future = answer->get_future();
    if (closed_) return fail(Error::closed, "the agent was stopped");
    const Tell<T> tell = [answer](Result<T> result) { answer->set_value(std::move(result)); };
    if (!calls_.post([tell, call = std::move(call)](TimeNs now) { call(now, tell); }))
      return fail(Error::would_block, "{} calls are waiting for the agent's loop, which is the limit", calls_max);
    while (future.wait_for(look) != std::future_status::ready) {
      if (closed_) return fail(Error::closed, "the agent was stopped");
      if (cancelled()) return fail(Error::cancelled, "the client's deadline has passed, or it has disconnected");
    }
    return future.get();
  }

  Dispatcher& dispatcher_;
  uid_t user_ = geteuid();
  std::atomic<bool> closed_ = false;
  loop::Mailbox<std::function<void(TimeNs)>> calls_;
};

// One call, with a channel of its own.
class FlightEndpoint::Backend::Call final : public pool::FlightCall {
  using Item = pool::FrameTable::Item;

 public:
  Call(Backend& backend, Cancelled cancelled, std::uint64_t channel)
      : backend_(backend), cancelled_(std::move(cancelled)), channel_(channel) {}
  ~Call() override {
    // Other calls may fill the mailbox for a moment. Without this order the channel's requests would continue without a
    // receiver.
    while (!backend_.closed_ && !backend_.calls_.post([&dispatcher = backend_.dispatcher_, channel = channel_](
                                                          TimeNs now) { dispatcher.close_own(channel, now); }))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  Result<pool::FlightListing> list(const std::string& pool, const std::string& row_glob,
                                   const std::string& column_glob) override {
    pool::FlightListing listed;
    std::vector<Item>& items = listed.items;
    for (bool more = true; more;) {
      OFP_ASSIGN(service::OwnChannels::Reply page,
                 ask(wire::EntryKind::pool_list,
                     wire::PoolList{pool, row_glob, column_glob, items.empty() ? 0 : items.back().sequence}));
      more = page.more && !page.items.empty();
      listed.view = page.view;
      for (service::OwnChannels::Item& each : page.items)
        items.push_back({each.sequence, each.bytes, each.rows, each.arrow, std::move(each.row), std::move(each.column),
                         std::move(each.member)});
    }
    return listed;
  }
  Status query(const std::string& pool, const std::string& row_glob, const std::string& column_glob,
               const pool::Query& query) override {
    std::vector<std::byte> bytes = encode(query);
    wire::PoolQuery asked{pool, row_glob, column_glob, -1, {}};
    asked.query.length = bytes.size();
    OFP_ASSIGN(const service::OwnChannels::Reply begun, ask(wire::EntryKind::pool_query, asked, std::move(bytes)));
    answer_ = begun.done;
    index_ = 0;
    return {};
  }
  Result<pool::FramePtr> next() override {
    OFP_ASSIGN(service::OwnChannels::Reply reply, ask(wire::EntryKind::query_next, wire::QueryNext{answer_, index_++}));
    return std::move(reply.frame);
  }
  Result<std::uint64_t> drop(const std::string& pool, const std::string& row_glob,
                             const std::string& column_glob) override {
    OFP_ASSIGN(const service::OwnChannels::Reply reply,
               ask(wire::EntryKind::pool_drop, wire::PoolDrop{pool, row_glob, column_glob}));
    return reply.done;
  }
  Status put(const std::string& pool, const std::string& row_key, const std::string& column_key,
             pool::FramePtr frame) override {
    for (const auto* key : {&row_key, &column_key})
      if (key->size() > wire::key_bytes_max)
        return fail(Error::too_large, "a key has {} bytes, at most {} are allowed", key->size(), wire::key_bytes_max);
    return backend_.wait_for<void>(
        cancelled_, [&dispatcher = backend_.dispatcher_, user = backend_.user_, pool, row_key, column_key,
                     frame = std::move(frame)](TimeNs now, const Tell<void>& tell) {
          dispatcher.put({pool, row_key, column_key, user, 0, false}, frame, now, tell);
        });
  }

 private:
  template <class Message>
  Result<service::OwnChannels::Reply> ask(wire::EntryKind kind, const Message& message,
                                          std::vector<std::byte> body = {}) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    return backend_.wait_for<service::OwnChannels::Reply>(
        cancelled_, [&dispatcher = backend_.dispatcher_, channel = channel_, kind, payload = std::move(payload),
                     body = std::move(body)](TimeNs now, const Tell<service::OwnChannels::Reply>& tell) mutable {
          dispatcher.ask_own(channel, kind, payload, std::move(body), now, tell);
        });
  }

  Backend& backend_;
  Cancelled cancelled_;
  std::uint64_t channel_, answer_ = 0, index_ = 0;
};

Result<std::unique_ptr<pool::FlightCall>> FlightEndpoint::Backend::open(Cancelled cancelled) {
  OFP_ASSIGN(const std::uint64_t channel,
             wait_for<std::uint64_t>(
                 cancelled, [this](TimeNs, const Tell<std::uint64_t>& tell) { tell(dispatcher_.open_own(user_)); }));
  return std::make_unique<Call>(*this, std::move(cancelled), channel);
}

FlightEndpoint::FlightEndpoint(link::Address listen, std::unique_ptr<Backend> backend)
    : listen_(std::move(listen)), backend_(std::move(backend)) {}

FlightEndpoint::~FlightEndpoint() {
  backend_->close();
  server_.reset();
}

Result<std::unique_ptr<FlightEndpoint>> FlightEndpoint::start(const FlightSettings& settings, const std::string& agent,
                                                              const DispatcherOptions& options, loop::Loop& loop,
                                                              Dispatcher& dispatcher) {
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
  std::unique_ptr<FlightEndpoint> endpoint(
      new FlightEndpoint(settings.listen, std::make_unique<Backend>(loop, dispatcher)));
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  if (auto receiver = SpanReceiver::from_environment(variable, agent)) {
    endpoint->spans_ = std::make_unique<SpanExport>(std::move(*receiver));
    flight.on_call = [&spans = *endpoint->spans_](pool::FlightSpan span) { spans.add(std::move(span)); };
  } else if (receiver.error().code != Error::not_found) {
    log(LogLevel::warning, "no spans are sent: {}", receiver.error().message);
  }
  OFP_ASSIGN(endpoint->server_,
             pool::FlightServer::start(std::move(flight), *endpoint->backend_, dispatcher.shared_buffers()));
  endpoint->listen_.port = endpoint->server_->port();
  return endpoint;
}

void FlightEndpoint::change_token(std::string token) { server_->change_token(std::move(token)); }

std::string FlightEndpoint::text(const std::string& machine) const {
  const bool is_wildcard = listen_.host == "0.0.0.0" || listen_.host == "::";
  const std::string& host = is_wildcard && !machine.empty() ? machine : listen_.host;
  const bool ipv6 = host.find(':') != std::string::npos;
  return fmt::format("grpc+{}://{}{}{}:{}", listen_.kind == link::Address::Kind::tls ? "tls" : "tcp", ipv6 ? "[" : "",
                     host, ipv6 ? "]" : "", listen_.port);
}

}  // namespace offpath::agent
