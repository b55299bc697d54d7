#include "pool/flight/flight_server.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <arrow/flight/server.h>
#include <arrow/flight/server_middleware.h>
#include <arrow/util/byte_size.h>

#include "base/constant_time.h"
#include "pool/directory/glob.h"
#include "pool/query/query_arrow.h"
#include "wire/cursor.h"

namespace offpath::pool {

namespace fl = arrow::flight;

namespace {

constexpr auto shutdown_wait = std::chrono::milliseconds(500);

arrow::Status status_of(const Failure& failure) {
  switch (failure.code) {
    case Error::not_found:
      return arrow::Status::KeyError(failure.message);
    case Error::denied:
      return fl::MakeFlightError(fl::FlightStatusCode::Unauthorized, failure.message);
    case Error::timeout:
      return fl::MakeFlightError(fl::FlightStatusCode::TimedOut, failure.message);
    case Error::cancelled:
      return fl::MakeFlightError(fl::FlightStatusCode::Cancelled, failure.message);
    case Error::peer_lost:
    case Error::would_block:
    case Error::stale:  // members have changed: a new flight info has tickets for the present ones
      return fl::MakeFlightError(fl::FlightStatusCode::Unavailable, failure.message);
    case Error::closed:
      return fl::MakeFlightError(fl::FlightStatusCode::Unavailable, failure.message);
    case Error::unsupported:
      return arrow::Status::NotImplemented(failure.message);
    default:
      return arrow::Status::Invalid(failure.message);
  }
}

#define OFP_FLIGHT_ASSIGN_(result, target, expression) \
  auto result = (expression);                          \
  if (!result) [[unlikely]]                            \
    return status_of(result.error());                  \
  target = std::move(*result)
#define OFP_FLIGHT_ASSIGN(target, expression) OFP_FLIGHT_ASSIGN_(OFP_CONCAT(ofp_flight_, __LINE__), target, expression)

class TokenCheck final : public fl::ServerMiddlewareFactory {
 public:
  explicit TokenCheck(std::string_view token) { change(token); }
  void change(std::string_view token) {
    const std::lock_guard lock(mutex_);
    expected_ = fmt::format("Bearer {}", token);
  }
  arrow::Status StartCall(const fl::CallInfo&, const fl::ServerCallContext& context,
                          std::shared_ptr<fl::ServerMiddleware>*) override {
    const auto [begin, end] = context.incoming_headers().equal_range("authorization");
    if (begin == end)
      return fl::MakeFlightError(fl::FlightStatusCode::Unauthenticated,
                                 "the call has no token (authorization: Bearer …)");
    const std::lock_guard lock(mutex_);
    if (std::next(begin) != end || !equal_in_constant_time(bytes_of(expected_), bytes_of(begin->second)))
      return fl::MakeFlightError(fl::FlightStatusCode::Unauthenticated, "the call's token is not this agent's");
    return arrow::Status::OK();
  }

 private:
  std::mutex mutex_;
  std::string expected_;
};

// Spans of calls whose client records a span of its own, or sends no context. Made after the check of the token, so
// that strangers cause no spans.
class CallSpans final : public fl::ServerMiddlewareFactory {
 public:
  explicit CallSpans(std::function<void(FlightSpan)> tell) : tell_(std::move(tell)) {}
  arrow::Status StartCall(const fl::CallInfo& info, const fl::ServerCallContext& context,
                          std::shared_ptr<fl::ServerMiddleware>* middleware) override {
    FlightSpan span{ToString(info.method), {}, unix_ns(), 0, ""};
    const auto [begin, end] = context.incoming_headers().equal_range("traceparent");
    if (begin != end && std::next(begin) == end) span.parent = TraceContext::parse(begin->second);
    if (!span.parent || span.parent->sampled) *middleware = std::make_shared<Call>(tell_, std::move(span));
    return arrow::Status::OK();
  }

 private:
  static std::int64_t unix_ns() {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  class Call final : public fl::ServerMiddleware {
   public:
    Call(const std::function<void(FlightSpan)>& tell, FlightSpan span) : tell_(tell), span_(std::move(span)) {}
    std::string name() const override { return "spans"; }
    void SendingHeaders(fl::AddCallHeaders*) override {}
    void CallCompleted(const arrow::Status& status) override {
      span_.end_ns = unix_ns();
      if (!status.ok()) span_.error = status.message();
      tell_(std::move(span_));
    }

   private:
    const std::function<void(FlightSpan)>& tell_;  // of the factory, which outlives its calls
    FlightSpan span_;
  };

  const std::function<void(FlightSpan)> tell_;
};

struct Command {
  std::string pool, rows = "*", columns = "*";
  std::string query;  // empty: objects as they are

