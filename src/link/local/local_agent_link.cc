#include "link/local/local_agent_link.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr unsigned polls_between_checks = 4096;  // for a clock that stands still
constexpr unsigned frames_of_a_local_look = 1024;
constexpr std::size_t offers_waiting_max = 256;
constexpr std::size_t refused_max = 256;  // of segments

std::uint32_t index_of(RegionId segment) noexcept { return segment & ~wire::segment_flag; }

Status watch_life(int epoll, int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  if (epoll_ctl(epoll, operation, fd, &event) != 0) return fail_errno(errno, "watching a program's life");
  return {};
}

}  // namespace

LocalAgentLink::LocalAgentLink(ControlSocket socket, Fd wakes, Peer peer, DirectReads direct,
                               SegmentMemory channel_segment, std::uint64_t channel_address,
                               const SegmentLimits& limits, std::shared_ptr<UserReaders::User> reader)
    : socket_(std::move(socket)),
      wakes_(std::move(wakes)),
      peer_(std::move(peer)),
      limits_(limits),
      channel_address_(channel_address),
      reader_(std::move(reader)) {
  traits_ = {"local", direct.permitted, !direct.permitted, 0, std::move(direct.reason), false, true};
  const auto base = reinterpret_cast<std::uint64_t>(channel_segment.data());
  OFP_ASSERT(regions_.attach(wire::channel_segment, 0, base, channel_segment.length(), 0));
  segment_bytes_ = channel_segment.length();
  segment_count_ = 1;
  segments_.push_back(std::move(channel_segment));
  batch_ = make_batch();
  life_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  // The socket shows that the program executed another one: its end was closed, although the process lives on.
  Status watched =
      life_ ? watch_life(life_.get(), EPOLL_CTL_ADD, socket_.fd(), EPOLLRDHUP) : fail_errno(errno, "epoll_create1");
  if (watched && peer_.pidfd) watched = watch_life(life_.get(), EPOLL_CTL_ADD, peer_.pidfd.get(), EPOLLIN);
  if (!watched) lose(std::move(watched).error());  // ends one program's channel, not the agent
}

LocalAgentLink::~LocalAgentLink() { give_up_batch(why_); }  // before the channel's memory is released

Status LocalAgentLink::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                    std::uint32_t key) {
  if (traits_.staged && !wire::is_segment(range))
    return fail(Error::unsupported, "ranges of this program cannot be read; {}", traits_.reason);
  if (!reader_) batch_->reads.run();  // finishes reads that use the old meaning of the range
  return regions_.attach_range(range, generation, base, length, key);
}

Status LocalAgentLink::detach_range(RegionId range, std::uint32_t generation) {
  if (!reader_) batch_->reads.run();
  return regions_.detach_range(range, generation);
}

MutableBytes LocalAgentLink::mapped(RegionId segment) {
  const Region* region = wire::is_segment(segment) ? regions_.find(segment) : nullptr;
  if (region == nullptr) return {};
  return {reinterpret_cast<std::byte*>(region->base), region->length};
}

// ---- reading and writing

std::shared_ptr<LocalAgentLink::Batch> LocalAgentLink::make_batch() {
  return std::make_shared<Batch>(peer_.pid, segments_.front().bytes(), channel_address_);
}

void LocalAgentLink::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
  if (told_) return;
  ProgramReads& reads = batch_->reads;
  OFP_ASSERT(reads.reads().size() + (outstanding_ ? outstanding_->reads.reads().size() : 0) < operations_max);
  if (!reader_ && reads.pieces() >= ProgramReads::vector_max) reads.run();
  reads.begin(token);
  if (lost_) [[unlikely]] {
    reads.fail_newest(why_);
  } else if (Status gathered = gather(pieces); !gathered) {
    reads.fail_newest(std::move(gathered).error());
  }
}

// Adds pieces to the newest read.
Status LocalAgentLink::gather(std::span<const ReadPiece> pieces) {
  for (const ReadPiece& piece : pieces) {
    OFP_ASSIGN(const Region* region, regions_.resolve(piece.region, piece.generation, piece.offset, piece.length));
    if (piece.length == 0) continue;
    if (wire::is_segment(piece.region))
      std::memcpy(piece.to, reinterpret_cast<const std::byte*>(region->base + piece.offset), piece.length);
    else
      batch_->reads.add({piece.region, region->base, region->length, piece.offset, piece.to, piece.length,
                         piece.unshared && !reader_});
  }
  return {};
}

// Turns reads into events: they count if the host is alive now.
void LocalAgentLink::finish_reads(TimeNs now) {
  if (outstanding_) finish_batch(now);
  ProgramReads& reads = batch_->reads;
  if (outstanding_ || reads.reads().empty()) return;
  if (reader_ && !lost_ && reads.pieces() > 0) return start_batch();
  if (!lost_) {
    reads.run();
    judge(reads);
  }
  tell(reads, nullptr);
  reads.clear();
}

void LocalAgentLink::judge(const ProgramReads& reads) {
  if (reads.lost())
    lose(*reads.lost());
  else if (!host_lives()) [[unlikely]]
    lose({Error::peer_lost, "the program ended"});
}

