// Serves /metrics, /status.json, /healthz and the status page, on threads of its own. These use nothing of the loop
// except the StatusBoard. Read-only: no request changes anything.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/cores/core_ends.h"
#include "base/fd.h"
#include "base/status.h"
#include "link/address.h"

namespace offpath::agent {

class StatusBoard;

class HttpServer {
 public:
  struct Options {
    link::Address address;           // that the listener is bound to
    std::vector<std::string> hosts;  // names under which it is reached
    bool shows_events = false;
    bool removes_file = true;                  // of a Unix socket, at the end
    std::vector<CoreEnds::Pages> others = {};  // the agent's other cores, whose pages are joined with the board's
  };
  // `board` outlives the server. Over TCP it answers only requests for IP addresses,
  // localhost, this machine's name and `hosts`, so that a foreign page whose name resolves to this machine reads
  // nothing (DNS rebinding), and shows reasons of failures and lines of the log only with `shows_events`.
  [[nodiscard]] static Result<HttpServer> start(Fd listener, Options options, StatusBoard& board);
  HttpServer(HttpServer&&) noexcept;
  HttpServer& operator=(HttpServer&&) = delete;
  ~HttpServer();  // ends its threads; close the board before

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// "http://127.0.0.1:9477/", or the path of the Unix socket as it was configured.
[[nodiscard]] std::string http_text(const link::Address& address);

}  // namespace offpath::agent
