#include "link/stream/stream_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "base/clock.h"
#include "base/sleep_flag.h"
#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;
using wire::TransferPiece;
using wire::TransferRequest;

namespace {

constexpr std::uint64_t frame_bytes_max = 1024 * 1024;
constexpr std::uint64_t copied_bytes_max = 64 * 1024;  // of a write that is received first and then copied into place
constexpr std::size_t answer_vectors_max = 256;
constexpr auto detach_wait = std::chrono::seconds(1);

alignas(4096) constexpr std::array<std::byte, 64 * 1024> zeros{};

void set(const Fd& event) noexcept {
  const std::uint64_t one = 1;
  (void)!::write(event.get(), &one, sizeof one);
}

void clear(const Fd& event) noexcept {
  std::uint64_t count = 0;
  (void)!::read(event.get(), &count, sizeof count);
}

// The program may read a word at any moment: words are stored whole, and pieces become visible in order.
void put(std::byte* to, const std::byte* from, std::uint64_t length) noexcept {
  std::atomic_thread_fence(std::memory_order_release);
  if (reinterpret_cast<std::uintptr_t>(to) % 8 == 0 && length % 8 == 0 && length <= 64) {
    for (std::uint64_t at = 0; at < length; at += 8)
      std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(to + at))
          .store(load<std::uint64_t>(from + at), std::memory_order_release);
  } else {
    std::memcpy(to, from, length);
  }
}

}  // namespace

// ---- life

Result<std::unique_ptr<StreamServer>> StreamServer::create(ControlSocket socket) {
  OFP_TRY(socket.outlast_closed_windows());
  OFP_ASSIGN(GuardedCopy guarded, GuardedCopy::create());
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd kick(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event || !kick) return fail_errno(errno, "eventfd");
  return std::unique_ptr<StreamServer>(
      new StreamServer(std::move(socket), std::move(guarded), std::move(event), std::move(kick)));
}

StreamServer::StreamServer(ControlSocket socket, GuardedCopy guarded, Fd event, Fd kick)
    : socket_(std::move(socket)), event_(std::move(event)), kick_(std::move(kick)), guarded_(std::move(guarded)) {
  socket_.allow_streamed(ControlType::write_data);
}

Status StreamServer::start(std::shared_ptr<StreamThreads> threads) {
  if (threads) {
    threads_ = std::move(threads);
    OFP_ASSIGN(const std::uint64_t number, threads_->add(*this, {socket_.fd(), socket_.silence_fd()}));
    number_ = number;
    started_ = true;
    return {};
  }
  OFP_ASSIGN(thread_, begin_stream_thread(run, this));
  started_ = true;
  return {};
}

void StreamServer::stop() {
  if (!started_) return;
  started_ = false;
  stopping_ = true;
  set(kick_);
  socket_.shut_down();
  if (threads_)
    threads_->remove(number_);
  else
    pthread_join(thread_, nullptr);
  fail_all(closed_channel());
  close_copies();
}

void StreamServer::close_copies() {
  socket_.close();
  event_.reset();
  kick_.reset();
}

void* StreamServer::run(void* server) {
  pthread_setname_np(pthread_self(), "offpath-tcp");
  static_cast<StreamServer*>(server)->serve();
  return nullptr;
}

void StreamServer::serve() {
  Status served;
  for (bool again = false; served && !stopping_;) {
    const auto next = serve_next(again);
    again = next && *next;
    if (!next)
      served = tl::unexpected<Failure>(next.error());
    else if (!*next)
      served = wait_socket(false);
  }
  if (!stopping_) end(std::move(served).error());
}

StreamServer::Served StreamServer::serve_waiting() {
  for (bool again = false; !stopping_; again = true) {
    auto next = serve_next(again);
    if (!next) {
      if (!stopping_) end(std::move(next).error());
      return Served::ended;
    }
    if (*next) continue;
    send_pending_wake();
    std::unique_lock lock(output_);
    if (auto heard = socket_.look_for_silence(monotonic_ns()); !heard) {
      lock.unlock();
      end(std::move(heard).error());
      return Served::ended;
    }
    return socket_.wants_write() ? Served::needs_room : Served::idle;
  }
  return Served::ended;
}

void StreamServer::end(Failure why) {
  fail_all(told_why_ ? std::move(why) : agent_lost(socket_, std::move(why)));
  socket_.shut_down();
}