  [[nodiscard]] std::string encode() const {
    std::vector<std::byte> bytes;
    wire::Writer to(bytes);
    for (const auto* text : {&pool, &rows, &columns}) to.put_text(*text);
    to.put_bytes(bytes_of(query));
    return std::string(text_of(bytes));
  }
  [[nodiscard]] static Result<Command> decode(std::string_view bytes) {
    // A pool's name begins with its policy; read as a text's length, that would exceed every bound.
    for (const std::string_view kind : {"local:/", "hash:/", "rank:/", "tag:/", "sift:/"})
      if (bytes.starts_with(kind)) return Command{std::string(bytes), "*", "*", ""};
    wire::Reader from(bytes_of(bytes));
    Command made;
    for (auto* text : {&made.pool, &made.rows, &made.columns}) *text = from.take_text();
    made.query = text_of(from.take_bytes(from.left()));
    if (!from.ok()) return fail(Error::protocol, "a command of {} bytes is cut off", bytes.size());
    return made;
  }
};

Result<Command> command_of(const fl::FlightDescriptor& descriptor) {
  if (descriptor.type == fl::FlightDescriptor::CMD) return Command::decode(descriptor.cmd);
  const auto& path = descriptor.path;
  if (path.empty() || path.size() > 3)
    return fail(Error::invalid, "a path of {} parts; it is pool, or pool and row, or pool, row and column",
                path.size());
  return Command{path[0], path.size() > 1 ? path[1] : "*", path.size() > 2 ? path[2] : "*", ""};
}

// An answer's frames as batches, each asked for when the one before has been read.
class AnswerReader final : public arrow::RecordBatchReader {
 public:
  AnswerReader(std::unique_ptr<FlightCall> call, std::shared_ptr<std::atomic<int>> running, arrow::MemoryPool& memory)
      : memory_(memory), call_(std::move(call)), running_(std::move(running)) {}
  ~AnswerReader() override { --*running_; }

  Status begin() { return fill(); }  // there is at least one frame: it has the schema
  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
    batch->reset();
    if (batches_.empty() && !finished_)
      if (const Status filled = fill(); !filled) return status_of(filled.error());
    if (batches_.empty()) return arrow::Status::OK();
    *batch = std::move(batches_.front());
    batches_.pop_front();
    return arrow::Status::OK();
  }

 private:
  Status fill() {
    while (batches_.empty() && !finished_) {
      OFP_ASSIGN(FramePtr frame, call_->next());
      finished_ = frame == nullptr;
      if (finished_) break;
      OFP_ASSIGN(const auto imported, import_frame({std::move(frame), "answer", ""}, memory_));
      schema_ = imported.first;
      batches_.insert(batches_.end(), imported.second.begin(), imported.second.end());
    }
    return {};
  }

  arrow::MemoryPool& memory_;  // of the service
  std::unique_ptr<FlightCall> call_;
  std::shared_ptr<std::atomic<int>> running_;
  std::shared_ptr<arrow::Schema> schema_;
  std::deque<std::shared_ptr<arrow::RecordBatch>> batches_;
  bool finished_ = false;
};

class Service final : public fl::FlightServerBase {
 public:
  Service(FlightOptions options, FlightBackend& backend, std::shared_ptr<service::BufferCache> cache)
      : options_(std::move(options)), backend_(backend), cache_(std::move(cache)) {}

