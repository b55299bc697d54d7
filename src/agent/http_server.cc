#include "agent/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>

#include <httplib.h>

#include "agent/socket_file.h"
#include "agent/status/status_page.h"
#include "base/text.h"

namespace offpath::agent {

namespace {

constexpr std::size_t threads = 2;

// The host name in a Host header, without its port.
std::string_view host_of(std::string_view header) {
  if (header.starts_with('[')) return header.substr(1, std::min(header.find(']'), header.size()) - 1);
  return header.substr(0, header.find(':'));
}

bool is_address(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

void refuse_unknown_hosts(httplib::Server& server, std::vector<std::string> hosts) {
  char own[256] = "";
  (void)gethostname(own, sizeof own - 1);
  hosts.insert(hosts.end(), {"localhost", own});
  server.set_pre_routing_handler(
      [hosts = std::move(hosts)](const httplib::Request& request, httplib::Response& response) {
        const std::string host(host_of(request.get_header_value("Host")));
        const auto is_host = [&](const std::string& name) { return strcasecmp(name.c_str(), host.c_str()) == 0; };
        if (host.empty() || is_address(host) || std::ranges::any_of(hosts, is_host))
          return httplib::Server::HandlerResponse::Unhandled;
        response.status = 403;
        response.set_content("this agent does not serve that host name; add it to agent.http_hosts\n",
                             "text/plain; charset=utf-8");
        return httplib::Server::HandlerResponse::Handled;
      });
}

// Without the reasons of failures and the lines of the log, which can hold names and paths of other users.
AgentStatus without_events(const AgentStatus& status) {
  AgentStatus shown = status;
  for (service::FailedRequest& each : shown.failures) each.why.message.clear();
  shown.lines.clear();
  shown.shows_events = false;
  return shown;
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// What comes before the next `end`, which is removed as well.
std::string_view cut(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view before = trimmed(text.substr(0, at));
  text.remove_prefix(std::min(at + 1, text.size()));
  return before;
}

// How much a client wants a media type, by its Accept header (RFC 9110, section 12.5.1): the weight of the most
// specific range that has this type. Of the parameters the version counts; others do not change the format.
double wanted(std::string_view accept, std::string_view type, std::string_view version) {
  const std::string family = std::string(type.substr(0, type.find('/'))) + "/*";
  double weight = accept.empty() ? 1 : 0;
  for (int best = -1; !accept.empty();) {
    std::string_view parameters = cut(accept, ',');
    const std::string_view range = cut(parameters, ';');
    int specific = same(range, type) ? 2 : same(range, family) ? 1 : range == "*/*" ? 0 : -1;
    double own = 1;
    while (!parameters.empty()) {
      std::string_view value = cut(parameters, ';');
      const std::string_view name = cut(value, '=');
      if (same(name, "q")) own = number_of<double>(value).value_or(0);
      if (same(name, "version")) specific = specific >= 0 && value == version ? specific + 1 : -1;
    }
    if (specific > best) weight = own;
    best = std::max(best, specific);
  }
  return weight;
}

void add_routes(httplib::Server& server, StatusBoard& board, bool shows_events) {
  const auto with_status = [&board](auto write) {
    return [&board, write](const httplib::Request&, httplib::Response& response) {
      if (const auto status = board.get()) {
        write(*status, response);
      } else {
        response.status = 503;
        response.set_content("the agent's loop did not answer within a second\n", "text/plain; charset=utf-8");
      }
    };
  };
  server.Get("/status.json", with_status([shows_events](const AgentStatus& status, httplib::Response& response) {
               response.set_content(status_json(shows_events ? status : without_events(status), process_usage()),
                                    "application/json");
             }));
  server.Get("/schemas.json", with_status([](const AgentStatus& status, httplib::Response& response) {
               response.set_content(schemas_json(status), "application/json");
             }));
  const auto metrics = with_status([](const AgentStatus& status, httplib::Response& response) {
    response.set_content(metrics_text(status, process_usage()), "text/plain; version=0.0.4; charset=utf-8");
  });
  const auto openmetrics = with_status([](const AgentStatus& status, httplib::Response& response) {
    response.set_content(openmetrics_text(status, process_usage()),
                         "application/openmetrics-text; version=1.0.0; charset=utf-8");
  });
  server.Get("/metrics", [metrics, openmetrics](const httplib::Request& request, httplib::Response& response) {
    const std::string accept = request.get_header_value("Accept");
    const bool open = wanted(accept, "application/openmetrics-text", "1.0.0") > wanted(accept, "text/plain", "0.0.4");
    open ? openmetrics(request, response) : metrics(request, response);
  });
  server.Get("/healthz", with_status([](const AgentStatus&, httplib::Response& response) {
               response.set_content("ok\n", "text/plain; charset=utf-8");
             }));
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(status_page.data(), status_page.size(), "text/html; charset=utf-8");
  });
}

}  // namespace

struct HttpServer::Parts {
  // Serves on a socket that was made elsewhere, by the rules of link/address.h, including Unix sockets.
  struct Server final : httplib::Server {
    void adopt(Fd socket) { svr_sock_ = socket.release(); }
  };

  Server server;
  std::thread thread;
  std::optional<SocketFile> file;
};

Result<HttpServer> HttpServer::start(Fd listener, const link::Address& address, std::vector<std::string> hosts,
                                     bool shows_events, StatusBoard& board) {
  const int flags = fcntl(listener.get(), F_GETFL);
  if (flags < 0 || fcntl(listener.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) return fail_errno(errno, "fcntl");
  auto parts = std::make_unique<Parts>();
  if (address.kind == link::Address::Kind::unix_socket) parts->file.emplace(address.path);
  Parts::Server& server = parts->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(threads); };
  server.set_keep_alive_max_count(1);  // a page that is left open occupies no thread
  server.set_read_timeout(2);
  server.set_write_timeout(2);
  server.set_payload_max_length(4096);
  server.set_default_headers({{"Cache-Control", "no-store"},
                              {"X-Content-Type-Options", "nosniff"},
                              {"Content-Security-Policy",
                               "default-src 'self'; style-src 'unsafe-inline'; "
                               "script-src 'unsafe-inline'"}});
  const bool is_own = address.kind == link::Address::Kind::unix_socket;  // of the agent's user alone
  if (!is_own) refuse_unknown_hosts(server, std::move(hosts));
  add_routes(server, board, is_own || shows_events);
  server.adopt(std::move(listener));
  parts->thread = std::thread([&server] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::yield();  // before that, stop() would have no effect
  return HttpServer(std::move(parts));
}

HttpServer::HttpServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
HttpServer::HttpServer(HttpServer&&) noexcept = default;

HttpServer::~HttpServer() {
  if (!parts_) return;
  parts_->server.stop();
  parts_->thread.join();
}

std::string http_text(const link::Address& address) {
  if (address.kind == link::Address::Kind::unix_socket) return address.text();
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}/", ipv6 ? "[" : "", address.host, ipv6 ? "]" : "", address.port);
}

}  // namespace offpath::agent
