// The parts of an echo's time: from the client's times, those that the server writes into the message, and the agent's
// trace (tcp/stack/stage_trace.h), all by one clock.
#pragma once

#include <string>

#include "machine.h"
#include "report.h"
#include "tcp_client.h"

namespace offpath::bench {

// `trace_file` is the agent's tcp.trace_file.
[[nodiscard]] Status measure_breakdown(const StreamServer& offloaded, const std::string& trace_file,
                                       const Options& options, Report& report);

}  // namespace offpath::bench
