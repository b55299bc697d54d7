#include "link/stream/stream_agent_link.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;
using wire::TransferPiece;
using wire::TransferRequest;

namespace {

constexpr unsigned polls_between_looks = 64;  // for a clock that stands still
constexpr std::uint64_t look_bytes_max = 4 * 1024 * 1024;
constexpr unsigned look_frames_max = 1024;
constexpr std::size_t vectors_max = 256;
constexpr std::uint64_t read_part_bytes_max = 64 * 1024 * 1024;
constexpr std::uint64_t write_part_bytes_max = wire::data_frame_bytes_max - wire::streamed_token_bytes;

}  // namespace

Result<std::unique_ptr<StreamAgentLink>> StreamAgentLink::create(ControlSocket socket,
                                                                 std::uint64_t channel_segment_bytes,
                                                                 const SegmentLimits& limits, std::string reason) {
  OFP_TRY(socket.outlast_closed_windows());
  Fd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events) return fail_errno(errno, "epoll_create1");
  Fd more(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!more) return fail_errno(errno, "eventfd");
  epoll_event readable{EPOLLIN, {}}, nothing{0, {}};
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, socket.fd(), &readable) != 0 ||
      epoll_ctl(events.get(), EPOLL_CTL_ADD, more.get(), &nothing) != 0 ||
      epoll_ctl(events.get(), EPOLL_CTL_ADD, socket.silence_fd(), &readable) != 0)
    return fail_errno(errno, "epoll_ctl");
  return std::unique_ptr<StreamAgentLink>(new StreamAgentLink(std::move(socket), channel_segment_bytes, limits,
                                                              std::move(reason), std::move(events), std::move(more)));
}

StreamAgentLink::StreamAgentLink(ControlSocket socket, std::uint64_t channel_segment_bytes, const SegmentLimits& limits,
                                 std::string reason, Fd events_fd, Fd more_fd)
    : socket_(std::move(socket)),
      events_fd_(std::move(events_fd)),
      more_fd_(std::move(more_fd)),
      limits_(limits),
      segments_{channel_segment_bytes},
      segment_bytes_(channel_segment_bytes) {
  traits_ = {"tcp", false, false, 1, std::move(reason), true};
  OFP_ASSERT(regions_.attach(wire::channel_segment, 0, 0, channel_segment_bytes, 0));
  socket_.allow_streamed(ControlType::read_data);
}

Status StreamAgentLink::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                     std::uint32_t key) {
  return regions_.attach_range(range, generation, base, length, key);
}

Status StreamAgentLink::detach_range(RegionId range, std::uint32_t generation) {
  return regions_.detach_range(range, generation);
}

// ---- posting

StreamAgentLink::Transfer& StreamAgentLink::new_transfer(bool is_read, std::uint64_t token) {
  if (idle_.empty()) {
    transfers_.push_back(std::make_unique<Transfer>());
    idle_.push_back(transfers_.back().get());
  }
  Transfer& transfer = *idle_.back();
  idle_.pop_back();
  transfer.is_read = is_read;
  transfer.token = token;
  transfer.number = next_number_++;
  transfer.pieces.clear();
  transfer.asked_piece = transfer.asked_offset = transfer.moved_piece = transfer.moved_offset = 0;
  transfer.parts_under_way = 0;
  transfer.all_asked = false;
  transfer.status = {};
  return transfer;
}

void StreamAgentLink::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
  if (told_) return;
  Transfer& transfer = new_transfer(true, token);
  for (const ReadPiece& piece : pieces) {
    auto region = regions_.resolve(piece.region, piece.generation, piece.offset, piece.length);
    if (!region) {
      transfer.status = tl::unexpected<Failure>(std::move(region).error());
      break;
    }
    if (piece.length > 0)
      transfer.pieces.push_back({{piece.region, piece.generation, piece.offset, piece.length}, piece.to});
  }
  begin(transfer);
}

void StreamAgentLink::write(std::uint64_t token, std::span<const WritePiece> pieces) {
  if (told_) return;
  Transfer& transfer = new_transfer(false, token);
  for (const WritePiece& piece : pieces) {
    auto region = regions_.resolve(piece.segment, 0, piece.offset, piece.length);
    if (!wire::is_segment(piece.segment)) region = fail(Error::denied, "range {} is read-only", piece.segment);
    if (!region) {
      transfer.status = tl::unexpected<Failure>(std::move(region).error());
      break;
    }
    if (piece.length > 0)
      transfer.pieces.push_back({{piece.segment, 0, piece.offset, piece.length}, const_cast<std::byte*>(piece.from)});
  }
  begin(transfer);
}

