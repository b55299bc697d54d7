// Computations: requested from the program's own agent, whose group finds the row.
#include "host/requests/pool.h"
#include "host/send/stream.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

namespace offpath::host {

namespace {

Result<std::unique_ptr<FrameOperation>> compute_operation(const ofp_channel* channel, const char* pool,
                                                          const char* row_key, const char* column_key,
                                                          const char* plugin, const char* function,
                                                          const void* arguments, std::uint64_t arguments_bytes,
                                                          const char* result_row, const char* result_column,
                                                          std::int64_t wait_ns) {
  OFP_TRY(required(channel, "channel"));
  if (arguments_bytes > 0) OFP_TRY(required(arguments, "arguments"));
  OFP_TRY(channel->connection->here());
  wire::PoolCompute asked{};
  asked.stores = result_row != nullptr || result_column != nullptr;
  OFP_ASSIGN(asked.pool, checked_pool(pool));
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
    return fail(Error::too_large, "arguments of {} bytes, at most {} are allowed: put larger data into the row",
                arguments_bytes, wire::arguments_bytes_max);
  asked.arguments = {static_cast<const std::byte*>(arguments), arguments_bytes};
  asked.wait_ns = wait_ns;
  // Without a time of the program's own the plug-in's holds, which is known to the agent only.
  const TimeNs deadline = wait_ns <= 0 ? never : channel->connection->deadline(wait_ns);
  auto made = std::make_unique<FrameOperation>(channel->connection, wire::EntryKind::pool_compute, deadline);
  wire::encode(asked, made->request);
  return made;
}

}  // namespace
}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_pool_compute(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key,
                     const char* plugin, const char* function, const void* arguments, uint64_t arguments_bytes,
                     const char* result_row, const char* result_column, int64_t wait_ns, ofp_frame** frame,
                     ofp_error* error) {
  return guarded(error, [&]() -> Status {
    const bool stores = result_row != nullptr || result_column != nullptr;
    if (!stores) OFP_TRY(required(frame, "frame"));
    if (frame != nullptr) *frame = nullptr;
    OFP_ASSIGN(const auto compute, compute_operation(channel, pool, row_key, column_key, plugin, function, arguments,
                                                     arguments_bytes, result_row, result_column, wait_ns));
    OFP_ASSIGN(auto got, compute->run());
    if (frame != nullptr && got != nullptr) *frame = new ofp_frame{std::move(got)};
    return {};
  });
}

int ofp_pool_compute_start(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key,
                           const char* plugin, const char* function, const void* arguments, uint64_t arguments_bytes,
                           const char* result_row, const char* result_column, int64_t wait_ns, ofp_request** request,
                           ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_ASSIGN(auto compute, compute_operation(channel, pool, row_key, column_key, plugin, function, arguments,
                                               arguments_bytes, result_row, result_column, wait_ns));
    return start_request(channel->connection, std::move(compute), request);
  });
}

}  // extern "C"