  arrow::Status ListFlights(const fl::ServerCallContext& context, const fl::Criteria*,
                            std::unique_ptr<fl::FlightListing>* listing) override {
    OFP_FLIGHT_ASSIGN(const auto pools, backend_.pools(cancelled(context)));
    std::vector<fl::FlightInfo> flights;
    for (const std::string& pool : pools) {
      const auto info = info_of(context, {.pool = pool, .rows = "*", .columns = "*", .query = ""},
                                fl::FlightDescriptor::Path({pool}));
      if (info.ok()) flights.push_back(*info);  // one without Arrow objects is no flight
    }
    *listing = std::make_unique<fl::SimpleFlightListing>(std::move(flights));
    return arrow::Status::OK();
  }
  arrow::Status GetFlightInfo(const fl::ServerCallContext& context, const fl::FlightDescriptor& descriptor,
                              std::unique_ptr<fl::FlightInfo>* info) override {
    OFP_FLIGHT_ASSIGN(const Command command, command_of(descriptor));
    ARROW_ASSIGN_OR_RAISE(auto made, info_of(context, command, descriptor));
    *info = std::make_unique<fl::FlightInfo>(std::move(made));
    return arrow::Status::OK();
  }
  arrow::Status GetSchema(const fl::ServerCallContext& context, const fl::FlightDescriptor& descriptor,
                          std::unique_ptr<fl::SchemaResult>* schema) override {
    std::unique_ptr<fl::FlightInfo> info;
    ARROW_RETURN_NOT_OK(GetFlightInfo(context, descriptor, &info));
    *schema = std::make_unique<fl::SchemaResult>(info->serialized_schema());
    return arrow::Status::OK();
  }
  arrow::Status DoGet(const fl::ServerCallContext& context, const fl::Ticket& ticket,
                      std::unique_ptr<fl::FlightDataStream>* stream) override {
    OFP_FLIGHT_ASSIGN(const Command command, Command::decode(ticket.ticket));
    ARROW_ASSIGN_OR_RAISE(auto reader, answer(context, command));
    *stream = std::make_unique<fl::RecordBatchStream>(std::move(reader));
    return arrow::Status::OK();
  }
  arrow::Status DoPut(const fl::ServerCallContext& context, std::unique_ptr<fl::FlightMessageReader> reader,
                      std::unique_ptr<fl::FlightMetadataWriter>) override {
    const auto& path = reader->descriptor().path;
    if (path.size() < 2 || path.size() > 3)
      return arrow::Status::Invalid("an object is put under the path pool, row, or pool, row, column; this one has ",
                                    path.size(), " parts");
    ARROW_ASSIGN_OR_RAISE(const auto schema, reader->GetSchema());
    arrow::RecordBatchVector batches;
    for (std::uint64_t bytes = 0;;) {
      ARROW_ASSIGN_OR_RAISE(fl::FlightStreamChunk chunk, reader->Next());
      if (chunk.data == nullptr) break;
      ARROW_RETURN_NOT_OK(chunk.data->ValidateFull());
      bytes += static_cast<std::uint64_t>(arrow::util::TotalBufferSize(*chunk.data));
      if (cache_->used_bytes() + bytes > options_.memory_bytes_max)
        return arrow::Status::CapacityError("the agent holds ", cache_->used_bytes(), " bytes and would hold ", bytes,
                                            " more, its limit is ", options_.memory_bytes_max, " (memory.bytes_max)");
      batches.push_back(std::move(chunk.data));
    }
    ARROW_ASSIGN_OR_RAISE(const auto table, arrow::Table::FromRecordBatches(schema, batches));
    ARROW_ASSIGN_OR_RAISE(const auto batch, table->CombineChunksToBatch(&memory_));
    OFP_FLIGHT_ASSIGN(FramePtr frame, write_frame(*batch, *cache_, options_.user, memory_));
    OFP_FLIGHT_ASSIGN(const auto call, backend_.open(cancelled(context)));
    const Status put = call->put(path[0], path[1], path.size() > 2 ? path[2] : "", std::move(frame));
    return put ? arrow::Status::OK() : status_of(put.error());
  }
  arrow::Status ListActions(const fl::ServerCallContext&, std::vector<fl::ActionType>* actions) override {
    *actions = {{"drop", "removes objects: pool, row pattern, column pattern; answers how many"},
                {"query", "asks about objects: pool, row pattern, column pattern, query; answers Arrow IPC streams"}};
    return arrow::Status::OK();
  }
  arrow::Status DoAction(const fl::ServerCallContext& context, const fl::Action& action,
                         std::unique_ptr<fl::ResultStream>* results) override {
    OFP_FLIGHT_ASSIGN(const Command command,
                      Command::decode(action.body != nullptr ? std::string_view(*action.body) : ""));
    std::vector<fl::Result> made;
    if (action.type == "drop") {
      OFP_FLIGHT_ASSIGN(const auto call, backend_.open(cancelled(context)));
      OFP_FLIGHT_ASSIGN(const std::uint64_t dropped, call->drop(command.pool, command.rows, command.columns));
      made.push_back(fl::Result{arrow::Buffer::FromString(std::to_string(dropped))});
    } else if (action.type == "query") {
      ARROW_ASSIGN_OR_RAISE(const auto reader, answer(context, command));
      ARROW_ASSIGN_OR_RAISE(const auto table, reader->ToTable());
      ARROW_ASSIGN_OR_RAISE(const auto batch, table->CombineChunksToBatch(&memory_));
      ARROW_ASSIGN_OR_RAISE(const auto frame, framed(*batch));
      made.push_back(fl::Result{frame});
    } else {
      return arrow::Status::NotImplemented("there is no action \"", action.type, "\"; there are drop and query");
    }
    *results = std::make_unique<fl::SimpleResultStream>(std::move(made));
    return arrow::Status::OK();
  }