// `why`: not null if all have failed.
void LocalAgentLink::tell(const ProgramReads& reads, const Failure* why) {
  if (lost_) why = &why_;
  for (const ProgramReads::Read& read : reads.reads()) {
    LinkEvent& event = events_.push(LinkEvent::Kind::read_done, read.token);
    if (why != nullptr)
      event.status = tl::unexpected<Failure>(*why);
    else
      event.status = read.status;
  }
}

void LocalAgentLink::start_batch() {
  outstanding_ = std::exchange(batch_, spare_ ? std::exchange(spare_, nullptr) : make_batch());
  if (Status posted = reader_->post(outstanding_); !posted) give_up_batch(posted.error());
}

// The reader has finished it, or is held: by this program, whose channel then ends, or by another program of its user.
void LocalAgentLink::finish_batch(TimeNs now) {
  if (lost_) return give_up_batch(why_);
  if (outstanding_->is_done()) {
    judge(outstanding_->reads);
    const Failure exhausted{Error::no_memory, "out of memory"};
    tell(outstanding_->reads, outstanding_->ran_out_of_memory() ? &exhausted : nullptr);
    outstanding_->reads.clear();
    outstanding_->reset();
    spare_ = std::exchange(outstanding_, nullptr);
    return;
  }
  if (!reader_->is_held(now)) return;
  const double patience_s = static_cast<double>(reader_->patience_ns()) / second_ns;
  if (!reader_->is_at(*outstanding_)) {
    const Failure why{Error::timeout,
                      fmt::format("a read of another program of user {} has waited {:.3g} s for pages that the program "
                                  "or a file system supplies: until that read ends, no memory of this user's programs "
                                  "is read",
                                  peer_.uid, patience_s)};
    return give_up_batch(why);
  }
  lose(
      {Error::timeout,
       fmt::format("a read of process {} at address {:#x} has waited for {:.3g} s: the program (userfaultfd) or a file "
                   "system (FUSE, a file server) has to supply pages there, and does not",
                   peer_.pid, outstanding_->reads.address(), patience_s)});
  give_up_batch(why_);
}

// The thread may still use it.
void LocalAgentLink::give_up_batch(const Failure& why) {
  if (!outstanding_) return;
  outstanding_->reads.abandon();
  reader_->withdraw(*outstanding_);
  tell(outstanding_->reads, &why);
  outstanding_.reset();
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
    // The host must see writes in the order of posting, and words whole.
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
  std::array<epoll_event, 2> events;
  const int ready = epoll_wait(life_.get(), events.data(), events.size(), 0);
  if (ready < 0) return errno == EINTR && host_lives();
  return std::all_of(events.begin(), events.begin() + ready,
                     [](const epoll_event& event) { return event.events == EPOLLOUT; });
}

// ---- the control socket

void LocalAgentLink::wake() {
  if (lost_) return;
  if (auto sent = socket_.send_wake(); !sent) lose(std::move(sent).error());
  watch_room();
}

Status LocalAgentLink::hand_over(std::uint64_t ticket, int fd) {
  if (lost_) return tl::unexpected<Failure>(why_);
  Status sent = socket_.send(ControlType::descriptor, std::as_bytes(std::span(&ticket, 1)), fd);
  watch_room();
  return sent;
}

// The owner may sleep while output waits, and has no other sign that the program reads again.
void LocalAgentLink::watch_room() {
  const bool waits = socket_.output_waits();
  if (lost_ || waits == room_watched_) return;
  room_watched_ = waits;
  Status watched =
      watch_life(life_.get(), EPOLL_CTL_MOD, socket_.fd(), EPOLLRDHUP | (waits ? EPOLLOUT : EPOLL_EVENTS{}));
  if (!watched) lose(std::move(watched).error());
}

std::size_t LocalAgentLink::poll(TimeNs now, std::span<LinkEvent> events) {
  if (told_) return 0;
  const bool is_due = readable_ || (!is_watched_ && (now >= next_look_ || ++polls_since_look_ >= polls_between_checks));
  if (!lost_ && is_due) {
    readable_ = false;
    next_look_ = deadline_after(now, look_interval_ns);
    polls_since_look_ = 0;
    look();
  }
  finish_reads(now);
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
  if (has_ended(peer_)) return lose({Error::peer_lost, "the program ended"});
  watch_room();
}

Status LocalAgentLink::take_frames() {
  for (unsigned taken = 0; taken < frames_of_a_local_look; ++taken) {
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
  readable_ = true;  // there may be more
  return {};
}

// A segment that finds no room fails its request, not the channel.
Status LocalAgentLink::take_segment(Bytes payload) {
  OFP_ASSIGN(const wire::SegmentNotice notice, wire::decode_segment_notice(payload));
  const std::uint32_t number = index_of(notice.region);
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
  SegmentMemory& memory = segments_[index_of(region)];
  segment_bytes_ -= memory.length();
  --segment_count_;
  memory = SegmentMemory();
  return {};
}

void LocalAgentLink::lose(Failure why, bool tells) {
  if (lost_) return;
  lost_ = true;
  why_ = std::move(why);
  if (tells || why_.code != Error::peer_lost) send_refusal(socket_, why_);
  socket_.shut_down();
}

void LocalAgentLink::close() {
  lost_ = told_ = true;
  give_up_batch(why_);
  batch_->reads.clear();
  socket_.shut_down();
  life_.reset();
  socket_.close();
  wakes_.reset();
  peer_.pidfd.reset();
  reader_.reset();
  regions_ = RegionTable();
}

}  // namespace offpath::link
