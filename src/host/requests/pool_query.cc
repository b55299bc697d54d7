// Queries: their bytes lie in a segment that the agent pulls; frames of the answer come as those of a pool do.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "host/requests/frame.h"
#include "host/requests/pool.h"
#include "host/send/stream.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/region.h"

namespace offpath::host {

namespace {

constexpr TimeNs query_grace_ns = 2 * second_ns;  // for an agent that does not answer at all
constexpr TimeNs query_release_wait_ns = second_ns;
constexpr std::int64_t query_segment_wait_ns = second_ns;  // for its bytes to be announced

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

}  // namespace

// The frames of an answer, one after the other, and one at a time.
class QueryAnswer {
 public:
  QueryAnswer(ConnectionPtr connection, std::uint64_t number, TimeNs deadline)
      : connection_(std::move(connection)), number_(number), deadline_(deadline) {}
  QueryAnswer(const QueryAnswer&) = delete;
  QueryAnswer& operator=(const QueryAnswer&) = delete;
  ~QueryAnswer() {
    if (state_ == State::at_end || !connection_->here()) return;
    HostEnd& end = connection_->end;
    std::vector<std::byte> payload;
    wire::encode(wire::Release{number_}, payload);
    (void)end.post(wire::EntryKind::release, payload, deadline_after(end.now(), query_release_wait_ns));
  }

  // Null if there are no more frames, for any reason.
  static Result<std::unique_ptr<FrameOperation>> next(const std::shared_ptr<QueryAnswer>& answer);
  [[nodiscard]] const ConnectionPtr& connection() const noexcept { return connection_; }

 private:
  friend class NextFrame;
  enum class State { open, asked, failed, at_end };
  void set(State state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
  }

  ConnectionPtr connection_;
  std::uint64_t number_;
  TimeNs deadline_;
  std::mutex mutex_;
  State state_ = State::open;
  std::uint64_t index_ = 0;
};

// Without its frame the answer ends: the next frame would be taken for it.
class NextFrame final : public FrameOperation {
 public:
  NextFrame(std::shared_ptr<QueryAnswer> answer, TimeNs deadline)
      : FrameOperation(answer->connection(), wire::EntryKind::query_next, deadline), answer_(std::move(answer)) {}
  [[nodiscard]] Result<bool> take(const channel::Reply& reply) override {
    OFP_ASSIGN(const bool over, FrameOperation::take(reply));
    if (over && !failed_) answer_->set(frame != nullptr ? QueryAnswer::State::open : QueryAnswer::State::at_end);
    return over;
  }
  void on_failed() override {
    failed_ = true;
    answer_->set(QueryAnswer::State::failed);
  }

 private:
  std::shared_ptr<QueryAnswer> answer_;
  bool failed_ = false;
};

Result<std::unique_ptr<FrameOperation>> QueryAnswer::next(const std::shared_ptr<QueryAnswer>& answer) {
  OFP_TRY(answer->connection_->here());
  const std::lock_guard lock(answer->mutex_);
  if (answer->state_ == State::asked)
    return fail(Error::invalid, "the next frame of this answer was requested already");
  if (answer->state_ != State::open) return nullptr;
  answer->state_ = State::asked;
  auto made = std::make_unique<NextFrame>(answer, answer->deadline_);
  wire::encode(wire::QueryNext{answer->number_, answer->index_++}, made->request);
  return made;
}

namespace {

class QueryOperation final : public Operation {
 public:
  static Result<std::unique_ptr<QueryOperation>> of(const ofp_channel* channel, const char* pool, const char* row_glob,
                                                    const char* column_glob, const void* query,
                                                    std::uint64_t query_bytes, std::int64_t wait_ns) {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(query, "query"));
    const ConnectionPtr& connection = channel->connection;
    OFP_TRY(connection->here());
    if (query_bytes == 0) return fail(Error::invalid, "a query of 0 bytes");
    OFP_ASSIGN(const Globs globs, checked_globs(pool, row_glob, column_glob));
    std::unique_ptr<QueryOperation> made(new QueryOperation(connection, wait_ns));
    OFP_ASSIGN(Outgoing outgoing, Outgoing::of(connection->end, {static_cast<const std::byte*>(query), query_bytes},
                                               std::min(made->patience, connection->deadline(query_segment_wait_ns))));
    made->query_.emplace(std::move(outgoing));
    wire::encode(
        wire::PoolQuery{globs.pool,
                        globs.row,
                        globs.column,
                        wait_ns,
                        {.region = made->query_->region(), .generation = 0, .offset = 0, .length = query_bytes}},
        made->request_);
    return made;
  }
  [[nodiscard]] Result<wire::EntryKind> compose(std::vector<std::byte>& payload) override {
    payload = request_;
    return wire::EntryKind::pool_query;
  }
  [[nodiscard]] Result<bool> take(const channel::Reply& reply) override {
    query_.reset();
    OFP_ASSIGN(const std::uint64_t number, done_of(reply, "query"));
    answer = std::make_shared<QueryAnswer>(connection_, number, deadline_);
    return true;
  }
  [[nodiscard]] bool cancellable() const override { return true; }

