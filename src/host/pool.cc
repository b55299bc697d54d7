#include "host/pool.h"

#include "host/frame.h"
#include "host/stream.h"

namespace offpath::host {

Result<std::vector<PoolEntry>> list_pool(Connection& connection, std::string_view pool, std::string_view row_glob,
                                         std::string_view column_glob, TimeNs deadline) {
  std::vector<PoolEntry> entries;
  wire::Listed listed{};
  std::uint64_t after = 0;
  do {
    std::vector<std::byte> payload;
    wire::encode(wire::PoolList{pool, row_glob, column_glob, after}, payload);
    OFP_ASSIGN(const channel::Reply reply, connection.end.call(wire::EntryKind::pool_list, payload, deadline));
    if (reply.kind != wire::ReplyKind::listed)
      return fail(Error::protocol, "the agent answered a list with reply kind {}", static_cast<int>(reply.kind));
    OFP_TRY(wire::decode(reply.payload, listed));
    for (const wire::ListedEntry& entry : listed.entries) {
      if (entry.sequence <= after)
        return fail(Error::protocol, "the agent lists object {} after object {}", entry.sequence, after);
      after = entry.sequence;
      entries.push_back({std::string(entry.row_key), std::string(entry.column_key), entry.bytes, entry.rows, entry.sequence});
    }
  } while (listed.more && !listed.entries.empty());
  return entries;
}

namespace {

Result<std::uint64_t> done_of(const Result<channel::Reply>& reply, const char* what) {
  if (!reply) return tl::unexpected(reply.error());
  wire::Done done{};
  if (reply->kind != wire::ReplyKind::done)
    return fail(Error::protocol, "the agent answered a {} with reply kind {}", what, static_cast<int>(reply->kind));
  OFP_TRY(wire::decode(reply->payload, done));
  return done.value;
}

}  // namespace

Result<Globs> checked_globs(const char* pool, const char* row_glob, const char* column_glob) {
  Globs globs;
  OFP_ASSIGN(globs.pool, checked_key(pool, "the pool's name", wire::pool_bytes_max));
  if (globs.pool.empty()) return fail(Error::invalid, "no pool given; its name is like local:/particles");
  OFP_ASSIGN(globs.row, checked_key(row_glob, "the row pattern", wire::pattern_bytes_max));
  OFP_ASSIGN(globs.column, checked_key(column_glob, "the column pattern", wire::pattern_bytes_max));
  if (globs.row.empty()) globs.row = "*";
  if (globs.column.empty()) globs.column = "*";
  return globs;
}

Result<std::uint64_t> drop_from_pool(Connection& connection, std::string_view pool, std::string_view row_glob,
                                     std::string_view column_glob, TimeNs deadline) {
  std::vector<std::byte> payload;
  wire::encode(wire::PoolDrop{pool, row_glob, column_glob}, payload);
  return done_of(connection.end.call(wire::EntryKind::pool_drop, payload, deadline), "drop");
}

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_pool_get(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key, int64_t wait_ns,
                 ofp_frame** frame, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(frame, "frame"));
    *frame = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const std::string_view name, checked_key(pool, "the pool's name", wire::pool_bytes_max));
    if (name.empty()) return fail(Error::invalid, "no pool given; its name is like local:/particles");
    OFP_ASSIGN(const std::string_view row, checked_key(row_key, "the row key"));
    OFP_ASSIGN(const std::string_view column, checked_key(column_key, "the column key"));
    OFP_ASSIGN(auto got, PoolFrame::get(channel->connection, name, row, column, wait_ns));
    *frame = new ofp_frame{std::move(got)};
    return {};
  });
}

int ofp_pool_list(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob, int64_t wait_ns,
                  ofp_listing** listing, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(listing, "listing"));
    *listing = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const Globs globs, checked_globs(pool, row_glob, column_glob));
    OFP_ASSIGN(auto entries, list_pool(*channel->connection, globs.pool, globs.row, globs.column,
                                       channel->connection->deadline(wait_ns)));
    *listing = new ofp_listing{std::move(entries)};
    return {};
  });
}

uint64_t ofp_listing_count(const ofp_listing* listing) { return listing != nullptr ? listing->entries.size() : 0; }

int ofp_listing_entry(const ofp_listing* listing, uint64_t index, ofp_entry* entry) {
  if (listing == nullptr || entry == nullptr || index >= listing->entries.size()) return OFP_INVALID;
  const PoolEntry& from = listing->entries[index];
  *entry = {from.row_key.c_str(), from.column_key.c_str(), from.bytes, from.rows, from.sequence};
  return OFP_OK;
}

void ofp_listing_free(ofp_listing* listing) { delete listing; }

int ofp_pool_drop(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob, int64_t wait_ns,
                  uint64_t* dropped, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const Globs globs, checked_globs(pool, row_glob, column_glob));
    OFP_ASSIGN(const std::uint64_t count, drop_from_pool(*channel->connection, globs.pool, globs.row, globs.column,
                                                         channel->connection->deadline(wait_ns)));
    if (dropped != nullptr) *dropped = count;
    return {};
  });
}

int ofp_pool_write(ofp_channel* channel, const char* pool, int fd, int64_t wait_ns, uint64_t* written_bytes, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const Globs globs, checked_globs(pool, nullptr, nullptr));
    OFP_ASSIGN(const std::uint64_t written, write_pool(channel->connection, globs.pool, fd, channel->connection->deadline(wait_ns)));
    if (written_bytes != nullptr) *written_bytes = written;
    return {};
  });
}

}  // extern "C"