 private:
  arrow::Result<std::shared_ptr<arrow::Buffer>> framed(const arrow::RecordBatch& batch) {
    OFP_FLIGHT_ASSIGN(const FramePtr frame, write_frame(batch, *cache_, options_.user, memory_));
    return arrow::Buffer::FromString(std::string(text_of(Bytes(frame->buffer.data(), frame->bytes))));
  }

  // gRPC ends the call at the client's deadline.
  static FlightBackend::Cancelled cancelled(const fl::ServerCallContext& context) {
    return [&context] { return context.is_cancelled(); };
  }

  // Plain objects are also read by a query: it keeps their order and checks that their schemas agree.
  arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> answer(const fl::ServerCallContext& context,
                                                                  const Command& command) {
    Query query;
    if (!command.query.empty()) {
      OFP_FLIGHT_ASSIGN(query, decode_query(bytes_of(command.query)));
    }
    return answer(context, command.pool, command.rows, command.columns, query);
  }
  arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> answer(const fl::ServerCallContext& context,
                                                                  const std::string& pool, const std::string& rows,
                                                                  const std::string& columns, const Query& query) {
    OFP_FLIGHT_ASSIGN(auto call, backend_.open(cancelled(context)));
    if (running_->fetch_add(1) >= static_cast<int>(options_.queries_max)) {
      --*running_;
      return fl::MakeFlightError(fl::FlightStatusCode::Unavailable,
                                 "the limit of answers being read is reached (flight.queries_max); try again");
    }
    FlightCall& asked = *call;
    auto reader = std::make_shared<AnswerReader>(std::move(call), running_, memory_);
    if (const Status begun = asked.query(pool, rows, columns, query); !begun) return status_of(begun.error());
    if (const Status begun = reader->begin(); !begun) return status_of(begun.error());
    return std::static_pointer_cast<arrow::RecordBatchReader>(std::move(reader));
  }

  arrow::Result<fl::FlightInfo> info_of(const fl::ServerCallContext& context, const Command& command,
                                        const fl::FlightDescriptor& descriptor) {
    std::int64_t rows = -1, bytes = -1;
    std::shared_ptr<arrow::RecordBatchReader> reader;
    Query query;
    if (!command.query.empty()) {
      OFP_FLIGHT_ASSIGN(query, decode_query(bytes_of(command.query)));
    }
    std::vector<fl::FlightEndpoint> endpoints{{fl::Ticket{command.encode()}, {}, std::nullopt, ""}};
    // Tracks (not objects), aggregates (one answer) and a part of one member are not divided.
    const bool is_whole = command.pool.starts_with("sift:/") || !query.aggregates.empty() || query.part;
    FlightListing listed;
    if (!is_whole) {
      OFP_FLIGHT_ASSIGN(const auto call, backend_.open(cancelled(context)));
      OFP_FLIGHT_ASSIGN(listed, call->list(command.pool, command.rows, command.columns));
      if (query.arrow_only) std::erase_if(listed.items, [](const FrameTable::Item& item) { return !item.arrow; });
      if (listed.view != 0 && !listed.items.empty()) {
        ARROW_ASSIGN_OR_RAISE(endpoints, endpoints_of(context, command, query, listed));
      }
    }
    // The schema of a query's answer is known from its beginning.
    if (is_whole || !command.query.empty()) {
      ARROW_ASSIGN_OR_RAISE(reader, answer(context, command));
    } else {
      const std::vector<FrameTable::Item>& items = listed.items;
      if (items.empty())
        return status_of({Error::not_found, fmt::format("pool \"{}\" has no objects whose keys match ({}, {})",
                                                        command.pool, brief(command.rows), brief(command.columns))});
      rows = bytes = 0;
      for (const FrameTable::Item& item : items) {
        rows += static_cast<std::int64_t>(item.rows);
        bytes += static_cast<std::int64_t>(item.bytes);
      }
      // The schema of one object, without its rows.
      Query none;
      none.filter = Expression{};
      none.filter->literal = {ValueType::boolean, false};
      ARROW_ASSIGN_OR_RAISE(reader, answer(context, command.pool, literal_glob(items.front().row),
                                           literal_glob(items.front().column), none));
    }
    return fl::FlightInfo::Make(*reader->schema(), descriptor, endpoints, rows, bytes, true);
  }

