// The opaque types of include/offpath/offpath.h. Read channel/host_end.h first: everything here is thin over
// it.
//
//   ofp_channel  a connection, shared with everything made from it: a stream, range, segment or frame keeps it alive
//   ofp_stream   stream.h
//   ofp_frame    frame.h
//   ofp_request  request_calls.cc
//
// Read this first in src/host, then send/stream.h (sends), requests/operation.h (everything that is answered),
// exchange/ and tasks/tasks.h; report.h turns errors into those of the C interface.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "channel/host_end.h"
#include "host/report.h"
#include "host/requests/requests.h"
#include "host/send/staging.h"
#include "offpath/offpath.h"
#include "wire/region.h"

namespace offpath::host {

using channel::HostEnd;

// Ranges announced by sends (OFP_SEND_ANNOUNCE) that are kept; beyond these the oldest ones that nothing uses go.
inline constexpr std::size_t own_ranges_max = 4096;

// An owner of requests, of no stream, by which the agent pulls from ranges.
class RangeUser {
 public:
  virtual ~RangeUser() = default;
  // Waits until nothing of it is pulled from this range any more; Error::would_block: not until then.
  [[nodiscard]] virtual Status leave(HostEnd::RangeName range, TimeNs deadline) = 0;
};

struct Connection {
  Connection(std::unique_ptr<link::HostLink> link, const wire::ChannelLayout& layout, std::uint64_t staging_bytes_max,
             HostEnd::Clock clock = nullptr, void* clock_context = nullptr)
      : end(std::move(link), layout, clock, clock_context), staging(end, staging_bytes_max) {}

  // Before any lock is taken: in a child another thread's lock would never be released.
  [[nodiscard]] Status here() const {
    if (mark.in_child()) [[unlikely]]
      return fail(Error::forked, "this channel belongs to the parent process; a forked child connects for itself");
    return {};
  }
  [[nodiscard]] TimeNs deadline(std::int64_t wait_ns) const { return deadline_after(end.now(), wait_ns); }

  // Closes open streams, so that their names are free when this returns; then the channel.
  void close(std::int64_t wait_ns);
  void add_stream(std::uint32_t number);
  void remove_stream(std::uint32_t number);

  // A send has announced `range`; withdraws the oldest such ranges that nothing uses if there are too many.
  void remember(HostEnd::RangeName range);

  void add_range_user(const std::shared_ptr<RangeUser>& user);
  // Until no user of ranges needs this one; 0 only looks.
  [[nodiscard]] Status wait_range_users(HostEnd::RangeName range, TimeNs deadline);

  HostEnd end;
  Staging staging;
  Requests requests{end};
  channel::ForkMark mark;

 private:
  std::mutex own_mutex_;
  std::deque<HostEnd::RangeName> own_ranges_;
  std::vector<std::uint32_t> open_streams_;
  std::mutex users_mutex_;
  std::vector<std::weak_ptr<RangeUser>> range_users_;
};

using ConnectionPtr = std::shared_ptr<Connection>;

}  // namespace offpath::host

struct ofp_channel {
  offpath::host::ConnectionPtr connection;
};

struct ofp_range {
  offpath::host::ConnectionPtr connection;
  offpath::channel::HostEnd::RangeName name;
};

struct ofp_segment {
  offpath::host::ConnectionPtr connection;
  offpath::wire::RegionId region;
  offpath::MutableBytes bytes;
};
