#include "link/local/local_agent_link.h"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr unsigned polls_between_looks = 4096;  // where the clock stands still
constexpr unsigned frames_of_a_look = 1024;
constexpr std::size_t offers_waiting_max = 256;
constexpr std::size_t refused_max = 256;  // of segments
constexpr std::uint64_t bounce_bytes = 128 << 10;

std::uint32_t number_of(RegionId segment) noexcept { return segment & ~wire::segment_flag; }

Status watch_life(int epoll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "watching a program's life");
  return {};
}

iovec vector_of(void* at, std::uint64_t length) { return {at, length}; }

}  // namespace

LocalAgentLink::LocalAgentLink(ControlSocket socket, Peer peer, DirectReads direct, SegmentMemory channel_segment,
                               std::uint64_t channel_address, const SegmentLimits& limits)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      limits_(limits),
      witness_(channel_segment.bytes(), channel_address) {
  traits_ = {"local", direct.permitted, !direct.permitted, 0, std::move(direct.reason)};
  const auto base = reinterpret_cast<std::uint64_t>(channel_segment.data());
  OFP_ASSERT(regions_.attach(wire::channel_segment, 0, base, channel_segment.length(), 0));
  segment_bytes_ = channel_segment.length();
  segment_count_ = 1;
  segments_.push_back(std::move(channel_segment));
  life_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  // The socket tells of a program that executed another one: that closed it, though the process lives on.
  Status watched = life_ ? watch_life(life_.get(), socket_.fd(), EPOLLRDHUP) : fail_errno(errno, "epoll_create1");
  if (watched && peer_.pidfd) watched = watch_life(life_.get(), peer_.pidfd.get(), EPOLLIN);
  if (!watched) lose(std::move(watched).error());  // one program's channel, not the agent
}

Status LocalAgentLink::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                    std::uint32_t key) {
  if (traits_.staged && !wire::is_segment(range))
    return fail(Error::unsupported, "ranges of this program cannot be read; {}", traits_.reason);
  if (vectors_ > first_vector) read_gathered();  // of what the names meant until now
  return regions_.attach_range(range, generation, base, length, key);
}

Status LocalAgentLink::detach_range(RegionId range, std::uint32_t generation) {
  if (vectors_ > first_vector) read_gathered();
  return regions_.detach_range(range, generation);
}

MutableBytes LocalAgentLink::mapped(RegionId segment) {
  const Region* region = wire::is_segment(segment) ? regions_.find(segment) : nullptr;
  if (region == nullptr) return {};
  return {reinterpret_cast<std::byte*>(region->base), region->length};
}

// ---- reading and writing

void LocalAgentLink::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
  if (told_) return;
  OFP_ASSERT(reads_.size() < operations_max);
  reads_.push_back({token, vectors_, vectors_, {}});
  if (lost_) [[unlikely]] {
    reads_.back().status = tl::unexpected<Failure>(why_);
    return;
  }
  Status gathered = gather(pieces);
  Read& read = reads_.back();
  if (gathered) {
    read.end = vectors_;
  } else {
    vectors_ = read.first;
    read.end = read.first;
    read.status = std::move(gathered);
  }
}

// Adds the vectors of the newest read.
Status LocalAgentLink::gather(std::span<const ReadPiece> pieces) {
  for (const ReadPiece& piece : pieces) {
    OFP_ASSIGN(const Region* region, regions_.resolve(piece.region, piece.generation, piece.offset, piece.length));
    if (piece.length == 0) continue;
    const std::uint64_t address = region->base + piece.offset;
    if (wire::is_segment(piece.region)) {
      std::memcpy(piece.to, reinterpret_cast<const std::byte*>(address), piece.length);
      continue;
    }
    for (std::uint64_t done = 0; done < piece.length;) {
      if (vectors_ == vector_max || (!piece.unshared && bounced_ == bounce_bytes)) {
        reads_.back().end = vectors_;
        read_gathered();
        if (!reads_.back().status) return std::move(reads_.back().status);
      }
      done += add_vector(piece, address + done, done);
    }
  }
  return {};
}