  // One endpoint for each member with objects: the query's part over that member's rows. In the order of names, as in
  // an answer.
  arrow::Result<std::vector<fl::FlightEndpoint>> endpoints_of(const fl::ServerCallContext& context,
                                                              const Command& command, Query query,
                                                              const FlightListing& listed) {
    OFP_FLIGHT_ASSIGN(const auto addresses, backend_.addresses(cancelled(context)));
    std::set<std::string> members;
    for (const FrameTable::Item& item : listed.items) members.insert(item.member);
    std::vector<fl::FlightEndpoint> endpoints;
    for (const std::string& member : members) {
      query.part = QueryPart{listed.view, member};
      Command part = command;
      part.query = text_of(encode(query));
      std::vector<fl::Location> locations;
      if (const auto address = addresses.find(member); address != addresses.end()) {
        ARROW_ASSIGN_OR_RAISE(fl::Location location, fl::Location::Parse(address->second));
        locations.push_back(std::move(location));
      }
      locations.push_back(fl::Location::ReuseConnection());
      endpoints.push_back({fl::Ticket{part.encode()}, std::move(locations), std::nullopt, ""});
    }
    return endpoints;
  }

  FlightOptions options_;
  mover::ArrowMemory memory_{options_.memory_bytes_max, "memory.bytes_max"};
  FlightBackend& backend_;
  std::shared_ptr<service::BufferCache> cache_;
  std::shared_ptr<std::atomic<int>> running_ = std::make_shared<std::atomic<int>>(0);
};

class Running final : public FlightServer {
 public:
  Running(std::unique_ptr<Service> service, std::shared_ptr<TokenCheck> tokens)
      : service_(std::move(service)), tokens_(std::move(tokens)), thread_([this] { (void)service_->Wait(); }) {}
  ~Running() override {
    const auto deadline = std::chrono::system_clock::now() + shutdown_wait;
    (void)service_->Shutdown(&deadline);
    thread_.join();
  }
  std::uint16_t port() const noexcept override { return static_cast<std::uint16_t>(service_->port()); }
  void change_token(std::string token) override { tokens_->change(token); }

 private:
  std::unique_ptr<Service> service_;
  std::shared_ptr<TokenCheck> tokens_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<FlightServer>> FlightServer::start(FlightOptions options, FlightBackend& backend,
                                                          std::shared_ptr<service::BufferCache> cache) {
  if (options.token.empty()) return fail(Error::invalid, "a Flight endpoint needs a token");
  const bool tls = !options.certificate.empty();
  const auto make_location = tls ? fl::Location::ForGrpcTls : fl::Location::ForGrpcTcp;
  OFP_ARROW_ASSIGN(const fl::Location location, make_location(options.host, options.port),
                   "naming the Flight endpoint");
  fl::FlightServerOptions server(location);
  if (tls) server.tls_certificates.push_back({options.certificate, options.key});
  const auto tokens = std::make_shared<TokenCheck>(options.token);
  server.middleware.emplace_back("token", tokens);
  if (options.on_call) server.middleware.emplace_back("spans", std::make_shared<CallSpans>(options.on_call));
  auto service = std::make_unique<Service>(std::move(options), backend, std::move(cache));
  OFP_ARROW(service->Init(server), "starting the Flight endpoint");
  return std::make_unique<Running>(std::move(service), tokens);
}

}  // namespace offpath::pool
