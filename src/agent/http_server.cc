#include "agent/http_server.h"

#include <fcntl.h>

#include <cerrno>
#include <optional>
#include <thread>

#include <httplib.h>

#include "agent/socket_file.h"
#include "agent/status_page.h"

namespace offpath::agent {

namespace {

constexpr std::size_t threads = 2;

// Serves on a socket that was made elsewhere: by the rules of link/address.h, Unix sockets included.
class AdoptingServer final : public httplib::Server {
 public:
  void adopt(Fd socket) { svr_sock_ = socket.release(); }
};

void add_routes(httplib::Server& server, StatusBoard& board) {
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
  server.Get("/status.json", with_status([](const AgentStatus& status, httplib::Response& response) {
               response.set_content(status_json(status, process_usage()), "application/json");
             }));
  const auto metrics = with_status([](const AgentStatus& status, httplib::Response& response) {
    response.set_content(metrics_text(status, process_usage()), "text/plain; version=0.0.4; charset=utf-8");
  });
  const auto openmetrics = with_status([](const AgentStatus& status, httplib::Response& response) {
    response.set_content(openmetrics_text(status, process_usage()), "application/openmetrics-text; version=1.0.0; charset=utf-8");
  });
  server.Get("/metrics", [metrics, openmetrics](const httplib::Request& request, httplib::Response& response) {
    const bool open = request.get_header_value("Accept").find("application/openmetrics-text") != std::string::npos;
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
  AdoptingServer server;
  std::thread thread;
  std::optional<SocketFile> file;
};

Result<HttpServer> HttpServer::start(Fd listener, const link::Address& address, StatusBoard& board) {
  const int flags = fcntl(listener.get(), F_GETFL);
  if (flags < 0 || fcntl(listener.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) return fail_errno(errno, "fcntl");
  auto parts = std::make_unique<Parts>();
  if (address.kind == link::Address::Kind::unix_socket) parts->file.emplace(address.path);
  AdoptingServer& server = parts->server;
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
  add_routes(server, board);
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