void StreamAgentLink::begin(Transfer& transfer) {
  if (lost_) transfer.status = tl::unexpected<Failure>(why_);
  if (transfers_.size() - idle_.size() > operations_max)
    transfer.status = fail(Error::would_block, "{} transfers are under way, at most {} are allowed",
                           transfers_.size() - idle_.size(), operations_max);
  if (!transfer.status || transfer.pieces.empty()) {
    transfer.all_asked = true;
    return finish(transfer);
  }
  waiting_.push_back(&transfer);
  if (auto pumped = pump(); !pumped) lose(std::move(pumped).error());
}

void StreamAgentLink::finish(Transfer& transfer) {
  const auto kind = transfer.is_read ? LinkEvent::Kind::read_done : LinkEvent::Kind::write_done;
  events_.push(kind, transfer.token).status = std::move(transfer.status);
  transfer.status = {};
  idle_.push_back(&transfer);
}

void StreamAgentLink::end_part(Transfer& transfer) {
  --transfer.parts_under_way;
  if (transfer.all_asked && transfer.parts_under_way == 0) finish(transfer);
}

// ---- sending

Status StreamAgentLink::pump() {
  for (;;) {
    if (sending_ != nullptr) {
      OFP_ASSIGN(const bool sent, send_bytes());
      if (!sent) break;
    }
    OFP_TRY(socket_.flush());
    if (socket_.output_waits() || waiting_.empty() || parts_.size() >= parts_max) break;
    OFP_TRY(send_part(*waiting_.front()));
  }
  watch();
  return {};
}

Status StreamAgentLink::send_part(Transfer& transfer) {
  const std::uint64_t bytes_max = transfer.is_read ? read_part_bytes_max : write_part_bytes_max;
  scratch_.clear();
  std::uint64_t bytes = 0;
  bool is_answered = transfer.is_read;
  for (std::size_t count = 0; count < TransferRequest::pieces_max && transfer.asked_piece < transfer.pieces.size();
       ++count) {
    TransferPiece piece = transfer.pieces[transfer.asked_piece].region;
    piece.offset += transfer.asked_offset;
    piece.length -= transfer.asked_offset;
    if (piece.length > bytes_max - bytes) piece.length = bytes_max - bytes;
    if (piece.length == 0) break;
    bytes += piece.length;
    is_answered |= piece.region != wire::channel_segment;
    transfer.asked_offset += piece.length;
    if (transfer.asked_offset == transfer.pieces[transfer.asked_piece].region.length) {
      ++transfer.asked_piece;
      transfer.asked_offset = 0;
    }
    const Bytes encoded = std::as_bytes(std::span(&piece, 1));
    scratch_.insert(scratch_.end(), encoded.begin(), encoded.end());
  }
  ++transfer.parts_under_way;
  if (transfer.asked_piece == transfer.pieces.size()) {
    transfer.all_asked = true;
    waiting_.pop_front();
  }
  if (is_answered) parts_.push_back({&transfer, bytes});
  request_.assign(sizeof(wire::ControlHeader), std::byte{});
  wire::encode(TransferRequest{transfer.number, scratch_}, request_);
  const Bytes payload = Bytes(request_).subspan(sizeof(wire::ControlHeader));
  if (transfer.is_read) return socket_.send(ControlType::read, payload);
  store(request_.data(), wire::ControlHeader{static_cast<std::uint32_t>(payload.size()), ControlType::write, 0});
  socket_.begin_stream(ControlType::write_data, transfer.number, static_cast<std::uint32_t>(bytes), request_);
  sending_ = &transfer;
  is_answered_ = is_answered;
  return {};
}

// Sends bytes of the current write; true once all are out.
Result<bool> StreamAgentLink::send_bytes() {
  while (socket_.streams()) {
    vectors_.clear();
    std::size_t offset = sending_->moved_offset;
    for (std::size_t at = sending_->moved_piece; at < sending_->pieces.size() && vectors_.size() < vectors_max; ++at) {
      const Piece& piece = sending_->pieces[at];
      vectors_.push_back({piece.memory + offset, piece.region.length - offset});
      offset = 0;
    }
    const std::size_t head_and_bytes = socket_.stream_left();
    OFP_ASSIGN(std::size_t sent, socket_.stream(vectors_));
    while (sent > 0) {
      const std::uint64_t left = sending_->pieces[sending_->moved_piece].region.length - sending_->moved_offset;
      const std::uint64_t step = std::min<std::uint64_t>(left, sent);
      sent -= step;
      sending_->moved_offset += step;
      if (step == left) {
        ++sending_->moved_piece;
        sending_->moved_offset = 0;
      }
    }
    if (socket_.streams() && socket_.stream_left() == head_and_bytes) return false;
  }
  Transfer& sent = *std::exchange(sending_, nullptr);
  if (!is_answered_) end_part(sent);
  return true;
}