// Wakes the thread, if it waits.
void StreamServer::kick() noexcept {
  set(kick_);
  if (threads_) threads_->look_at(number_);
}

void StreamServer::fail_all(Failure why) {
  {
    const std::lock_guard lock(state_);
    if (!lost_) lost_ = std::move(why);
  }
  changed_.notify_all();
  signal_program();
}

void StreamServer::signal_program() noexcept { set(event_); }

// ---- the thread: frames

// False: nothing has arrived.
Result<bool> StreamServer::serve_next(bool again) {
  ControlSocket::Frame frame;
  // Receiving and sending share only the TLS session.
  std::unique_lock lock(output_, std::defer_lock);
  if (socket_.tls() != nullptr) lock.lock();
  auto there = socket_.next(frame, again);
  if (lock.owns_lock()) release_output(lock);
  if (!there) return tl::unexpected<Failure>(std::move(there).error());
  if (*there) {
    OFP_TRY(take_frame(frame));
    return true;
  }
  lock.lock();
  auto flushed = socket_.flush();
  release_output(lock);
  OFP_TRY(flushed);
  return false;
}

Status StreamServer::take_frame(const ControlSocket::Frame& frame) {
  if (write_expected_ && frame.type != ControlType::write_data)
    return unexpected_frame(frame.type, "between write and write_data");
  switch (frame.type) {
    case ControlType::wake:
      signal_program();
      return {};
    case ControlType::segment_ok: {
      OFP_ASSIGN(const RegionId segment, wire::decode_segment_number(frame.payload));
      {
        const std::lock_guard lock(state_);
        acknowledged_.arrived(segment);
      }
      changed_.notify_all();
      return {};
    }
    case ControlType::read:
      return serve_read(frame.payload);
    case ControlType::write: {
      OFP_TRY(wire::decode_transfer(frame.payload));
      request_.assign(frame.payload.begin(), frame.payload.end());
      write_expected_ = true;
      return {};
    }
    case ControlType::write_data:
      if (!write_expected_) return unexpected_frame(frame.type, "without a write before it");
      write_expected_ = false;
      return serve_write(load<std::uint64_t>(frame.payload.data()));
    case ControlType::refusal:
      told_why_ = true;
      return refused(frame.payload, "the agent ended the channel");
    default:
      return unexpected_frame(frame.type, "on an open channel");
  }
}

Status StreamServer::wait_socket(bool for_output) {
  short wanted = for_output ? POLLOUT : POLLIN;
  {
    const std::lock_guard lock(output_);
    if (!for_output && socket_.wants_write()) wanted |= POLLOUT;
    if (for_output && socket_.tls() != nullptr && !socket_.wants_write()) wanted = POLLIN;
  }
  pollfd looks[3] = {{socket_.fd(), wanted, 0}, {kick_.get(), POLLIN, 0}, {socket_.silence_fd(), POLLIN, 0}};
  if (poll(looks, 3, -1) < 0 && errno != EINTR) return fail_errno(errno, "poll");
  if (looks[1].revents != 0) clear(kick_);
  if (looks[2].revents != 0) {
    const std::lock_guard lock(output_);
    OFP_TRY(socket_.look_for_silence(monotonic_ns()));
  }
  if (stopping_) return tl::unexpected<Failure>(closed_channel());
  send_pending_wake();
  return {};
}

// ---- the thread: reads

Status StreamServer::resolve(const TransferPiece& piece, bool for_write, std::uint64_t& address) const {
  if (for_write && !wire::is_segment(piece.region)) return fail(Error::denied, "range {} is read-only", piece.region);
  OFP_ASSIGN(const Region* region, regions_.resolve(piece.region, piece.generation, piece.offset, piece.length));
  address = region->base + piece.offset;
  return {};
}