// Of what a piece names from `done` on, as much as there is memory to read it into. Returns how much.
std::uint64_t LocalAgentLink::add_vector(const ReadPiece& piece, std::uint64_t address, std::uint64_t done) {
  std::uint64_t length = piece.length - done;
  std::byte* const target = piece.to + done;
  std::byte* to = target;
  if (!piece.unshared) {
    if (!bounce_) bounce_ = std::make_unique_for_overwrite<std::byte[]>(bounce_bytes);
    length = std::min(length, bounce_bytes - bounced_);
    to = bounce_.get() + bounced_;
    bounced_ += length;
  }
  if (vectors_ > reads_.back().first) {  // goes on where the vector before ended, on all sides
    iovec& before = to_[vectors_ - 1];
    iovec& from = from_[vectors_ - 1];
    if (static_cast<std::byte*>(before.iov_base) + before.iov_len == to &&
        targets_[vectors_ - 1] + before.iov_len == target &&
        reinterpret_cast<std::uint64_t>(from.iov_base) + from.iov_len == address &&
        ranges_[vectors_ - 1] == piece.region) {
      before.iov_len += length;
      from.iov_len += length;
      return length;
    }
  }
  to_[vectors_] = vector_of(to, length);
  from_[vectors_] = vector_of(reinterpret_cast<void*>(address), length);
  targets_[vectors_] = target;
  ranges_[vectors_] = piece.region;
  ++vectors_;
  return length;
}

LocalAgentLink::Read& LocalAgentLink::read_of(std::size_t vector) noexcept {
  const auto read =
      std::ranges::find_if(reads_, [&](const Read& each) { return each.first <= vector && vector < each.end; });
  OFP_ASSERT(read != reads_.end());
  return *read;
}

// Afterwards nothing is gathered, and each read knows how it ended.
void LocalAgentLink::read_gathered() {
  std::size_t next = first_vector;
  while (next < vectors_ && !lost_) {
    const std::size_t with_witness = next - 1;  // in the place of a vector that is done
    const std::size_t count = vectors_ - with_witness;
    witness_.renew();
    to_[with_witness] = witness_.to();
    from_[with_witness] = witness_.from();
    const ssize_t got = process_vm_readv(peer_.pid, &to_[with_witness], count, &from_[with_witness], count, 0);
    const int error_number = got < 0 ? errno : 0;
    auto left = static_cast<std::uint64_t>(std::max<ssize_t>(got, 0));
    if (error_number == EFAULT || (got >= 0 && !witness_.seen())) [[unlikely]] {
      for (std::size_t i = with_witness; i < vectors_; ++i) {  // they are somebody else's: not even in a free buffer
        std::memset(to_[i].iov_base, 0, std::min<std::uint64_t>(left, to_[i].iov_len));
        left -= std::min<std::uint64_t>(left, to_[i].iov_len);
      }
      lose({Error::peer_lost, "the program executed another one, or unmapped its channel"});
      break;
    }
    if (got <= static_cast<ssize_t>(Witness::bytes)) [[unlikely]] {
      Read& failed = read_of(next);
      failed.status = got < 0 ? call_failure(error_number) : unreadable(next);
      next = failed.end;  // the others are to be had all the same
      continue;
    }
    // Short at a page that cannot be read, and at the kernel's limit of 2 GiB for one call: the next call tells.
    left -= Witness::bytes;
    for (; next < vectors_ && left >= from_[next].iov_len; ++next) {
      deliver(next, from_[next].iov_len);
      left -= from_[next].iov_len;
    }
    if (left > 0) {
      deliver(next, left);
      to_[next] = vector_of(static_cast<std::byte*>(to_[next].iov_base) + left, to_[next].iov_len - left);
      from_[next] = vector_of(static_cast<std::byte*>(from_[next].iov_base) + left, from_[next].iov_len - left);
      targets_[next] += left;
    }
  }
  for (Read& read : reads_) read.first = read.end = first_vector;
  vectors_ = first_vector;
  bounced_ = 0;
}

// What a call brought together with its witness, to where others may see it.
void LocalAgentLink::deliver(std::size_t vector, std::uint64_t length) noexcept {
  if (targets_[vector] != to_[vector].iov_base) std::memcpy(targets_[vector], to_[vector].iov_base, length);
}

// Turns reads into events: they count if the host is alive now.
void LocalAgentLink::finish_reads() {
  if (reads_.empty()) return;
  read_gathered();
  if (!lost_ && !host_lives()) [[unlikely]]
    lose({Error::peer_lost, "the program ended"});
  for (Read& read : reads_) {
    LinkEvent& event = events_.push(LinkEvent::Kind::read_done, read.token);
    if (lost_)
      event.status = tl::unexpected<Failure>(why_);
    else
      event.status = std::move(read.status);
  }
  reads_.clear();
}

