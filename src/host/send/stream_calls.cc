// The calls of offpath.h about streams.
#include "frame/c_data.h"
#include "host/send/stream.h"
#include "wire/limits.h"

using namespace offpath;
using namespace offpath::host;

namespace {

Status open(ofp_channel* channel, const char* name, Result<frame::Schema> schema,
            std::span<const std::uint32_t> strides, const ofp_stream_options* options, ofp_stream** stream) {
  OFP_TRY(required(stream, "stream"));
  *stream = nullptr;
  OFP_TRY(required(channel, "channel"));
  OFP_TRY(channel->connection->here());
  OFP_ASSIGN(const std::string_view checked, checked_key(name, "the stream's name", wire::name_bytes_max));
  if (!schema) return tl::unexpected(std::move(schema).error());
  OFP_ASSIGN(auto opened, Stream::open(channel->connection, checked, std::move(*schema), strides, options));
  *stream = new ofp_stream{std::move(opened)};
  return {};
}

int wait(ofp_stream* stream, uint64_t ticket, int64_t wait_ns, ofp_error* error,
         Status (Stream::*wait_for)(uint64_t, int64_t)) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(stream, "stream"));
    return (*stream->stream.*wait_for)(ticket, wait_ns);
  });
}

thread_local std::int64_t send_wait_ns = OFP_FOREVER;

Result<SendRequest> request_of(const ofp_stream* stream, std::uint64_t rows, const char* row_key,
                               const char* column_key, std::uint32_t flags) {
  OFP_ASSIGN(const std::string_view row, checked_key(row_key, "the row key"));
  OFP_ASSIGN(const std::string_view column, checked_key(column_key, "the column key"));
  constexpr std::uint32_t known = OFP_SEND_WAIT | OFP_SEND_SNAPSHOT | OFP_SEND_ANNOUNCE;
  if ((flags & ~known) != 0) [[unlikely]]
    return fail(Error::invalid, "flags {:#x}; known are {:#x}", flags, known);
  TimeNs deadline = 0;
  if ((flags & OFP_SEND_WAIT) != 0)
    deadline = send_wait_ns < 0 ? never : stream->stream->connection().deadline(send_wait_ns);
  return SendRequest{rows, row, column, flags, deadline};
}

Status send_columns(ofp_stream* stream, const void* const* data, const uint32_t* stride_bytes, std::uint64_t rows,
                    const char* row_key, const char* column_key, uint32_t flags, uint64_t* ticket) {
  OFP_TRY(required(stream, "stream"));
  OFP_TRY(required(data, "data"));
  OFP_ASSIGN(const SendRequest request, request_of(stream, rows, row_key, column_key, flags));
  const std::span strides(stride_bytes, stride_bytes != nullptr ? stream->stream->columns() : 0);
  OFP_ASSIGN(const std::uint64_t posted, stream->stream->send_columns(data, strides, request));
  if (ticket != nullptr) *ticket = posted;
  return {};
}

}  // namespace

extern "C" {

int ofp_stream_open_columns(ofp_channel* channel, const char* name, const ofp_column* columns, uint32_t columns_count,
                            const ofp_stream_options* options, ofp_stream** stream, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    auto schema = schema_of_columns(columns, columns_count);
    std::vector<std::uint32_t> strides;
    for (std::uint32_t i = 0; schema && i < columns_count; ++i) strides.push_back(columns[i].stride_bytes);
    return open(channel, name, std::move(schema), strides, options, stream);
  });
}

int ofp_stream_open(ofp_channel* channel, const char* name, const struct ArrowSchema* schema,
                    const ofp_stream_options* options, ofp_stream** stream, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    return open(channel, name, schema != nullptr ? frame::import_schema(*schema) : frame::Schema{}, {}, options,
                stream);
  });
}

int ofp_stream_grow(ofp_stream* stream, uint64_t rows_max, int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(stream, "stream"));
    return stream->stream->grow(rows_max, wait_ns);
  });
}

int ofp_stream_close(ofp_stream* stream, int64_t wait_ns, ofp_error* error) {
  const std::unique_ptr<ofp_stream> owned(stream);
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(stream, "stream"));
    return stream->stream->close(wait_ns);
  });
}

