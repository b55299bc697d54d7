// Computations: asked of the program's own agent, whose group finds the row.
#include "host/frame.h"
#include "host/pool.h"
#include "host/stream.h"

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_pool_compute(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key, const char* plugin,
                     const char* function, const void* arguments, uint64_t arguments_bytes, const char* result_row,
                     const char* result_column, int64_t wait_ns, ofp_frame** frame, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    if (arguments_bytes > 0) OFP_TRY(required(arguments, "arguments"));
    wire::PoolCompute asked{};
    asked.stores = result_row != nullptr || result_column != nullptr;
    if (!asked.stores) OFP_TRY(required(frame, "frame"));
    if (frame != nullptr) *frame = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(asked.pool, checked_key(pool, "the pool's name", wire::pool_bytes_max));
    if (asked.pool.empty()) return fail(Error::invalid, "no pool given; its name is like local:/particles");
    OFP_ASSIGN(asked.row_key, checked_key(row_key, "the row key"));
    OFP_ASSIGN(asked.column_key, checked_key(column_key, "the column key"));
    OFP_ASSIGN(asked.plugin, checked_key(plugin, "the plug-in's name", wire::name_bytes_max));
    OFP_ASSIGN(asked.function, checked_key(function, "the function's name", wire::name_bytes_max));
    asked.result_row = asked.row_key;
    if (result_row != nullptr) {
      OFP_ASSIGN(asked.result_row, checked_key(result_row, "the result's row key"));
    }
    OFP_ASSIGN(asked.result_column, checked_key(result_column, "the result's column key"));
    if (arguments_bytes > wire::arguments_bytes_max)
      return fail(Error::too_large, "arguments of {} bytes, at most {} are allowed: put what is larger into the row", arguments_bytes,
                  wire::arguments_bytes_max);
    asked.arguments = {static_cast<const std::byte*>(arguments), arguments_bytes};
    asked.wait_ns = wait_ns;
    // Without a time of the program's own the plug-in's holds, which is known to the agent only.
    const TimeNs deadline = wait_ns <= 0 ? never : deadline_after(channel->connection->end.now(), wait_ns);
    std::vector<std::byte> request;
    wire::encode(asked, request);
    OFP_ASSIGN(auto got, PoolFrame::fetch(channel->connection, wire::EntryKind::pool_compute, request, deadline));
    if (frame != nullptr && got != nullptr) *frame = new ofp_frame{std::move(got)};
    return {};
  });
}

}  // extern "C"
