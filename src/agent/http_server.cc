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
#include "agent/status/joined_pages.h"
#include "agent/status/status.h"
#include "agent/status/status_board.h"
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
bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// Takes the text before the next `end`, and `end`.
std::string_view cut(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view before = trimmed(text.substr(0, at));
  text.remove_prefix(std::min(at + 1, text.size()));
  return before;
}

// A client's preference for a media type, by its Accept header (RFC 9110, section 12.5.1): the weight of the most
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

constexpr const char* metrics_type = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* openmetrics_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";

bool wants_openmetrics(const httplib::Request& request) {
  const std::string accept = request.get_header_value("Accept");
  return wanted(accept, "application/openmetrics-text", "1.0.0") > wanted(accept, "text/plain", "0.0.4");
}

void add_page(httplib::Server& server) {
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(status_page.data(), status_page.size(), "text/html; charset=utf-8");
  });
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
  const auto write_status = [](auto text) {
    return [text](const AgentStatus& status, httplib::Response& response) {
      response.set_content(text(status, process_usage()), "application/json");
    };
  };
  const auto whole = with_status(write_status(status_json));
  const auto without_events = with_status(write_status(status_json_without_events));
  server.Get("/status.json", [=](const httplib::Request& request, httplib::Response& response) {
    const bool shown = shows_events && request.get_param_value("events") != "no";
    shown ? whole(request, response) : without_events(request, response);
  });
  server.Get("/schemas.json", with_status([](const AgentStatus& status, httplib::Response& response) {
               response.set_content(schemas_json(status), "application/json");
             }));
  const auto metrics = with_status([](const AgentStatus& status, httplib::Response& response) {
    response.set_content(metrics_text(status, process_usage()), metrics_type);
  });
  const auto openmetrics = with_status([](const AgentStatus& status, httplib::Response& response) {
    response.set_content(openmetrics_text(status, process_usage()), openmetrics_type);
  });
  server.Get("/metrics", [metrics, openmetrics](const httplib::Request& request, httplib::Response& response) {
    wants_openmetrics(request) ? openmetrics(request, response) : metrics(request, response);
  });
  server.Get("/healthz", with_status([](const AgentStatus&, httplib::Response& response) {
               response.set_content("ok\n", "text/plain; charset=utf-8");
             }));
  add_page(server);
}

// ---- pages of several cores

constexpr time_t core_wait_s = 2;

std::optional<std::string> page_of(const CoreEnds::Pages& core, const char* page, const httplib::Headers& headers) {
  httplib::Client client(core.path);
  client.set_address_family(AF_UNIX);
  client.set_connection_timeout(core_wait_s);
  client.set_read_timeout(core_wait_s);
  const httplib::Result answer = client.Get(page, headers);
  if (!answer || answer->status != 200) return std::nullopt;
  return answer->body;
}

// Each is asked on a thread of the server, which the loops do not wait for.
void add_joined_routes(httplib::Server& server, StatusBoard& board, bool shows_events,
                       std::vector<CoreEnds::Pages> others) {
  const auto all = std::make_shared<const std::vector<CoreEnds::Pages>>(std::move(others));
  // This core's own page, written from its status, and those of the others, which are at their own sockets.
  const auto pages = [&board, all](const char* page, const httplib::Headers& headers, auto own) {
    const auto status = board.get();
    std::vector<CorePage> joined{{status ? status->name : std::string(), std::nullopt}};
    if (status) joined.front().text = own(*status);
    for (const CoreEnds::Pages& each : *all) joined.push_back({each.name, page_of(each, page, headers)});
    return joined;
  };
  server.Get("/status.json", [pages, shows_events](const httplib::Request&, httplib::Response& response) {
    const auto text = shows_events ? status_json : status_json_without_events;
    const char* const page = shows_events ? "/status.json" : "/status.json?events=no";
    const auto joined = pages(page, {}, [text](const AgentStatus& of) { return text(of, process_usage()); });
    response.set_content(joined_status(joined), "application/json");
  });
  server.Get("/schemas.json", [pages](const httplib::Request&, httplib::Response& response) {
    response.set_content(joined_list(pages("/schemas.json", {}, schemas_json)), "application/json");
  });
  server.Get("/metrics", [pages](const httplib::Request& request, httplib::Response& response) {
    const bool open = wants_openmetrics(request);
    const auto text = open ? openmetrics_text : metrics_text;
    const auto joined = pages("/metrics", {{"Accept", open ? openmetrics_type : metrics_type}},
                              [text](const AgentStatus& of) { return text(of, process_usage()); });
    response.set_content(joined_metrics(joined), open ? openmetrics_type : metrics_type);
  });
  server.Get("/healthz", [pages](const httplib::Request&, httplib::Response& response) {
    const auto joined = pages("/healthz", {}, [](const AgentStatus&) { return std::string("ok\n"); });
    const bool all_answer = std::ranges::all_of(joined, [](const CorePage& each) { return each.text.has_value(); });
    response.status = all_answer ? 200 : 503;
    response.set_content(all_answer ? "ok\n" : "not all cores of the agent answer\n", "text/plain; charset=utf-8");
  });
  add_page(server);
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

Result<HttpServer> HttpServer::start(Fd listener, Options options, StatusBoard& board) {
  const link::Address& address = options.address;
  const int flags = fcntl(listener.get(), F_GETFL);
  if (flags < 0 || fcntl(listener.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) return fail_errno(errno, "fcntl");
  auto parts = std::make_unique<Parts>();
  if (address.kind == link::Address::Kind::unix_socket && options.removes_file) parts->file.emplace(address.path);
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
  if (!is_own) refuse_unknown_hosts(server, std::move(options.hosts));
  if (options.others.empty())
    add_routes(server, board, is_own || options.shows_events);
  else
    add_joined_routes(server, board, is_own || options.shows_events, std::move(options.others));
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
