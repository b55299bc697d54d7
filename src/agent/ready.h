// Tells the parent process that the agent serves: one line of JSON, and systemd's notification.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "link/address.h"

namespace offpath::agent {

struct ReadyFacts {
  std::string name;
  std::vector<link::Address> addresses;
  std::string http, flight;  // empty: it is not served
  pid_t process = 0;
  std::vector<pid_t> cores{};  // of several cores, the process of each
};

// {"name": …, "address": the first one, "addresses": […], "http": "http://…/" or "unix:…" or null,
//  "flight": "grpc+tls://…" or null, "pid": …}; of several cores also "cores": [{"pid": …}, …]
[[nodiscard]] std::string ready_line(const ReadyFacts& facts);

// Writes to `fd`, which is then closed unless it is standard output.
[[nodiscard]] Status tell_ready(const std::string& line, int fd);

// sd_notify(3), if NOTIFY_SOCKET is set.
void notify_service_manager(const std::string& state);

}  // namespace offpath::agent