Status StreamServer::serve_read(Bytes payload) {
  OFP_ASSIGN(const TransferRequest request, wire::decode_transfer(payload));
  Status outcome;
  std::size_t at = 0;
  std::uint64_t offset = 0;
  while (at < request.count() && outcome) {
    vectors_.clear();
    frame_regions_.clear();
    std::uint64_t bytes = 0;
    {
      const std::lock_guard lock(table_);
      while (at < request.count() && bytes < frame_bytes_max && vectors_.size() < answer_vectors_max) {
        TransferPiece piece = request.piece(at);
        const std::uint64_t step = std::min(piece.length - offset, frame_bytes_max - bytes);
        const bool ends = offset + step == piece.length;
        piece.offset += offset;  // no overflow: the whole piece resolved when offset was 0
        piece.length -= offset;
        std::uint64_t address = 0;
        outcome = resolve(piece, false, address);
        if (!outcome) break;
        if (step > 0) {
          vectors_.push_back({reinterpret_cast<void*>(address), step});
          frame_regions_.push_back(piece.region);
        }
        bytes += step;
        offset = ends ? 0 : offset + step;
        if (ends) ++at;
      }
      if (outcome) held_ = frame_regions_;
    }
    if (!outcome || bytes == 0) continue;
    auto sent = send_frame(request.token, static_cast<std::uint32_t>(bytes), outcome);
    release_frame();
    OFP_TRY(sent);
  }
  return answer(ControlType::read_done, request.token, std::move(outcome));
}

// Sends the whole frame, even if its memory disappears: the other side expects all of its bytes.
Status StreamServer::send_frame(std::uint64_t number, std::uint32_t bytes, Status& outcome) {
  vector_ = 0;
  chunk_ = {};
  for (bool begun = false;;) {
    std::unique_lock lock(output_);
    std::size_t sent = 0;
    if (!begun) {
      OFP_TRY(socket_.flush());
      begun = !socket_.output_waits();
      if (begun) socket_.begin_stream(ControlType::read_data, number, bytes);
    }
    if (begun) {
      OFP_ASSIGN(sent, send_some(outcome));
      if (!socket_.streams()) {
        release_output(lock);
        return {};
      }
    }
    release_output(lock);
    if (sent == 0) OFP_TRY(wait_socket(true));
  }
}

Result<std::size_t> StreamServer::send_some(Status& outcome) {
  const bool copied = socket_.tls() != nullptr;
  if (copied && chunk_.empty() && socket_.stream_left() > 0) {
    const iovec& next = vectors_[vector_];
    auto copy = guarded_.copy(static_cast<const std::byte*>(next.iov_base), next.iov_len);
    if (!copy && copy.error().code != Error::unreadable) return tl::unexpected<Failure>(std::move(copy).error());
    if (!copy) {
      outcome = send_zeros_instead();
      return std::size_t{1};
    }
    chunk_ = *copy;
  }
  const iovec chunk{const_cast<std::byte*>(chunk_.data()), chunk_.size()};
  const auto from = copied ? std::span(&chunk, 1) : std::span<const iovec>(vectors_).subspan(vector_);
  auto sent = socket_.stream(from, true);  // another frame or the outcome follows at once
  if (!sent && sent.error().code == Error::unreadable) {
    outcome = send_zeros_instead();
    return std::size_t{1};
  }
  if (!sent) return sent;
  if (copied) chunk_ = chunk_.subspan(*sent);
  advance(*sent);
  return sent;
}

void StreamServer::advance(std::size_t moved) noexcept {
  while (moved > 0) {
    iovec& next = vectors_[vector_];
    const std::size_t step = std::min(moved, next.iov_len);
    next.iov_base = static_cast<std::byte*>(next.iov_base) + step;
    next.iov_len -= step;
    moved -= step;
    if (next.iov_len == 0) ++vector_;
  }
}

Status StreamServer::send_zeros_instead() {
  auto why = fail(Error::unreadable, "the announced memory cannot be read");
  for (std::size_t i = vector_; i < vectors_.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(vectors_[i].iov_base);
    const std::uint64_t readable = guarded_.readable_bytes(from, vectors_[i].iov_len);
    if (readable == vectors_[i].iov_len) continue;
    const std::lock_guard lock(table_);
    if (const Region* region = regions_.find(frame_regions_[i]); region != nullptr)
      why = fail(Error::unreadable,
                 "range {} of {} bytes: no memory is mapped at its offset {}: it was freed after it was announced",
                 frame_regions_[i], region->length, reinterpret_cast<std::uint64_t>(from) + readable - region->base);
    break;
  }
  vectors_.clear();
  for (std::size_t left = socket_.stream_left(); left > 0;) {
    const std::size_t step = std::min(left, zeros.size());
    vectors_.push_back({const_cast<std::byte*>(zeros.data()), step});
    left -= step;
  }
  vector_ = 0;
  return why;
}

