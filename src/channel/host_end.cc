#include "channel/host_end.h"

#include <utility>
#include <vector>

#include "channel/interruption.h"

namespace offpath::channel {

using wire::EntryKind;

HostEnd::HostEnd(std::unique_ptr<link::HostLink> link, const wire::ChannelLayout& layout, Clock clock,
                 void* clock_context)
    : link_(std::move(link)),
      clock_(clock, clock_context),
      words_(link_->channel_memory().data(), layout),
      events_(link_->event_fd()),
      life_(events_, turns_),
      requests_(*link_, words_, layout),
      replies_(words_, link_->channel_memory().data(), layout),
      wakes_(words_, requests_, replies_, layout.streams_max),
      streams_(words_, requests_, layout.streams_max),
      waits_(*link_, clock_, words_, events_, turns_, life_, requests_, replies_, wakes_, streams_),
      posts_(clock_, life_, requests_, streams_, memory_, waits_),
      announcements_(*link_, clock_, words_, life_, memory_, waits_, posts_) {
  OFP_ASSERT(link_->channel_memory().size() >= layout.total_bytes());
}

HostEnd::~HostEnd() {
  if (life_.in_child())
    link_->abandon();
  else
    close(0);
}

void HostEnd::close(TimeNs wait_ns) {
  Lock lock(mutex_);
  if (life_.is_closed()) return;
  const TimeNs deadline = deadline_after(now(), wait_ns);
  for (std::uint32_t stream = 0; stream < streams_.count() && life_.usable() && wait_ns > 0; ++stream)
    if (streams_[stream].open && streams_[stream].last_ticket != 0)
      (void)waits_.for_progress(lock, stream, streams_[stream].last_ticket, Progress::pulled, deadline);
  life_.close();
  link_->close();
}

HostCounters HostEnd::counters() const {
  const Lock lock(mutex_);
  return {.posted = requests_.newest(),
          .bytes_posted = posts_.bytes(),
          .failed = replies_.failed(),
          .wakes_sent = requests_.wakes(),
          .pulled = streams_.newest_pulled(),
          .sleeps = waits_.sleeps()};
}

// ---- memory

Result<RangeName> HostEnd::announce(const void* base, std::uint64_t length) {
  Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return announcements_.announce(lock, base, length, never);
}

Result<RangeName> HostEnd::reannounce(RangeName range, const void* base, std::uint64_t length) {
  Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return announcements_.reannounce(lock, range, base, length);
}

Status HostEnd::retire(RangeName range, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return announcements_.retire(lock, range, deadline);
}

Status HostEnd::withdraw(RangeName range) {
  Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return announcements_.withdraw(lock, range);
}

bool HostEnd::is_withdrawn(RangeName range) {
  const Lock lock(mutex_);
  return announcements_.is_withdrawn(range);
}

bool HostEnd::idle(RangeName range) {
  const Lock lock(mutex_);
  return announcements_.idle(range);
}

Result<RegionId> HostEnd::allocate(std::uint64_t length, TimeNs deadline) {
  const Lock lock(mutex_);
  OFP_TRY(life_.usable());
  if (length == 0 || length > wire::region_bytes_max)
    return fail(Error::invalid, "a segment of {} bytes; from 1 to {} are allowed", length, wire::region_bytes_max);
  OFP_ASSIGN(link::SegmentMemory memory, link_->allocate(align_up(length, page_bytes)));
  return announcements_.announce_segment(std::move(memory), deadline);
}

Result<RegionId> HostEnd::adopt(link::SegmentMemory memory, TimeNs deadline) {
  const Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return announcements_.announce_segment(std::move(memory), deadline);
}

MutableBytes HostEnd::segment(RegionId region) {
  const Lock lock(mutex_);
  const link::SegmentMemory* memory = memory_.segment(region);
  return memory != nullptr ? memory->bytes() : MutableBytes{};
}

int HostEnd::segment_fd(RegionId region) {
  const Lock lock(mutex_);
  const link::SegmentMemory* memory = memory_.segment(region);
  return memory != nullptr ? memory->fd() : -1;
}

void HostEnd::free(RegionId region) {
  Lock lock(mutex_);
  announcements_.free(lock, region);
}

void HostEnd::withdraw_outside(TimeNs before) {
  const Lock lock(mutex_);
  if (life_.usable()) requests_.withdraw_outside(before);
}

Result<BufferRef> HostEnd::name_or_announce(Posting& posting, const void* address, std::uint64_t length,
                                            std::uint32_t& hint, TimeNs deadline) {
  if (auto named = memory_.name(address, length, hint)) return named;
  OFP_TRY(life_.usable());
  OFP_ASSIGN(const RangeName range, announcements_.announce(posting.lock, address, length, deadline));
  hint = range.region;
  return BufferRef{.region = range.region, .generation = range.generation, .offset = 0, .length = length};
}

// ---- requests and replies

Result<std::uint64_t> HostEnd::post(EntryKind kind, Bytes payload, TimeNs deadline) {
  Lock lock(mutex_);
  return posts_.post(lock, kind, payload, deadline);
}

Result<Reply> HostEnd::call(EntryKind kind, Bytes payload, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_ASSIGN(const std::uint64_t ticket, posts_.post(lock, kind, payload, deadline));
  replies_.await(ticket);
  const Status awaited = waits_.for_replies(lock, deadline, [&] { return replies_.find(ticket)->has_value(); });
  if (!awaited) {
    replies_.forget(ticket);
    return tl::unexpected(awaited.error());
  }
  return unfailed(std::move(*replies_.take(ticket)));
}

Result<std::uint64_t> HostEnd::ask(EntryKind kind, Bytes payload, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_ASSIGN(const std::uint64_t ticket, posts_.post(lock, kind, payload, deadline));
  replies_.await(ticket);
  return ticket;
}

Result<std::uint64_t> HostEnd::ask_without_wake(EntryKind kind, Bytes payload, TimeNs deadline) {
  if (!link_->traits().mapped) return ask(kind, payload, deadline);
  Lock lock(mutex_);
  OFP_ASSIGN(const std::uint64_t ticket, posts_.post_without_wake(lock, kind, payload, deadline));
  replies_.await(ticket);
  return ticket;
}

Result<std::optional<std::uint64_t>> HostEnd::wait_reply(std::span<const std::uint64_t> tickets, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(life_.usable());
  std::optional<std::uint64_t> found;
  std::optional<std::uint64_t> began;
  const Status awaited = waits_.for_replies(lock, deadline, [&] {
    for (const std::uint64_t ticket : tickets) {
      const std::optional<Reply>* reply = replies_.find(ticket);
      if (reply == nullptr) return true;  // another thread has taken it: the caller looks again
      if (!*reply) continue;
      found = ticket;
      return true;
    }
    if (!began) began = replies_.position();
    return *began != replies_.position();
  });
  if (!awaited && awaited.error().code != Error::timeout) return tl::unexpected(awaited.error());
  return found;
}

Status HostEnd::take_in() {
  const Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return waits_.take_in_replies();
}

std::optional<Reply> HostEnd::take_reply(std::uint64_t ticket) {
  const Lock lock(mutex_);
  return replies_.take(ticket);
}

void HostEnd::forget(std::uint64_t ticket) {
  const Lock lock(mutex_);
  replies_.forget(ticket);
}

bool HostEnd::has_room(std::uint64_t payload_bytes) {
  const Lock lock(mutex_);
  return requests_.fits(payload_bytes + 2 * wire::slot_payload_bytes);
}

Status HostEnd::wait_room(std::uint64_t payload_bytes, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return waits_.for_room_or_reply(lock, payload_bytes, deadline);
}

void HostEnd::arm_room() {
  const Lock lock(mutex_);
  events_.watch(true);
  if (life_.usable()) wakes_.ask_room();
}

bool HostEnd::arm_replies() {
  const Lock lock(mutex_);
  if (!life_.usable()) return false;
  events_.watch(true);
  wakes_.ask_replies();
  return !replies_.have_arrived();
}

Result<Fd> HostEnd::take_descriptor(std::uint64_t ticket, TimeNs deadline) {
  const Lock lock(mutex_);
  OFP_TRY(life_.usable());
  return link_->take_descriptor(ticket, deadline);
}

Result<std::uint64_t> HostEnd::offer(int fd) {
  const Lock lock(mutex_);
  OFP_TRY(life_.usable());
  OFP_TRY(link_->offer(++offers_, fd));
  return offers_;
}

// ---- streams

Result<wire::Opened> HostEnd::open_stream(wire::OpenStream& open, TimeNs deadline) {
  {
    const Lock lock(mutex_);
    OFP_TRY(life_.usable());
    OFP_ASSIGN(open.stream, streams_.open());
  }
  std::vector<std::byte> payload;
  wire::encode(open, payload);
  auto reply = call(EntryKind::open_stream, payload, deadline);
  wire::Opened opened{};
  if (reply && reply->kind == wire::ReplyKind::opened && wire::decode(reply->payload, opened)) return opened;
  const Lock lock(mutex_);
  // A late answer could still open the stream, so its number stays taken unless the agent refused.
  if (!reply && reply.error().code != Error::timeout && !is_interrupted(reply)) streams_[open.stream].open = false;
  if (!reply) return tl::unexpected(std::move(reply).error());
  return fail(Error::protocol, "the agent answered the opening of a stream with reply kind {}",
              static_cast<int>(reply->kind));
}

Status HostEnd::close_stream(std::uint32_t stream, TimeNs deadline) {
  {
    Lock lock(mutex_);
    OFP_TRY(life_.usable());
    if (const std::uint64_t last = streams_[stream].last_ticket; last != 0) {
      Status pulled = waits_.for_progress(lock, stream, last, Progress::pulled, deadline);
      if (!pulled && (pulled.error().code == Error::timeout || is_interrupted(pulled) || life_.is_lost()))
        return pulled;
    }
  }
  std::vector<std::byte> payload;
  wire::encode(wire::CloseStream{stream}, payload);
  OFP_TRY(call(EntryKind::close_stream, payload, deadline));
  const Lock lock(mutex_);
  // The next stream of this number starts its line at 0: nothing may refer to the old one.
  memory_.forget_stream(stream);
  wakes_.forget(stream);
  const bool is_waited_for = streams_[stream].credit_waiters > 0;
  streams_.close(stream);
  if (is_waited_for) waits_.end_sleeps();
  return {};
}

std::uint64_t HostEnd::credit_left(std::uint32_t stream) const {
  const Lock lock(mutex_);
  return streams_.credit_left(stream);
}

Status HostEnd::wait(std::uint32_t stream, std::uint64_t ticket, Progress progress, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(life_.usable());
  if (const std::uint64_t newest = requests_.newest(); ticket > newest)
    return fail(Error::invalid, "ticket {} does not exist; the newest is {}", ticket, newest);
  return waits_.for_progress(lock, stream, ticket, progress, deadline);
}

Status HostEnd::arm(std::uint32_t stream, std::uint64_t ticket, Progress progress) {
  const Lock lock(mutex_);
  OFP_TRY(life_.usable());
  events_.watch(true);
  wakes_.arm(stream, wake_word(progress), ticket);
  return {};
}

Status HostEnd::poll() {
  const Lock lock(mutex_);
  events_.clear();
  events_.watch(wakes_.any_armed());
  OFP_TRY(life_.usable());
  return waits_.look_at_all();
}

Status HostEnd::poll_beside() {
  const Lock lock(mutex_);
  OFP_TRY(life_.usable());
  events_.tell_watcher();
  return waits_.look_at_all();
}

}  // namespace offpath::channel
