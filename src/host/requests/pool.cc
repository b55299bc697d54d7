#include "host/requests/pool.h"

#include "host/requests/frame.h"
#include "host/send/stream.h"
#include "wire/limits.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::host {

ListOperation::ListOperation(std::string_view pool, std::string_view row_glob, std::string_view column_glob,
                             TimeNs deadline)
    : pool_(pool), row_glob_(row_glob), column_glob_(column_glob) {
  patience = deadline;
}

Result<wire::EntryKind> ListOperation::compose(std::vector<std::byte>& payload) {
  wire::encode(wire::PoolList{pool_, row_glob_, column_glob_, after_}, payload);
  return wire::EntryKind::pool_list;
}

Result<bool> ListOperation::take(const channel::Reply& reply) {
  if (reply.kind != wire::ReplyKind::listed)
    return fail(Error::protocol, "the agent answered a list with reply kind {}", static_cast<int>(reply.kind));
  wire::Listed listed{};
  OFP_TRY(wire::decode(reply.payload, listed));
  for (const wire::ListedEntry& entry : listed.entries) {
    if (entry.sequence <= after_)
      return fail(Error::protocol, "the agent lists object {} after object {}", entry.sequence, after_);
    after_ = entry.sequence;
    entries.push_back({std::string(entry.row_key), std::string(entry.column_key), entry.bytes, entry.rows,
                       entry.sequence, entry.arrow, std::string(entry.member)});
  }
  view = listed.view;
  return !listed.more || listed.entries.empty();
}

DropOperation::DropOperation(std::string_view pool, std::string_view row_glob, std::string_view column_glob,
                             TimeNs deadline) {
  patience = deadline;
  wire::encode(wire::PoolDrop{pool, row_glob, column_glob}, request_);
}

Result<wire::EntryKind> DropOperation::compose(std::vector<std::byte>& payload) {
  payload = request_;
  return wire::EntryKind::pool_drop;
}

Result<bool> DropOperation::take(const channel::Reply& reply) {
  OFP_ASSIGN(dropped, done_of(reply, "drop"));
  return true;
}

Result<std::uint64_t> done_of(const channel::Reply& reply, const char* what) {
  wire::Done done{};
  if (reply.kind != wire::ReplyKind::done)
    return fail(Error::protocol, "the agent answered a {} with reply kind {}", what, static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, done));
  return done.value;
}

Result<std::string_view> checked_pool(const char* pool) {
  OFP_ASSIGN(const std::string_view name, checked_key(pool, "the pool's name", wire::pool_bytes_max));
  if (name.empty()) return fail(Error::invalid, "no pool given; its name is like local:/particles");
  return name;
}

Result<Globs> checked_globs(const char* pool, const char* row_glob, const char* column_glob) {
  Globs globs;
  OFP_ASSIGN(globs.pool, checked_pool(pool));
  OFP_ASSIGN(globs.row, checked_key(row_glob, "the row pattern", wire::pattern_bytes_max));
  OFP_ASSIGN(globs.column, checked_key(column_glob, "the column pattern", wire::pattern_bytes_max));
  if (globs.row.empty()) globs.row = "*";
  if (globs.column.empty()) globs.column = "*";
  return globs;
}

Result<std::unique_ptr<FrameOperation>> get_operation(const ofp_channel* channel, const char* pool, const char* row_key,
                                                      const char* column_key, std::int64_t wait_ns) {
  OFP_TRY(required(channel, "channel"));
  OFP_TRY(channel->connection->here());
  OFP_ASSIGN(const std::string_view name, checked_pool(pool));
  OFP_ASSIGN(const std::string_view row, checked_key(row_key, "the row key"));
  OFP_ASSIGN(const std::string_view column, checked_key(column_key, "the column key"));
  return FrameOperation::get(channel->connection, name, row, column, wait_ns);
}