void StreamAgentLink::wake() {
  if (lost_) return;
  auto sent = socket_.send_wake();
  if (!sent) return lose(std::move(sent).error());
  watch();
}

// Keeps event_fd() readable as long as poll has work.
void StreamAgentLink::watch() {
  if (lost_) return;
  if (const bool wanted = socket_.wants_write(); wanted != room_watched_) {
    epoll_event event{wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, {}};
    if (epoll_ctl(events_fd_.get(), EPOLL_CTL_MOD, socket_.fd(), &event) == 0) room_watched_ = wanted;
  }
  if (more_ != more_watched_) {
    epoll_event event{more_ ? EPOLLIN : 0u, {}};
    if (epoll_ctl(events_fd_.get(), EPOLL_CTL_MOD, more_fd_.get(), &event) == 0) more_watched_ = more_;
  }
}

// ---- receiving

std::size_t StreamAgentLink::poll(TimeNs now, std::span<LinkEvent> events) {
  if (told_) return 0;
  const bool due = more_ || readable_ || !parts_.empty() || socket_.output_waits() || socket_.silence_due(now) ||
                   (!is_watched_ && (now >= next_look_ || ++polls_since_look_ >= polls_between_looks));
  if (!lost_ && due) {
    readable_ = false;
    next_look_ = deadline_after(now, look_interval_ns);
    polls_since_look_ = 0;
    look(now);
  }
  std::size_t count = events_.take(events);
  if (woken_ && count < events.size()) {
    events[count++] = {LinkEvent::Kind::woken, 0, {}, Fd(), std::exchange(requests_sent_, {})};
    woken_ = false;
  }
  if (lost_ && events_.empty() && count < events.size()) {
    events[count++] = {LinkEvent::Kind::closed, 0, tl::unexpected<Failure>(why_), Fd()};
    told_ = true;
  }
  return count;
}

void StreamAgentLink::look(TimeNs now) {
  more_ = false;
  auto looked = receive();
  if (looked) looked = pump();
  if (looked) looked = socket_.look_for_silence(now);
  if (!looked) lose(std::move(looked).error());
}

Status StreamAgentLink::receive() {
  std::uint64_t bytes = 0;
  for (unsigned frames = 0; frames < look_frames_max && bytes < look_bytes_max;) {
    if (socket_.streamed_left() > 0) {
      OFP_ASSIGN(const std::size_t got, receive_data());
      if (got == 0) return {};
      bytes += got;
      continue;
    }
    ControlSocket::Frame frame;
    OFP_ASSIGN(const bool there, socket_.next(frame, frames > 0));
    if (!there) return {};
    OFP_TRY(take_frame(frame));
    ++frames;
  }
  more_ = true;  // perhaps in the socket's own buffer
  return {};
}

Status StreamAgentLink::take_frame(const ControlSocket::Frame& frame) {
  switch (frame.type) {
    case ControlType::wake:
      woken_ = true;
      requests_sent_.clear();  // not all that were posted: the ring is looked at
      return {};
    case ControlType::requests:
      woken_ = true;
      return take_requests(frame.payload, requests_sent_);
    case ControlType::read_data:
      return begin_data(frame.payload);
    case ControlType::read_done:
      return take_outcome(frame.payload, true);
    case ControlType::write_done:
      return take_outcome(frame.payload, false);
    case ControlType::segment:
      return take_segment(frame.payload);
    case ControlType::segment_gone:
      return drop_segment(frame.payload);
    default:
      return unexpected_frame(frame.type, "on an open channel");
  }
}

Status StreamAgentLink::begin_data(Bytes token) {
  const auto number = load<std::uint64_t>(token.data());
  if (parts_.empty() || !parts_.front().transfer->is_read || parts_.front().transfer->number != number)
    return fail(Error::protocol, "read_data: for transfer {}, which is not the next", number);
  Part& part = parts_.front();
  if (socket_.streamed_left() > part.bytes)
    return fail(Error::protocol, "read_data: {} bytes, expected {}", socket_.streamed_left(), part.bytes);
  part.bytes -= socket_.streamed_left();
  return {};
}

Result<std::size_t> StreamAgentLink::receive_data() {
  Transfer& transfer = *parts_.front().transfer;
  vectors_.clear();
  std::size_t offset = transfer.moved_offset;
  for (std::size_t at = transfer.moved_piece; at < transfer.pieces.size() && vectors_.size() < vectors_max; ++at) {
    const Piece& piece = transfer.pieces[at];
    vectors_.push_back({piece.memory + offset, piece.region.length - offset});
    offset = 0;
  }
  OFP_ASSIGN(const std::size_t got, socket_.receive(vectors_));
  for (std::uint64_t left_over = got; left_over > 0;) {
    const std::uint64_t left = transfer.pieces[transfer.moved_piece].region.length - transfer.moved_offset;
    const std::uint64_t step = std::min(left, left_over);
    left_over -= step;
    transfer.moved_offset += step;
    if (step == left) {
      ++transfer.moved_piece;
      transfer.moved_offset = 0;
    }
  }
  return got;
}

