#include "host/requests/frame.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>

#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

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
    return fail(Error::protocol,
                "the agent handed over memory that is not sealed against shrinking (seals {:#x}, {:#x} are needed)",
                seals, needed);
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "fstat");
  if (static_cast<std::uint64_t>(status.st_size) < length)
    return fail(Error::protocol, "the agent handed over {} bytes of memory for an object of {}", status.st_size,
                length);
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

Result<std::unique_ptr<PoolFrame>> PoolFrame::get(ConnectionPtr connection, std::string_view pool,
                                                  std::string_view row_key, std::string_view column_key,
                                                  std::int64_t wait_ns) {
  return FrameOperation::get(std::move(connection), pool, row_key, column_key, wait_ns)->run();
}

FrameOperation::FrameOperation(ConnectionPtr connection, wire::EntryKind kind, TimeNs deadline)
    : connection_(std::move(connection)), kind_(kind) {
  patience = deadline_after(deadline, grace_ns);
}

std::unique_ptr<FrameOperation> FrameOperation::get(ConnectionPtr connection, std::string_view pool,
                                                    std::string_view row_key, std::string_view column_key,
                                                    std::int64_t wait_ns) {
  const TimeNs deadline = connection->deadline(wait_ns);
  auto made = std::make_unique<FrameOperation>(std::move(connection), wire::EntryKind::pool_get, deadline);
  wire::encode(wire::PoolGet{pool, row_key, column_key, wait_ns < 0 ? -1 : wait_ns}, made->request);
  return made;
}

Result<std::unique_ptr<PoolFrame>> FrameOperation::run() {
  OFP_TRY(host::run(connection_->end, *this));
  return std::move(frame);
}

Result<wire::EntryKind> FrameOperation::compose(std::vector<std::byte>& payload) {
  if (frame == nullptr) {
    payload = request;
    return kind_;
  }
  HostEnd& end = connection_->end;
  OFP_ASSIGN(frame->segment_,
             end.allocate(std::max<std::uint64_t>(to_push_, 1), deadline_after(end.now(), segment_wait_ns)));
  wire::encode(wire::PushLease{frame->lease_, frame->segment_}, payload);
  pushing_ = true;
  patience = never;  // it is there, and takes as long as its bytes do
  return wire::EntryKind::push_lease;
}

bool FrameOperation::cancellable() const {
  return !pushing_ && (kind_ == wire::EntryKind::pool_get || kind_ == wire::EntryKind::pool_compute ||
                       kind_ == wire::EntryKind::query_next);
}

Result<bool> FrameOperation::take(const channel::Reply& reply) {
  if (pushing_) {
    OFP_TRY(take_pushed(reply));
    return true;
  }
  if (reply.kind == wire::ReplyKind::done && kind_ != wire::EntryKind::pool_get) return true;
  HostEnd& end = connection_->end;
  wire::Got got{};
  if (reply.kind != wire::ReplyKind::got)
    return fail(Error::protocol, "the agent answered a get with reply kind {}", static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, got));
  frame.reset(new PoolFrame);
  frame->connection_ = connection_;
  frame->lease_ = got.lease;
  frame->rows_ = got.rows;
  frame->arrow_ = got.arrow;
  switch (got.how) {
    case wire::Got::How::descriptor: {
      OFP_ASSIGN(const Fd fd, end.take_descriptor(reply.ticket, deadline_after(end.now(), grace_ns)));
      OFP_ASSIGN(frame->mapping_, Mapping::of(fd.get(), got.length));
      frame->bytes_ = {frame->mapping_.data(), got.length};
      return true;
    }
    case wire::Got::How::enclosed: {
      frame->own_.assign(got.bytes.begin(), got.bytes.end());
      frame->bytes_ = frame->own_;
      return true;
    }
    case wire::Got::How::needs_segment: {
      to_push_ = got.length;
      return false;
    }
    default:
      return fail(Error::protocol, "the agent answered a get in way {}, which was not requested",
                  static_cast<int>(got.how));
  }
}

// The lease holds the frame until it is here, even if the object is dropped meanwhile.
Status FrameOperation::take_pushed(const channel::Reply& reply) {
  frame->lease_ = 0;
  wire::Got got{};
  if (reply.kind != wire::ReplyKind::got)
    return fail(Error::protocol, "the agent answered a request to push with reply kind {}",
                static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, got));
  if (got.how != wire::Got::How::pushed || got.length != to_push_)
    return fail(Error::protocol, "the agent says it pushed {} bytes of an object of {}", got.length, to_push_);
  frame->bytes_ = connection_->end.segment(frame->segment_).first(to_push_);
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