namespace {

// A list or a drop.
template <class Made>
Result<std::unique_ptr<Made>> operation_of(const ofp_channel* channel, const char* pool, const char* row_glob,
                                           const char* column_glob, std::int64_t wait_ns) {
  OFP_TRY(required(channel, "channel"));
  OFP_TRY(channel->connection->here());
  OFP_ASSIGN(const Globs globs, checked_globs(pool, row_glob, column_glob));
  return std::make_unique<Made>(globs.pool, globs.row, globs.column, channel->connection->deadline(wait_ns));
}

}  // namespace
}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_pool_get(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key, int64_t wait_ns,
                 ofp_frame** frame, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(frame, "frame"));
    *frame = nullptr;
    OFP_ASSIGN(const auto get, get_operation(channel, pool, row_key, column_key, wait_ns));
    OFP_ASSIGN(auto got, get->run());
    *frame = new ofp_frame{std::move(got)};
    return {};
  });
}

int ofp_pool_want(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key, int64_t wait_ns,
                  ofp_request** request, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_ASSIGN(auto get, get_operation(channel, pool, row_key, column_key, wait_ns));
    return start_request(channel->connection, std::move(get), request);
  });
}

int ofp_pool_list(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                  int64_t wait_ns, ofp_listing** listing, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(listing, "listing"));
    *listing = nullptr;
    OFP_ASSIGN(const auto list, operation_of<ListOperation>(channel, pool, row_glob, column_glob, wait_ns));
    OFP_TRY(run(channel->connection->end, *list));
    *listing = new ofp_listing{std::move(list->entries), list->view};
    return {};
  });
}

int ofp_pool_list_start(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                        int64_t wait_ns, ofp_request** request, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_ASSIGN(auto list, operation_of<ListOperation>(channel, pool, row_glob, column_glob, wait_ns));
    return start_request(channel->connection, std::move(list), request);
  });
}

uint64_t ofp_listing_count(const ofp_listing* listing) { return listing != nullptr ? listing->entries.size() : 0; }

int ofp_listing_entry(const ofp_listing* listing, uint64_t index, ofp_entry* entry) {
  if (listing == nullptr || entry == nullptr || index >= listing->entries.size()) return OFP_INVALID;
  const PoolEntry& from = listing->entries[index];
  *entry = {from.row_key.c_str(), from.column_key.c_str(), from.bytes, from.rows, from.sequence, from.arrow ? 1 : 0};
  return OFP_OK;
}

const char* ofp_listing_member(const ofp_listing* listing, uint64_t index) {
  return listing != nullptr && index < listing->entries.size() ? listing->entries[index].member.c_str() : nullptr;
}

uint64_t ofp_listing_view(const ofp_listing* listing) { return listing != nullptr ? listing->view : 0; }

void ofp_listing_free(ofp_listing* listing) { delete listing; }

int ofp_pool_drop(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                  int64_t wait_ns, uint64_t* dropped, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_ASSIGN(const auto drop, operation_of<DropOperation>(channel, pool, row_glob, column_glob, wait_ns));
    OFP_TRY(run(channel->connection->end, *drop));
    if (dropped != nullptr) *dropped = drop->dropped;
    return {};
  });
}

int ofp_pool_drop_start(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                        int64_t wait_ns, ofp_request** request, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_ASSIGN(auto drop, operation_of<DropOperation>(channel, pool, row_glob, column_glob, wait_ns));
    return start_request(channel->connection, std::move(drop), request);
  });
}

int ofp_pool_write(ofp_channel* channel, const char* pool, int fd, int64_t wait_ns, uint64_t* written_bytes,
                   ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const Globs globs, checked_globs(pool, nullptr, nullptr));
    OFP_ASSIGN(const std::uint64_t written,
               write_pool(channel->connection, globs.pool, fd, channel->connection->deadline(wait_ns)));
    if (written_bytes != nullptr) *written_bytes = written;
    return {};
  });
}

}  // extern "C"