Status StreamAgentLink::take_outcome(Bytes payload, bool of_read) {
  OFP_ASSIGN(wire::Outcome outcome, wire::decode_outcome(payload));
  if (!of_read && !outcome.status && (parts_.empty() || parts_.front().transfer->number != outcome.token))
    return tl::unexpected(std::move(outcome.status).error());  // of a write that is answered only then
  const bool is_sent = parts_.size() > 1 || sending_ == nullptr || !is_answered_;  // the oldest part
  if (parts_.empty() || parts_.front().transfer->is_read != of_read ||
      parts_.front().transfer->number != outcome.token || (!of_read && !is_sent))
    return fail(Error::protocol, "the outcome of transfer {}, which is not the next", outcome.token);
  const Part part = parts_.front();
  parts_.pop_front();
  Transfer& transfer = *part.transfer;
  if (of_read && part.bytes > 0) {
    if (outcome.status)
      return fail(Error::protocol, "read_done: {} bytes of transfer {} are missing", part.bytes, outcome.token);
    skip(transfer, part.bytes);
  }
  if (!outcome.status && transfer.status) transfer.status = std::move(outcome.status);
  end_part(transfer);
  return {};
}

void StreamAgentLink::skip(Transfer& transfer, std::uint64_t bytes) {
  while (bytes > 0) {
    const std::uint64_t left = transfer.pieces[transfer.moved_piece].region.length - transfer.moved_offset;
    const std::uint64_t step = std::min(left, bytes);
    bytes -= step;
    transfer.moved_offset += step;
    if (step == left) {
      ++transfer.moved_piece;
      transfer.moved_offset = 0;
    }
  }
}

Status StreamAgentLink::take_segment(Bytes payload) {
  OFP_ASSIGN(const wire::SegmentNotice notice, wire::decode_segment_notice(payload));
  const std::uint32_t number = notice.region & ~wire::segment_flag;
  if (number >= limits_.count_max || segment_count_ >= limits_.count_max)
    return fail(Error::too_large, "segment {}: at most {} segments are allowed", number, limits_.count_max);
  if (notice.length > limits_.bytes_max - segment_bytes_)
    return fail(Error::too_large, "segment {}: its {} bytes and the {} of other segments are more than the {} allowed",
                number, notice.length, segment_bytes_, limits_.bytes_max);
  if (number < segments_.size() && segments_[number] != 0)
    return fail(Error::protocol, "segment {}: announced twice", number);
  OFP_TRY(regions_.attach(notice.region, 0, 0, notice.length, notice.key));
  if (segments_.size() <= number) segments_.resize(number + 1);
  segments_[number] = notice.length;
  segment_bytes_ += notice.length;
  ++segment_count_;
  return socket_.send(ControlType::segment_ok, std::as_bytes(std::span(&notice.region, 1)));
}

Status StreamAgentLink::drop_segment(Bytes payload) {
  OFP_ASSIGN(const RegionId region, wire::decode_segment_number(payload));
  if (region == wire::channel_segment) return fail(Error::protocol, "the channel segment cannot be withdrawn");
  OFP_TRY(regions_.detach(region, 0));
  std::uint64_t& length = segments_[region & ~wire::segment_flag];
  segment_bytes_ -= length;
  --segment_count_;
  length = 0;
  return {};
}

// ---- the end

void StreamAgentLink::lose(Failure why, bool tells) {
  if (lost_) return;
  lost_ = true;
  why_ = std::move(why);
  if ((tells || why_.code != Error::peer_lost) && !socket_.streams()) send_refusal(socket_, why_);
  socket_.shut_down();
  sending_ = nullptr;
  for (const auto& transfer : transfers_) {
    if (std::ranges::find(idle_, transfer.get()) != idle_.end()) continue;
    if (transfer->status) transfer->status = tl::unexpected<Failure>(why_);
    finish(*transfer);
  }
  waiting_.clear();
  parts_.clear();
}

void StreamAgentLink::close() {
  lost_ = told_ = true;
  socket_.shut_down();
  socket_.close();
  events_fd_.reset();
  more_fd_.reset();
  waiting_.clear();
  parts_.clear();
  sending_ = nullptr;
  regions_ = RegionTable();
}

}  // namespace offpath::link
