// Queries: their bytes lie in a segment that the agent pulls; frames of the answer come as those of a pool do.
#include <cstring>

#include "host/frame.h"
#include "host/pool.h"
#include "host/stream.h"

namespace offpath::host {

namespace {

constexpr TimeNs grace_ns = 2 * second_ns;  // for an agent that does not answer at all
constexpr TimeNs release_wait_ns = second_ns;

// Memory of the channel for as long as a request that names it is under way.
class Outgoing {
 public:
  static Result<Outgoing> of(HostEnd& end, Bytes bytes, TimeNs deadline) {
    OFP_ASSIGN(const wire::RegionId region, end.allocate(bytes.size(), deadline));
    std::memcpy(end.segment(region).data(), bytes.data(), bytes.size());
    return Outgoing(end, region);
  }
  Outgoing(Outgoing&& other) noexcept : end_(other.end_), region_(std::exchange(other.region_, 0)) {}
  Outgoing& operator=(Outgoing&&) = delete;
  ~Outgoing() {
    if (region_ != 0) end_->free(region_);
  }
  [[nodiscard]] wire::RegionId region() const noexcept { return region_; }

 private:
  Outgoing(HostEnd& end, wire::RegionId region) : end_(&end), region_(region) {}
  HostEnd* end_;
  wire::RegionId region_;
};

class QueryAnswer {
 public:
  static Result<std::unique_ptr<QueryAnswer>> ask(ConnectionPtr connection, const Globs& globs, Bytes query, std::int64_t wait_ns) {
    HostEnd& end = connection->end;
    std::unique_ptr<QueryAnswer> answer(new QueryAnswer);
    answer->deadline_ = wait_ns < 0 ? never : deadline_after(end.now(), wait_ns);
    const TimeNs patience = answer->deadline_ == never ? never : deadline_after(answer->deadline_, grace_ns);
    OFP_ASSIGN(const Outgoing outgoing, Outgoing::of(end, query, patience));
    std::vector<std::byte> payload;
    wire::encode(wire::PoolQuery{globs.pool, globs.row, globs.column, wait_ns,
                                 {.region = outgoing.region(), .generation = 0, .offset = 0, .length = query.size()}},
                 payload);
    OFP_ASSIGN(const channel::Reply reply, end.call(wire::EntryKind::pool_query, payload, patience));
    wire::Done done{};
    if (reply.kind != wire::ReplyKind::done)
      return fail(Error::protocol, "the agent answered a query with reply kind {}", static_cast<int>(reply.kind));
    OFP_TRY(wire::decode(reply.payload, done));
    answer->number_ = done.value;
    answer->connection_ = std::move(connection);
    return answer;
  }
  QueryAnswer(const QueryAnswer&) = delete;
  QueryAnswer& operator=(const QueryAnswer&) = delete;
  ~QueryAnswer() {
    if (connection_ == nullptr || ended_ || !connection_->here()) return;
    HostEnd& end = connection_->end;
    std::vector<std::byte> payload;
    wire::encode(wire::Release{number_}, payload);
    (void)end.post(wire::EntryKind::release, payload, deadline_after(end.now(), release_wait_ns));
  }

  // Null after the last one.
  Result<std::unique_ptr<PoolFrame>> next() {
    OFP_TRY(connection_->here());
    if (ended_) return nullptr;
    std::vector<std::byte> request;
    wire::encode(wire::QueryNext{number_, index_}, request);
    auto frame = PoolFrame::fetch(connection_, wire::EntryKind::query_next, request, deadline_);
    ended_ = !frame || *frame == nullptr;
    ++index_;
    return frame;
  }

 private:
  QueryAnswer() = default;

  ConnectionPtr connection_;
  TimeNs deadline_ = never;
  std::uint64_t number_ = 0, index_ = 0;
  bool ended_ = false;
};

}  // namespace
}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

struct ofp_query {
  std::unique_ptr<QueryAnswer> answer;
};

extern "C" {

int ofp_pool_query(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob, const void* query,
                   uint64_t query_bytes, int64_t wait_ns, ofp_query** answer, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(query, "query"));
    OFP_TRY(required(answer, "answer"));
    *answer = nullptr;
    OFP_TRY(channel->connection->here());
    if (query_bytes == 0) return fail(Error::invalid, "a query of 0 bytes");
    OFP_ASSIGN(const Globs globs, checked_globs(pool, row_glob, column_glob));
    OFP_ASSIGN(auto asked, QueryAnswer::ask(channel->connection, globs, {static_cast<const std::byte*>(query), query_bytes}, wait_ns));
    *answer = new ofp_query{std::move(asked)};
    return {};
  });
}

int ofp_query_next(ofp_query* answer, ofp_frame** frame, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(answer, "answer"));
    OFP_TRY(required(frame, "frame"));
    *frame = nullptr;
    OFP_ASSIGN(auto got, answer->answer->next());
    if (got != nullptr) *frame = new ofp_frame{std::move(got)};
    return {};
  });
}

void ofp_query_free(ofp_query* answer) { delete answer; }

}  // extern "C"