// ---- the thread: writes

Status StreamServer::serve_write(std::uint64_t number) {
  OFP_ASSIGN(const TransferRequest request, wire::decode_transfer(request_));
  if (request.token != number)
    return fail(Error::protocol, "write_data: for transfer {}, expected {}", number, request.token);
  const std::uint32_t bytes = socket_.streamed_left();
  std::uint64_t total = 0;
  Status outcome;
  vectors_.clear();
  frame_regions_.clear();
  bool to_lines = false, to_others = false;  // of the channel segment; of other segments
  {
    const std::lock_guard lock(table_);
    for (std::size_t i = 0; i < request.count(); ++i) {
      const TransferPiece piece = request.piece(i);
      if (!checked_add(total, piece.length, total)) total = bytes + 1ull;
      std::uint64_t address = 0;
      if (outcome) outcome = resolve(piece, true, address);
      (piece.region == wire::channel_segment ? to_lines : to_others) = true;
      vectors_.push_back({reinterpret_cast<void*>(address), piece.length});
      frame_regions_.push_back(piece.region);
    }
    if (outcome) held_ = frame_regions_;
  }
  if (total != bytes) return fail(Error::protocol, "write_data: {} bytes, but its pieces have {}", bytes, total);

  Status received;
  if (outcome) {
    // The program looks at lines meanwhile: only copied pieces become visible in their order.
    const bool copied = to_lines || bytes <= copied_bytes_max || socket_.tls() != nullptr;
    received = copied ? receive_copied(request, outcome) : receive_in_place(outcome);
    release_frame();
  }
  OFP_TRY(received);
  while (socket_.streamed_left() > 0) {  // of a failed write
    OFP_TRY(receive_some({}));
  }
  if (outcome && !to_others) return {};
  return answer(ControlType::write_done, number, std::move(outcome));
}

// Receives into `to`, or discards if that is empty; waits for at least one byte.
Result<std::size_t> StreamServer::receive_some(std::span<const iovec> to) {
  for (;;) {
    std::unique_lock lock(output_, std::defer_lock);
    if (socket_.tls() != nullptr) lock.lock();
    auto got = to.empty() ? socket_.discard() : socket_.receive(to);
    if (lock.owns_lock()) release_output(lock);
    if (!got || *got > 0) return got;
    OFP_TRY(wait_socket(false));
  }
}

Status StreamServer::receive_copied(const TransferRequest& request, Status& outcome) {
  std::uint64_t position = 0;
  while (socket_.streamed_left() > 0 && outcome) {
    const std::size_t length = std::min<std::size_t>(copied_bytes_max, socket_.streamed_left());
    if (small_.size() < length) small_.resize(length);  // most writes are of a few lines
    for (std::size_t at = 0; at < length;) {
      const iovec to{small_.data() + at, length - at};
      OFP_ASSIGN(const std::size_t got, receive_some({&to, 1}));
      at += got;
    }
    outcome = apply(request, position, Bytes(small_).first(length));
    position += length;
  }
  return {};
}

// Copies the write's bytes from `position` on to their places. Under the lock, so that nothing is retired meanwhile.
Status StreamServer::apply(const TransferRequest& request, std::uint64_t position, Bytes bytes) {
  const std::lock_guard lock(table_);
  std::uint64_t begins = 0;
  for (std::size_t i = 0; i < request.count() && !bytes.empty(); ++i) {
    const TransferPiece piece = request.piece(i);
    const std::uint64_t ends = begins + piece.length;
    if (position < ends) {
      std::uint64_t address = 0;
      OFP_TRY(resolve(piece, true, address));
      const std::uint64_t step = std::min<std::uint64_t>(ends - position, bytes.size());
      put(reinterpret_cast<std::byte*>(address + (position - begins)), bytes.data(), step);
      bytes = bytes.subspan(step);
      position += step;
    }
    begins = ends;
  }
  fence_before_look();  // the write may be the agent's flag; a later read looks at the program's words
  return {};
}