tl::unexpected<Failure> LocalAgentLink::call_failure(int error_number) {
  if (error_number == ESRCH) {
    lose({Error::peer_lost, "the program ended"});
    return tl::unexpected<Failure>(why_);
  }
  if (error_number == EPERM)
    return fail(Error::denied,
                "the program's memory may not be read any more: its rights changed (new user, PR_SET_DUMPABLE, or "
                "PR_SET_PTRACER for another process)");
  return fail_errno(error_number, "process_vm_readv");
}

tl::unexpected<Failure> LocalAgentLink::unreadable(std::size_t vector) const {
  const auto address = reinterpret_cast<std::uint64_t>(from_[vector].iov_base);
  const Region* region = regions_.find(ranges_[vector]);
  if (region == nullptr) return fail(Error::unreadable, "no memory is mapped at address {:#x}", address);
  return fail(Error::unreadable,
              "range {} of {} bytes: no memory is mapped at its offset {}: it was freed after it was announced",
              ranges_[vector], region->length, address - region->base);
}

void LocalAgentLink::write(std::uint64_t token, std::span<const WritePiece> pieces) {
  if (told_) return;
  LinkEvent& event = events_.push(LinkEvent::Kind::write_done, token);
  if (lost_) [[unlikely]] {
    event.status = tl::unexpected<Failure>(why_);
    return;
  }
  event.status = write_now(pieces);
}

Status LocalAgentLink::write_now(std::span<const WritePiece> pieces) {
  for (const WritePiece& piece : pieces) {
    if (!wire::is_segment(piece.segment)) return fail(Error::denied, "range {} is read-only", piece.segment);
    OFP_ASSIGN(const Region* region, regions_.resolve(piece.segment, 0, piece.offset, piece.length));
    auto* to = reinterpret_cast<std::byte*>(region->base + piece.offset);
    // What the host reads on its own has to become visible in the order written, words in one go.
    std::atomic_thread_fence(std::memory_order_release);
    if (piece.length == sizeof(std::uint64_t) && region->base % 8 == 0 && piece.offset % 8 == 0) {
      std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(to))
          .store(load<std::uint64_t>(piece.from), std::memory_order_release);
    } else if (piece.length > 0) {
      std::memcpy(to, piece.from, piece.length);
    }
  }
  std::atomic_thread_fence(std::memory_order_release);
  return {};
}

bool LocalAgentLink::host_lives() {
  epoll_event event;
  const int ready = epoll_wait(life_.get(), &event, 1, 0);
  return ready == 0 || (ready < 0 && errno == EINTR && host_lives());
}

// ---- the control socket

void LocalAgentLink::wake() {
  if (lost_) return;
  if (auto sent = socket_.send_wake(); !sent) lose(std::move(sent).error());
}

Status LocalAgentLink::hand_over(std::uint64_t ticket, int fd) {
  if (lost_) return tl::unexpected<Failure>(why_);
  return socket_.send(ControlType::descriptor, std::as_bytes(std::span(&ticket, 1)), fd);
}

std::size_t LocalAgentLink::poll(TimeNs now, std::span<LinkEvent> events) {
  if (told_) return 0;
  if (!lost_ && (now >= next_look_ || ++polls_since_look_ >= polls_between_looks)) {
    next_look_ = deadline_after(now, look_interval_ns);
    polls_since_look_ = 0;
    look();
  }
  finish_reads();
  std::size_t count = events_.take(events);
  if (woken_ && count < events.size()) {
    events[count++] = {LinkEvent::Kind::woken, 0, {}, Fd()};
    woken_ = false;
  }
  if (events_.empty()) offers_ = 0;
  if (lost_ && events_.empty() && count < events.size()) {
    events[count++] = {LinkEvent::Kind::closed, 0, tl::unexpected<Failure>(why_), Fd()};
    told_ = true;
  }
  return count;
}

void LocalAgentLink::look() {
  auto looked = socket_.flush();
  if (looked) looked = take_frames();
  if (!looked) return lose(std::move(looked).error());
  if (has_ended(peer_)) lose({Error::peer_lost, "the program ended"});
}