  std::shared_ptr<QueryAnswer> answer;

 private:
  QueryOperation(ConnectionPtr connection, std::int64_t wait_ns)
      : connection_(std::move(connection)), deadline_(connection_->deadline(wait_ns)) {
    patience = deadline_after(deadline_, query_grace_ns);
  }

  ConnectionPtr connection_;
  TimeNs deadline_;
  std::optional<Outgoing> query_;
  std::vector<std::byte> request_;
};

}  // namespace
}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

struct ofp_query {
  std::shared_ptr<QueryAnswer> answer;
};

extern "C" {

int ofp_pool_query(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                   const void* query, uint64_t query_bytes, int64_t wait_ns, ofp_query** answer, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(answer, "answer"));
    *answer = nullptr;
    OFP_ASSIGN(const auto asked, QueryOperation::of(channel, pool, row_glob, column_glob, query, query_bytes, wait_ns));
    OFP_TRY(run(channel->connection->end, *asked));
    *answer = new ofp_query{std::move(asked->answer)};
    return {};
  });
}

int ofp_pool_query_start(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                         const void* query, uint64_t query_bytes, int64_t wait_ns, ofp_request** request,
                         ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_ASSIGN(auto asked, QueryOperation::of(channel, pool, row_glob, column_glob, query, query_bytes, wait_ns));
    return start_request(channel->connection, std::move(asked), request);
  });
}

int ofp_request_query(ofp_request* request, ofp_query** answer, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(answer, "answer"));
    *answer = nullptr;
    OFP_ASSIGN(QueryOperation* const asked, ended_as<QueryOperation>(request, "a query"));
    if (asked->answer == nullptr) return fail(Error::closed, "the request's answer was returned already");
    *answer = new ofp_query{std::move(asked->answer)};
    return {};
  });
}

int ofp_query_next(ofp_query* answer, ofp_frame** frame, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(answer, "answer"));
    OFP_TRY(required(frame, "frame"));
    *frame = nullptr;
    OFP_ASSIGN(const auto next, QueryAnswer::next(answer->answer));
    if (next == nullptr) return {};
    OFP_ASSIGN(auto got, next->run());
    if (got != nullptr) *frame = new ofp_frame{std::move(got)};
    return {};
  });
}

int ofp_query_next_start(ofp_query* answer, ofp_request** request, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(answer, "answer"));
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_ASSIGN(auto next, QueryAnswer::next(answer->answer));
    if (next == nullptr) return fail(Error::closed, "the answer has ended: there is no frame after its last one");
    return start_request(answer->answer->connection(), std::move(next), request);
  });
}

void ofp_query_free(ofp_query* answer) { delete answer; }

}  // extern "C"
