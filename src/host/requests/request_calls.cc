// The calls of offpath.h about asynchronous requests of all kinds.
#include "host/requests/frame.h"
#include "host/requests/pool.h"

namespace offpath::host {

Status start_request(const ConnectionPtr& connection, std::unique_ptr<Operation> operation, ofp_request** request) {
  auto made = std::make_unique<ofp_request>();
  made->connection = connection;
  OFP_ASSIGN(made->under_way, connection->requests.start(std::move(operation), made.get()));
  *request = made.release();
  return {};
}

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_request_wait(ofp_request* request, int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    const ConnectionPtr connection = request->connection;  // a callback may free the request
    OFP_TRY(connection->here());
    const Requests::UnderWayPtr under_way = request->under_way;
    return connection->requests.wait(under_way, connection->deadline(wait_ns));
  });
}

int ofp_request_on_end(ofp_request* request, void (*callback)(void* user, ofp_request* request), void* user,
                       ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    if (callback == nullptr) return fail(Error::invalid, "callback is NULL");
    const ConnectionPtr connection = request->connection;
    OFP_TRY(connection->here());
    connection->requests.call_back(request->under_way, callback, user);
    return {};
  });
}

int ofp_request_next(ofp_channel* channel, int64_t wait_ns, ofp_request** request, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(*request, channel->connection->requests.next(channel->connection->deadline(wait_ns)));
    return {};
  });
}

int ofp_request_frame(ofp_request* request, ofp_frame** frame, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(frame, "frame"));
    *frame = nullptr;
    OFP_ASSIGN(FrameOperation* const asked, ended_as<FrameOperation>(request, "one for a frame"));
    if (asked->frame == nullptr && asked->given) return fail(Error::closed, "the request's frame was returned already");
    asked->given = true;
    if (asked->frame != nullptr) *frame = new ofp_frame{std::move(asked->frame)};
    return {};
  });
}

int ofp_request_listing(ofp_request* request, ofp_listing** listing, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(listing, "listing"));
    *listing = nullptr;
    OFP_ASSIGN(const ListOperation* const asked, ended_as<ListOperation>(request, "a list"));
    *listing = new ofp_listing{asked->entries, asked->view};
    return {};
  });
}

int ofp_request_dropped(ofp_request* request, uint64_t* dropped, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(dropped, "dropped"));
    OFP_ASSIGN(const DropOperation* const asked, ended_as<DropOperation>(request, "a drop"));
    *dropped = asked->dropped;
    return {};
  });
}

void ofp_request_free(ofp_request* request) {
  if (request == nullptr) return;
  if (request->connection->here()) request->connection->requests.withdraw(request->under_way);
  delete request;
}

}  // extern "C"