int ofp_send_columns(ofp_stream* stream, const void* const* data, uint64_t rows, const char* row_key,
                     const char* column_key, uint32_t flags, uint64_t* ticket, ofp_error* error) {
  return guarded(error, [&] { return send_columns(stream, data, nullptr, rows, row_key, column_key, flags, ticket); });
}

int ofp_send_strided(ofp_stream* stream, const void* const* data, const uint32_t* stride_bytes, uint64_t rows,
                     const char* row_key, const char* column_key, uint32_t flags, uint64_t* ticket, ofp_error* error) {
  return guarded(error,
                 [&] { return send_columns(stream, data, stride_bytes, rows, row_key, column_key, flags, ticket); });
}

int ofp_send(ofp_stream* stream, const struct ArrowArray* batch, const char* row_key, const char* column_key,
             uint32_t flags, uint64_t* ticket, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(stream, "stream"));
    OFP_TRY(required(batch, "batch"));
    OFP_ASSIGN(const SendRequest request, request_of(stream, 0, row_key, column_key, flags));
    OFP_ASSIGN(const std::uint64_t posted, stream->stream->send_batch(*batch, request));
    if (ticket != nullptr) *ticket = posted;
    return {};
  });
}

int ofp_move(ofp_stream* stream, const ofp_piece* pieces, uint32_t pieces_count, uint64_t object_bytes,
             const char* row_key, const char* column_key, uint32_t mode, uint32_t flags, uint64_t* ticket,
             ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(stream, "stream"));
    if (pieces_count > 0) OFP_TRY(required(pieces, "pieces"));
    OFP_ASSIGN(const SendRequest keys, request_of(stream, 0, row_key, column_key, flags));
    if (mode != OFP_MOVE_CREATE && mode != OFP_MOVE_UPDATE)
      return fail(Error::invalid, "mode {}; there are OFP_MOVE_CREATE (0) and OFP_MOVE_UPDATE (1)", mode);
    OFP_ASSIGN(const std::uint64_t posted, stream->stream->move({{pieces, pieces_count},
                                                                 object_bytes,
                                                                 keys.row_key,
                                                                 keys.column_key,
                                                                 mode == OFP_MOVE_UPDATE,
                                                                 flags,
                                                                 keys.deadline}));
    if (ticket != nullptr) *ticket = posted;
    return {};
  });
}

void ofp_send_wait(int64_t wait_ns) { send_wait_ns = wait_ns; }

int ofp_step_end(ofp_stream* stream, const char* row_key, uint64_t* ticket, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(stream, "stream"));
    OFP_ASSIGN(const std::string_view row, checked_key(row_key, "the row key"));
    OFP_ASSIGN(const std::uint64_t posted, stream->stream->step_end(row));
    if (ticket != nullptr) *ticket = posted;
    return {};
  });
}

int ofp_wait_pulled(ofp_stream* stream, uint64_t ticket, int64_t wait_ns, ofp_error* error) {
  return wait(stream, ticket, wait_ns, error, &Stream::wait_pulled);
}

int ofp_wait_stored(ofp_stream* stream, uint64_t ticket, int64_t wait_ns, ofp_error* error) {
  return wait(stream, ticket, wait_ns, error, &Stream::wait_stored);
}

uint64_t ofp_pulled(const ofp_stream* stream) { return stream != nullptr ? stream->stream->pulled() : 0; }

uint64_t ofp_stored(const ofp_stream* stream) { return stream != nullptr ? stream->stream->stored() : 0; }

uint64_t ofp_credit_bytes(const ofp_stream* stream) {
  return stream != nullptr && stream->stream->connection().here() ? stream->stream->credit_bytes() : 0;
}

int ofp_arm(ofp_stream* stream, uint64_t ticket, int stored, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(stream, "stream"));
    Connection& connection = stream->stream->connection();
    OFP_TRY(connection.here());
    return connection.end.arm(stream->stream->number(), ticket,
                              stored != 0 ? channel::Progress::stored : channel::Progress::pulled);
  });
}

}  // extern "C"
