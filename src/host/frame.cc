#include "host/frame.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>

namespace offpath::host {

namespace {

// The agent answers when the object's own time is over; this is for an agent that does not answer at all.
constexpr TimeNs grace_ns = 2 * second_ns;
constexpr TimeNs segment_wait_ns = 5 * second_ns;
constexpr TimeNs release_wait_ns = second_ns;

void release_lease(HostEnd& end, std::uint64_t lease) {
  std::vector<std::byte> payload;
  wire::encode(wire::Release{lease}, payload);
  (void)end.post(wire::EntryKind::release, payload, deadline_after(end.now(), release_wait_ns));
}

}  // namespace

Result<Mapping> Mapping::of(int fd, std::uint64_t length) {
  constexpr int needed = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & needed) != needed)
    return fail(Error::protocol, "the agent handed over memory that is not sealed against shrinking (seals {:#x}, needed are {:#x})",
                seals, needed);
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "fstat");
  if (static_cast<std::uint64_t>(status.st_size) < length)
    return fail(Error::protocol, "the agent handed over {} bytes of memory for an object of {}", status.st_size, length);
  Mapping mapping;
  if (length == 0) return mapping;
  const auto page = std::bit_ceil(std::max<std::uint64_t>(page_bytes, static_cast<std::uint64_t>(status.st_blksize)));
  mapping.length_ = align_up(length, page);  // huge pages are unmapped whole
  void* data = mmap(nullptr, mapping.length_, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of an object of {} bytes", length));
  mapping.data_ = data;
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, length_);
}

PoolFrame::~PoolFrame() {
  mapping_ = {};  // before the lease ends and the agent uses the pages for something else
  if (!connection_->here()) return;
  HostEnd& end = connection_->end;
  if (segment_ != 0) end.free(segment_);
  if (lease_ != 0) release_lease(end, lease_);
}

Result<std::unique_ptr<PoolFrame>> PoolFrame::get(ConnectionPtr connection, std::string_view pool, std::string_view row_key,
                                                  std::string_view column_key, std::int64_t wait_ns) {
  const TimeNs deadline = wait_ns < 0 ? never : deadline_after(connection->end.now(), wait_ns);
  std::vector<std::byte> request;
  wire::encode(wire::PoolGet{pool, row_key, column_key, wait_ns < 0 ? -1 : wait_ns}, request);
  OFP_ASSIGN(auto frame, fetch(std::move(connection), wire::EntryKind::pool_get, request, deadline));
  if (frame == nullptr) return fail(Error::protocol, "the agent answered a get with reply kind {}", static_cast<int>(wire::ReplyKind::done));
  return frame;
}

Result<std::unique_ptr<PoolFrame>> PoolFrame::fetch(ConnectionPtr connection, wire::EntryKind kind, Bytes request, TimeNs deadline) {
  const TimeNs patience = deadline_after(deadline, grace_ns);
  OFP_ASSIGN(const channel::Reply reply, connection->end.call(kind, request, patience));
  return of_reply(std::move(connection), reply);
}

Result<std::unique_ptr<PoolFrame>> PoolFrame::of_reply(ConnectionPtr connection, const channel::Reply& reply) {
  if (reply.kind == wire::ReplyKind::done) return nullptr;
  HostEnd& end = connection->end;
  wire::Got got{};
  if (reply.kind != wire::ReplyKind::got)
    return fail(Error::protocol, "the agent answered a get with reply kind {}", static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, got));
  std::unique_ptr<PoolFrame> frame(new PoolFrame);
  frame->connection_ = std::move(connection);
  frame->lease_ = got.lease;
  frame->rows_ = got.rows;
  frame->arrow_ = got.arrow;
  switch (got.how) {
    case wire::Got::How::descriptor: {
      OFP_ASSIGN(const Fd fd, end.take_descriptor(reply.ticket, deadline_after(end.now(), grace_ns)));
      OFP_ASSIGN(frame->mapping_, Mapping::of(fd.get(), got.length));
      frame->bytes_ = {frame->mapping_.data(), got.length};
      return frame;
    }
    case wire::Got::How::enclosed: {
      frame->own_.assign(got.bytes.begin(), got.bytes.end());
      frame->bytes_ = frame->own_;
      return frame;
    }
    case wire::Got::How::needs_segment: {
      OFP_TRY(frame->take_bytes(got.length));
      return frame;
    }
    default: return fail(Error::protocol, "the agent answered a get in way {}, which nobody asked for", static_cast<int>(got.how));
  }
}

void PoolFrame::give_back(HostEnd& end, const channel::Reply& reply) {
  wire::Got got{};
  if (reply.kind != wire::ReplyKind::got || !wire::decode(reply.payload, got)) return;
  if (got.how == wire::Got::How::descriptor) (void)end.take_descriptor(reply.ticket, deadline_after(end.now(), grace_ns));
  if (got.lease != 0) release_lease(end, got.lease);
}

// The lease holds the frame until it is here, whatever becomes of the object meanwhile.
Status PoolFrame::take_bytes(std::uint64_t length) {
  HostEnd& end = connection_->end;
  OFP_ASSIGN(segment_, end.allocate(std::max<std::uint64_t>(length, 1), deadline_after(end.now(), segment_wait_ns)));
  std::vector<std::byte> request;
  wire::encode(wire::PushLease{lease_, segment_}, request);
  OFP_ASSIGN(const channel::Reply reply, end.call(wire::EntryKind::push_lease, request, never));
  lease_ = 0;
  wire::Got got{};
  if (reply.kind != wire::ReplyKind::got)
    return fail(Error::protocol, "the agent answered a request to push with reply kind {}", static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, got));
  if (got.how != wire::Got::How::pushed || got.length != length)
    return fail(Error::protocol, "the agent says it pushed {} bytes of an object of {}", got.length, length);
  bytes_ = end.segment(segment_).first(length);
  return {};
}

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

const void* ofp_frame_data(const ofp_frame* frame) { return frame != nullptr ? frame->frame->bytes().data() : nullptr; }
uint64_t ofp_frame_bytes(const ofp_frame* frame) { return frame != nullptr ? frame->frame->bytes().size() : 0; }
uint64_t ofp_frame_rows(const ofp_frame* frame) { return frame != nullptr ? frame->frame->rows() : 0; }
int ofp_frame_is_arrow(const ofp_frame* frame) { return frame != nullptr && frame->frame->arrow() ? 1 : 0; }
int ofp_frame_mapped(const ofp_frame* frame) { return frame != nullptr && frame->frame->mapped() ? 1 : 0; }
void ofp_frame_release(ofp_frame* frame) { delete frame; }

}  // extern "C"
