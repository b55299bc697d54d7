// /metrics, /status.json, /healthz and the status page, on threads of their own. They touch nothing of the loop but
// the StatusBoard. Read-only: there is no request that changes anything.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/status/status.h"
#include "link/address.h"

namespace offpath::agent {

class HttpServer {
 public:
  // `listener` is bound to `address`. `board` outlives the server. By TCP it answers requests to addresses, to
  // localhost, to this machine's name and to `hosts`: a page of somebody else's whose name is made to mean this machine
  // reads nothing.
  [[nodiscard]] static Result<HttpServer> start(Fd listener, const link::Address& address,
                                                std::vector<std::string> hosts, StatusBoard& board);
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
