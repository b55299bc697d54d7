// Joins frames into one Arrow IPC stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "pool/table/query_source.h"

namespace offpath::pool {

// Writes schema, every batch in order, and end marker to `fd` at its present position. All objects must have one schema
// (Error::schema names the first that differs) and be Arrow. Returns the bytes written. Blocks: run it in a job. Once
// `cancelled` it ends within a few megabytes, with Error::cancelled.
[[nodiscard]] Result<std::uint64_t> write_stream(const std::vector<QuerySource>& objects, int fd,
                                                 const std::atomic<bool>& cancelled);

}  // namespace offpath::pool
