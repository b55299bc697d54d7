// The calls of offpath.h about memory: ranges and segments.
#include "channel/interruption.h"
#include "host/connection.h"
#include "wire/region.h"

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_range_announce(ofp_channel* channel, const void* base, uint64_t length_bytes, ofp_range** range,
                       ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(range, "range"));
    *range = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const HostEnd::RangeName name, channel->connection->end.announce(base, length_bytes));
    *range = new ofp_range{channel->connection, name};
    return {};
  });
}

int ofp_range_reannounce(ofp_range* range, const void* base, uint64_t length_bytes, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(range, "range"));
    OFP_TRY(range->connection->here());
    OFP_ASSIGN(range->name, range->connection->end.reannounce(range->name, base, length_bytes));
    return {};
  });
}

int ofp_range_retire(ofp_range* range, int64_t wait_ns, ofp_error* error) {
  const std::unique_ptr<ofp_range> owned(range);
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(range, "range"));
    OFP_TRY(range->connection->here());
    const TimeNs deadline = range->connection->deadline(wait_ns);
    Status left = range->connection->wait_range_users(range->name, deadline);
    if (!left && left.error().code != Error::would_block && !channel::is_interrupted(left)) return left;
    Status retired = range->connection->end.retire(range->name, deadline);
    return retired ? (left ? Status{} : fail(Error::timeout, "{}", left.error().message)) : retired;
  });
}

int ofp_alloc(ofp_channel* channel, uint64_t length_bytes, ofp_segment** segment, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    constexpr TimeNs agent_takes_segment_ns = 5 * second_ns;
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(segment, "segment"));
    *segment = nullptr;
    OFP_TRY(channel->connection->here());
    HostEnd& end = channel->connection->end;
    OFP_ASSIGN(const wire::RegionId region,
               end.allocate(length_bytes, deadline_after(end.now(), agent_takes_segment_ns)));
    *segment = new ofp_segment{channel->connection, region, end.segment(region).first(length_bytes)};
    return {};
  });
}

void* ofp_segment_data(ofp_segment* segment) { return segment != nullptr ? segment->bytes.data() : nullptr; }

uint64_t ofp_segment_bytes(const ofp_segment* segment) { return segment != nullptr ? segment->bytes.size() : 0; }

void ofp_free(ofp_segment* segment) {
  if (segment == nullptr) return;
  if (segment->connection->here()) segment->connection->end.free(segment->region);
  delete segment;
}

}  // extern "C"