Status StreamServer::receive_in_place(Status& outcome) {
  vector_ = 0;
  while (socket_.streamed_left() > 0) {
    auto got = receive_some(std::span<const iovec>(vectors_).subspan(vector_));
    if (!got && got.error().code == Error::unreadable) {
      outcome = fail(Error::unreadable, "a segment was freed while it was written to");
      return {};
    }
    if (!got) return tl::unexpected<Failure>(std::move(got).error());
    advance(*got);
  }
  std::atomic_thread_fence(std::memory_order_release);
  return {};
}

Status StreamServer::answer(ControlType type, std::uint64_t number, Status outcome) {
  payload_.clear();
  wire::encode(wire::Outcome{number, std::move(outcome)}, payload_);
  for (;;) {
    std::unique_lock lock(output_);
    auto sent = socket_.flush();
    if (sent) sent = socket_.send(type, payload_);
    release_output(lock);
    if (sent || sent.error().code != Error::would_block) return sent;
    OFP_TRY(wait_socket(true));
  }
}

void StreamServer::release_frame() {
  {
    const std::lock_guard lock(table_);
    held_.clear();
    if (std::exchange(tells_moved_, false)) signal_program();
  }
  moved_.notify_all();
}

// ---- the program's threads

Status StreamServer::attach(RegionId region, std::uint32_t generation, std::uint64_t base, std::uint64_t length) {
  const std::lock_guard lock(table_);
  return regions_.attach(region, generation, base, length, 0);
}

void StreamServer::detach(RegionId region, std::uint32_t generation) {
  std::unique_lock lock(table_);
  (void)regions_.detach(region, generation);
  moved_.wait_for(lock, detach_wait, [&] { return std::ranges::find(held_, region) == held_.end(); });
}

void StreamServer::withdraw(RegionId region, std::uint32_t generation) {
  const std::lock_guard lock(table_);
  (void)regions_.detach(region, generation);
}

bool StreamServer::is_moving(RegionId region) {
  const std::lock_guard lock(table_);
  const bool moving = std::ranges::find(held_, region) != held_.end();
  tells_moved_ |= moving;
  return moving;
}

Status StreamServer::send(ControlType type, Bytes payload) {
  {
    const std::lock_guard lock(state_);
    if (lost_) return tl::unexpected<Failure>(*lost_);
  }
  std::unique_lock lock(output_);
  auto sent = socket_.send(type, payload);
  const bool waits = socket_.wants_write();
  release_output(lock);
  if (waits) kick();  // the thread has to wait for room
  return sent;
}

// A socket that is busy, or has no room, takes the wake alone.
void StreamServer::wake_agent(Bytes requests) {
  if (!requests.empty()) {
    std::unique_lock lock(output_, std::try_to_lock);
    if (lock && socket_.send(ControlType::requests, requests)) {
      const bool waits = socket_.wants_write();
      release_output(lock);
      if (waits) kick();
      return;
    }
  }
  wake_pending_.store(true);
  send_pending_wake();
}

void StreamServer::release_output(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  send_pending_wake();
}

// A thread that finds the socket busy leaves the wake to the thread that holds it, which calls this after unlocking.
void StreamServer::send_pending_wake() {
  fence_before_look();
  while (wake_pending_.load()) {
    std::unique_lock lock(output_, std::try_to_lock);
    if (!lock) return;
    bool waits = false;
    if (wake_pending_.exchange(false)) {
      (void)socket_.send_wake();  // the thread notices a connection that ended
      waits = socket_.wants_write();
    }
    lock.unlock();
    if (waits) kick();
    fence_before_look();
  }
}

Status StreamServer::await_acknowledgement(RegionId segment, TimeNs deadline) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(state_);
  const auto there = [&] { return lost_ || acknowledged_.has(segment); };
  if (deadline == never) {
    changed_.wait(lock, there);
  } else if (!changed_.wait_until(lock, Clock::time_point(std::chrono::nanoseconds(deadline)), there)) {
    return acknowledged_.give_up(segment);
  }
  if (lost_) return tl::unexpected<Failure>(*lost_);
  (void)acknowledged_.take(segment);
  return {};
}

void StreamServer::wait(TimeNs deadline) {
  pollfd look{event_.get(), POLLIN, 0};
  (void)poll_until({&look, 1}, deadline);
}

Status StreamServer::look() {
  clear(event_);
  const std::lock_guard lock(state_);
  if (!lost_) return {};
  signal_program();  // stays readable
  return tl::unexpected<Failure>(*lost_);
}

}  // namespace offpath::link