Status LocalAgentLink::take_frames() {
  for (unsigned taken = 0; taken < frames_of_a_look; ++taken) {
    ControlSocket::Frame frame;
    OFP_ASSIGN(const bool there, socket_.next(frame));
    if (!there) return {};
    switch (frame.type) {
      case ControlType::wake:
        woken_ = true;
        break;
      case ControlType::segment:
        OFP_TRY(take_segment(frame.payload));
        break;
      case ControlType::segment_gone:
        OFP_TRY(drop_segment(frame.payload));
        break;
      case ControlType::offer: {
        OFP_ASSIGN(const std::uint64_t number, wire::decode_number(frame.payload));
        if (++offers_ > offers_waiting_max)
          return fail(Error::protocol, "offer: {} descriptors at once, at most {} are allowed", offers_,
                      offers_waiting_max);
        LinkEvent& event = events_.push(LinkEvent::Kind::offered, number);
        event.fd = socket_.take_descriptor();
        if (socket_.user()) event.status = socket_.user()->may_take();
        if (!event.status) event.fd.reset();
        break;
      }
      default:
        return unexpected_frame(frame.type, "on an open channel");
    }
  }
  next_look_ = 0;  // there may be more
  return {};
}

// What there is no room for costs its program that request, not the channel.
Status LocalAgentLink::take_segment(Bytes payload) {
  OFP_ASSIGN(const wire::SegmentNotice notice, wire::decode_segment_notice(payload));
  const std::uint32_t number = number_of(notice.region);
  if ((number < segments_.size() && segments_[number].data() != nullptr) || refused_.contains(notice.region))
    return fail(Error::protocol, "segment {}: announced twice", number);
  auto accepted = accept_segment(notice, number);
  if (!accepted && refused_.size() < refused_max &&
      (accepted.error().code == Error::too_large || accepted.error().code == Error::no_memory)) {
    refused_.insert(notice.region);
    std::vector<std::byte> outcome;
    wire::encode(wire::Outcome{notice.region, tl::unexpected(std::move(accepted).error())}, outcome);
    return socket_.send(ControlType::segment_refused, outcome);
  }
  OFP_ASSIGN(SegmentMemory memory, std::move(accepted));
  OFP_TRY(regions_.attach(notice.region, 0, reinterpret_cast<std::uint64_t>(memory.data()), notice.length, 0));
  if (segments_.size() <= number) segments_.resize(number + 1);
  segments_[number] = std::move(memory);
  segment_bytes_ += notice.length;
  ++segment_count_;
  return socket_.send(ControlType::segment_ok, std::as_bytes(std::span(&notice.region, 1)));
}

Result<SegmentMemory> LocalAgentLink::accept_segment(const wire::SegmentNotice& notice, std::uint32_t number) {
  if (number >= limits_.count_max || segment_count_ >= limits_.count_max)
    return fail(Error::too_large, "segment {}: at most {} segments are allowed (limits.segments_max)", number,
                limits_.count_max);
  if (notice.length > limits_.bytes_max - segment_bytes_)
    return fail(
        Error::too_large,
        "segment {}: its {} bytes and the {} of other segments are more than the {} allowed (limits.segment_bytes_max)",
        number, notice.length, segment_bytes_, limits_.bytes_max);
  const Fd fd = socket_.take_descriptor();
  return map_sealed(fd.get(), notice.length, fmt::format("segment {}", number), socket_.user());
}

Status LocalAgentLink::drop_segment(Bytes payload) {
  OFP_ASSIGN(const RegionId region, wire::decode_segment_number(payload));
  if (refused_.erase(region) > 0) return {};
  if (region == wire::channel_segment) return fail(Error::protocol, "the channel segment cannot be withdrawn");
  OFP_TRY(regions_.detach(region, 0));
  SegmentMemory& memory = segments_[number_of(region)];
  segment_bytes_ -= memory.length();
  --segment_count_;
  memory = SegmentMemory();
  return {};
}

void LocalAgentLink::lose(Failure why) {
  if (lost_) return;
  lost_ = true;
  why_ = std::move(why);
  if (why_.code != Error::peer_lost) send_refusal(socket_, why_);
  socket_.shut_down();
}

void LocalAgentLink::close() {
  lost_ = told_ = true;
  reads_.clear();
  vectors_ = first_vector;
  bounced_ = 0;
  socket_.shut_down();
  life_.reset();
  socket_.close();
  peer_.pidfd.reset();
  regions_ = RegionTable();
}

}  // namespace offpath::link
