// Goodput over a bad network (tcp_path.cc): of a connection alone, and of connections of both stacks that share a
// bottleneck.
#pragma once

#include <string_view>

#include "machine.h"
#include "report.h"
#include "tcp_client.h"

namespace offpath::bench {

// One connection in each turn, both ways, over the network described by `over`.
[[nodiscard]] Status measure_goodput(const StreamServer& offloaded, const StreamServer& kernel, std::string_view over,
                                     const Options& options, Report& report);

// Two connections from each server at once.
[[nodiscard]] Status measure_sharing(const StreamServer& offloaded, const StreamServer& kernel, std::string_view over,
                                     const Options& options, Report& report);

}  // namespace offpath::bench
