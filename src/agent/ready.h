// Tells the parent process that the agent serves: one line of JSON, and systemd's notification.
#pragma once

#include <string>

#include "agent/agent.h"

namespace offpath::agent {

// {"name": …, "address": the first one, "addresses": […], "http": "http://…/" or "unix:…" or null,
//  "flight": "grpc+tls://…" or null, "pid": …}
[[nodiscard]] std::string ready_line(const Agent& agent);

// Writes to `fd`, which is then closed unless it is standard output.
[[nodiscard]] Status tell_ready(const std::string& line, int fd);

// sd_notify(3), if NOTIFY_SOCKET is set.
void notify_service_manager(const std::string& state);

}  // namespace offpath::agent
