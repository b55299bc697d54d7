// Requests about whole pools.
#pragma once

#include <string>
#include <vector>

#include "host/connection.h"
#include "host/requests/frame.h"
#include "host/requests/operation.h"
#include "wire/messages/message_kinds.h"

namespace offpath::host {

struct PoolEntry {
  std::string row_key, column_key;
  std::uint64_t bytes, rows, sequence;
  bool arrow;
  std::string member;
};

// The agent sends as many entries at a time as a reply has room for.
class ListOperation final : public Operation {
 public:
  ListOperation(std::string_view pool, std::string_view row_glob, std::string_view column_glob, TimeNs deadline);
  [[nodiscard]] Result<wire::EntryKind> compose(std::vector<std::byte>& payload) override;
  [[nodiscard]] Result<bool> take(const channel::Reply& reply) override;

  std::vector<PoolEntry> entries;
  std::uint64_t view = 0;  // of the last page

 private:
  std::string pool_, row_glob_, column_glob_;
  std::uint64_t after_ = 0;
};

class DropOperation final : public Operation {
 public:
  DropOperation(std::string_view pool, std::string_view row_glob, std::string_view column_glob, TimeNs deadline);
  [[nodiscard]] Result<wire::EntryKind> compose(std::vector<std::byte>& payload) override;
  [[nodiscard]] Result<bool> take(const channel::Reply& reply) override;

  std::uint64_t dropped = 0;

 private:
  std::vector<std::byte> request_;
};

// The number of a Done reply.
[[nodiscard]] Result<std::uint64_t> done_of(const channel::Reply& reply, const char* what);

// The agent writes if it can be given the descriptor; otherwise this program gets frame by frame and writes.
[[nodiscard]] Result<std::uint64_t> write_pool(const ConnectionPtr& connection, std::string_view pool, int fd,
                                               TimeNs deadline);

// The public functions' arguments: a pool's name, and patterns, of which none means all.
struct Globs {
  std::string_view pool, row, column;
};
[[nodiscard]] Result<Globs> checked_globs(const char* pool, const char* row_glob, const char* column_glob);
[[nodiscard]] Result<std::string_view> checked_pool(const char* pool);
// ofp_pool_get and ofp_pool_want.
[[nodiscard]] Result<std::unique_ptr<FrameOperation>> get_operation(const ofp_channel* channel, const char* pool,
                                                                    const char* row_key, const char* column_key,
                                                                    std::int64_t wait_ns);

}  // namespace offpath::host

// Held by the program and by the thread that continues it.
struct ofp_request {
  offpath::host::ConnectionPtr connection;
  offpath::host::Requests::UnderWayPtr under_way;
};

namespace offpath::host {

// The common part of the functions that do not wait. `*request` is there when it succeeds.
[[nodiscard]] Status start_request(const ConnectionPtr& connection, std::unique_ptr<Operation> operation,
                                   ofp_request** request);
// The operation of a request that has succeeded, or its error; Error::invalid if it is of another kind than `what`.
template <class Kind>
[[nodiscard]] Result<Kind*> ended_as(const ofp_request* request, const char* what) {
  OFP_TRY(required(request, "request"));
  OFP_TRY(request->connection->here());
  OFP_ASSIGN(Operation* const operation, request->connection->requests.ended(*request->under_way));
  auto* const kind = dynamic_cast<Kind*>(operation);
  if (kind == nullptr) return fail(Error::invalid, "the request is not {}", what);
  return kind;
}

}  // namespace offpath::host

struct ofp_listing {
  std::vector<offpath::host::PoolEntry> entries;
  std::uint64_t view;
};
