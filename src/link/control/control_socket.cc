#include "link/control/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/sent_fds.h"
#include "link/address.h"
#include "wire/channel_layout.h"

namespace offpath::link {

using wire::ControlHeader;
using wire::ControlType;

namespace {

bool is_streamed(ControlType type) { return type == ControlType::read_data || type == ControlType::write_data; }

iovec piece_of(Bytes bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

}  // namespace

ControlSocket::ControlSocket(Fd socket, Kind kind, std::unique_ptr<TlsSession> tls,
                             std::shared_ptr<ReceivedFds::User> user)
    : socket_(user ? user->own(std::move(socket)) : std::move(socket)),
      kind_(kind),
      user_(std::move(user)),
      tls_(std::move(tls)),
      silence_ns_(kind == Kind::network ? silence_default_ns : 0) {
  // Otherwise the kernel drops a byte sent out of band, together with its descriptors.
  constexpr int on = 1;
  if (user_) (void)setsockopt(socket_.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
}

void ControlSocket::end_when_silent(TimeNs silence_ns) noexcept {
  silence_ns_ = silence_ns;
  link::end_when_silent(socket_.get(), silence_ns);
}

Status ControlSocket::outlast_closed_windows() {
  if (kind_ != Kind::network) return {};
  OFP_ASSIGN(silence_watch_, SilenceWatch::create(socket_.get(), silence_ns_));
  return {};
}

Status ControlSocket::look_for_silence(TimeNs now) {
  if (silence_due(now) && silence_watch_->look(now)) return given_up();
  return {};
}

tl::unexpected<Failure> ControlSocket::ended() const {
  if (!silent()) return fail(Error::peer_lost, "the other side closed the connection");
  return fail(Error::peer_lost,
              "no answer from the other machine for {} s: it is switched off, or the network between is cut",
              silence_ns_ / second_ns);
}

tl::unexpected<Failure> ControlSocket::given_up() {
  std::atomic_ref(silent_).store(true, std::memory_order_relaxed);
  return ended();
}

tl::unexpected<Failure> ControlSocket::failure(int error_number, std::string_view call) {
  if (error_number == EPIPE || error_number == ECONNRESET) return ended();
  if (is_silence(error_number)) return given_up();
  if (error_number == EFAULT) return fail(Error::unreadable, "{}: the memory cannot be reached", call);
  return fail_errno(error_number, call);
}

tl::unexpected<Failure> ControlSocket::tls_failure(Failure why) {
  if (why.code == Error::timeout) return given_up();
  if (why.code == Error::peer_lost) return ended();
  return tl::unexpected<Failure>(std::move(why));
}

// ---- receiving

Result<bool> ControlSocket::next(Frame& frame, bool again) {
  OFP_ASSERT(streamed_left_ == 0);
  input_at_ += frame_bytes_;
  taken_ += frame_bytes_;
  frame_bytes_ = 0;
  frame_descriptors_.clear();
  for (;;) {
    OFP_ASSIGN(const bool complete, parse(frame));
    if (complete) return true;
    if (again && emptied_) break;
    OFP_ASSIGN(const std::size_t got, fill());
    if (got == 0) break;
  }
  if (buffered() == 0) release_input();
  return false;
}

// An idle connection has no memory for input. A busy one makes it for each event of its socket, which costs little
// beside the system call.
void ControlSocket::release_input() noexcept {
  input_ = {};
  input_at_ = input_end_ = 0;
}

Result<bool> ControlSocket::parse(Frame& frame) {
  input_wanted_ = sizeof(ControlHeader);
  if (buffered() < sizeof(ControlHeader)) return false;
  const auto header = load<ControlHeader>(input_.data() + input_at_);
  const auto number = static_cast<std::uint16_t>(header.type);
  if (number == 0 || number > wire::control_types)
    return fail(Error::protocol, "a frame of type {}, known types are 1 to {}", number, wire::control_types);
  if (header.reserved != 0)
    return fail(Error::protocol, "{}: the reserved field of its header is {} and must be 0",
                control_type_name(header.type), header.reserved);

  if (is_streamed(header.type)) {
    if ((streamed_allowed_ & 1u << number) == 0) return unexpected_frame(header.type, "on this link");
    if (header.length < wire::streamed_token_bytes || header.length > wire::data_frame_bytes_max)
      return fail(Error::protocol, "{}: {} bytes, from {} to {} are allowed", control_type_name(header.type),
                  header.length, wire::streamed_token_bytes, wire::data_frame_bytes_max);
    input_wanted_ += wire::streamed_token_bytes;
  } else {
    if (header.length > wire::control_frame_bytes_max)
      return fail(Error::protocol, "{}: {} bytes, at most {} are allowed", control_type_name(header.type),
                  header.length, wire::control_frame_bytes_max);
    input_wanted_ += header.length;
  }
  if (buffered() < input_wanted_) return false;

  frame_bytes_ = input_wanted_;
  if (is_streamed(header.type)) streamed_left_ = header.length - wire::streamed_token_bytes;
  OFP_TRY(collect_descriptors(header.type, taken_ + frame_bytes_));
  frame.type = header.type;
  frame.payload = Bytes(input_).subspan(input_at_ + sizeof header, frame_bytes_ - sizeof header);
  return true;
}

Status ControlSocket::collect_descriptors(ControlType type, std::uint64_t frame_end) {
  while (!arrived_.empty() && arrived_.front().position <= frame_end) {
    frame_descriptors_.push_back(std::move(arrived_.front().fd));
    arrived_.pop_front();
  }
  const std::size_t expected = kind_ == Kind::unix_socket ? descriptors_of(type) : 0;
  if (frame_descriptors_.size() != expected)
    return fail(Error::protocol, "{}: came with {} descriptors, expected {}", control_type_name(type),
                frame_descriptors_.size(), expected);
  return {};
}

Fd ControlSocket::take_descriptor() {
  if (frame_descriptors_.empty()) return Fd();
  Fd fd = std::move(frame_descriptors_.front());
  frame_descriptors_.pop_front();
  return fd;
}

Result<std::size_t> ControlSocket::fill() {
  if (input_at_ > 0) {
    std::copy(input_.begin() + static_cast<std::ptrdiff_t>(input_at_),
              input_.begin() + static_cast<std::ptrdiff_t>(input_end_), input_.begin());
    input_end_ -= input_at_;
    input_at_ = 0;
  }
  if (input_.empty()) {  // a look that finds nothing, the usual one, makes no memory
    std::array<std::byte, input_bytes_first> first;
    iovec piece{first.data(), first.size()};
    OFP_ASSIGN(const std::size_t got, receive_into({&piece, 1}));
    if (got == 0) return got;
    input_.resize(input_bytes_first);
    std::memcpy(input_.data(), first.data(), got);
    input_end_ = got;
    return got;
  }
  if (input_.size() < input_wanted_) input_.resize(input_wanted_);
  iovec piece{input_.data() + input_end_, input_.size() - input_end_};
  OFP_ASSIGN(const std::size_t got, receive_into({&piece, 1}));
  input_end_ += got;
  return got;
}

Result<std::size_t> ControlSocket::receive(std::span<const iovec> to) {
  std::array<iovec, pieces_max + 1> pieces;
  std::size_t count = 0;
  std::uint32_t left = streamed_left_;
  for (const iovec& piece : to) {
    if (count == pieces_max || left == 0) break;
    const std::size_t length = std::min<std::size_t>(piece.iov_len, left);
    if (length == 0) continue;
    pieces[count++] = {piece.iov_base, length};
    left -= static_cast<std::uint32_t>(length);
  }
  if (count == 0) return std::size_t{0};
  input_at_ += frame_bytes_;
  taken_ += frame_bytes_;
  frame_bytes_ = 0;

  if (buffered() > 0) {  // bytes that arrived with the frame's header
    const std::size_t length = std::min(pieces[0].iov_len, buffered());
    std::memcpy(pieces[0].iov_base, input_.data() + input_at_, length);
    input_at_ += length;
    taken_ += length;
    streamed_left_ -= static_cast<std::uint32_t>(length);
    return length;
  }
  input_at_ = input_end_ = 0;
  if (input_.empty()) input_.resize(input_bytes_first);
  const std::size_t wanted = streamed_left_ - left;
  // reads the next header as well
  if (left == 0) pieces[count++] = {input_.data(), std::min(input_.size(), input_bytes_first)};
  OFP_ASSIGN(const std::size_t got, receive_into({pieces.data(), count}));
  const std::size_t taken = std::min(got, wanted);
  input_end_ = got - taken;
  taken_ += taken;
  streamed_left_ -= static_cast<std::uint32_t>(taken);
  return taken;
}

Result<std::size_t> ControlSocket::discard() {
  std::array<std::byte, 16 * 1024> nowhere;
  const iovec piece{nowhere.data(), nowhere.size()};
  return receive({&piece, 1});
}

void ControlSocket::empty(unsigned calls) noexcept {
  std::array<std::byte, 4096> nowhere;
  iovec piece{nowhere.data(), nowhere.size()};
  for (unsigned i = 0; i < calls; ++i) {
    const auto got = receive_into({&piece, 1});
    arrived_.clear();
    if (!got || *got == 0) return;
  }
}

Result<std::size_t> ControlSocket::receive_into(std::span<iovec> to) {
  if (tls_) {
    std::size_t total = 0;
    for (const iovec& piece : to) {
      const auto got = tls_->receive({static_cast<std::byte*>(piece.iov_base), piece.iov_len});
      if (!got) return tls_failure(got.error());
      total += *got;
      if (*got < piece.iov_len) break;
    }
    return total;
  }
  if (kind_ == Kind::network) {
    msghdr message{};
    message.msg_iov = to.data();
    message.msg_iovlen = to.size();
    ssize_t got;
    do {
      got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    std::size_t room = 0;
    for (const iovec& piece : to) room += piece.iov_len;
    emptied_ = got > 0 && static_cast<std::size_t>(got) < room;
    return taken(got);
  }
  int said = 0;
  const ssize_t got = receive_with_descriptors(socket_.get(), to, MSG_DONTWAIT, user_, received_, said);
  OFP_ASSIGN(const std::size_t bytes, taken(got));
  const std::uint64_t position = taken_ + buffered() + bytes;
  for (Fd& fd : received_) arrived_.push_back({position, std::move(fd)});
  if (!received_.empty() && user_ && user_->overdrawn()) {
    received_.clear();
    return tl::unexpected<Failure>(user_->may_take().error());
  }
  received_.clear();
  if ((said & MSG_CTRUNC) != 0 || arrived_.size() > descriptors_max)
    return fail(Error::protocol,
                "descriptors were lost: more than {} arrived at once, or this process is at its limit of open files "
                "(ulimit -n)",
                descriptors_max);
  return bytes;
}

// Handles the result of a system call to receive.
Result<std::size_t> ControlSocket::taken(ssize_t got) {
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::size_t{0};
  if (got < 0) return failure(errno, "recvmsg");
  if (got == 0) return ended();
  return static_cast<std::size_t>(got);
}

// ---- sending

Status ControlSocket::send(ControlType type, Bytes payload, int descriptor) {
  OFP_ASSERT(payload.size() <= wire::control_frame_bytes_max);
  const std::size_t length = sizeof(ControlHeader) + payload.size();
  std::array<std::byte, sizeof(ControlHeader)> header;
  store(header.data(), ControlHeader{static_cast<std::uint32_t>(payload.size()), type, 0});
  std::size_t sent = 0;
  if (!output_waits()) {
    const std::array<iovec, 2> pieces{piece_of(header), piece_of(payload)};
    OFP_ASSIGN(sent, send_from(pieces, descriptor));
    sent_ += sent;
    if (sent == length) return {};
  }
  if (output_room() < length)
    return fail(Error::would_block, "{}: {} bytes wait for the other side to read, {} are allowed",
                control_type_name(type), output_.size() - output_at_, output_bytes_max);
  if (descriptor >= 0 && sent == 0) {
    Fd kept(fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
    if (!kept) return fail_errno(errno, "fcntl(F_DUPFD_CLOEXEC)");
    leaving_.push_back({sent_ + (output_.size() - output_at_), std::move(kept)});
  }
  const Bytes head = Bytes(header).subspan(std::min(sent, header.size()));
  const Bytes body = payload.subspan(sent > header.size() ? sent - header.size() : 0);
  output_.insert(output_.end(), head.begin(), head.end());
  output_.insert(output_.end(), body.begin(), body.end());
  return {};
}

Status ControlSocket::send_wake() {
  if (output_waits() && (kind_ == Kind::unix_socket || wake_waits_)) return {};
  std::array<std::byte, sizeof(ControlHeader)> header;
  store(header.data(), ControlHeader{0, ControlType::wake, 0});
  std::size_t sent = 0;
  if (!output_waits()) {
    const iovec piece = piece_of(header);
    OFP_ASSIGN(sent, send_from({&piece, 1}, -1));
    sent_ += sent;
    if (sent == header.size() || (sent == 0 && kind_ == Kind::unix_socket)) return {};
  }
  output_.insert(output_.end(), header.begin() + static_cast<std::ptrdiff_t>(sent), header.end());
  wake_waits_ = true;
  return {};
}

Status ControlSocket::flush() {
  while (!streams() && output_at_ < output_.size()) {
    std::size_t length = output_.size() - output_at_;
    int descriptor = -1;
    for (const Leaving& leaving : leaving_) {  // a frame with a descriptor starts a separate system call
      if (leaving.position == sent_) {
        descriptor = leaving.fd.get();
      } else {
        length = std::min<std::size_t>(length, leaving.position - sent_);
        break;
      }
    }
    if (descriptor >= 0) {
      const auto header = load<ControlHeader>(output_.data() + output_at_);
      length = std::min<std::size_t>(length, sizeof header + header.length);
    }
    const iovec piece{output_.data() + output_at_, length};
    OFP_ASSIGN(const std::size_t sent, send_from({&piece, 1}, descriptor));
    if (sent == 0) return {};
    if (descriptor >= 0) leaving_.pop_front();
    sent_ += sent;
    output_at_ += sent;
  }
  if (output_at_ == output_.size()) {
    output_.clear();
    output_at_ = 0;
    wake_waits_ = false;
  } else if (output_at_ > output_bytes_max / 2) {
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(output_at_));
    output_at_ = 0;
  }
  return {};
}

void ControlSocket::begin_stream(ControlType type, std::uint64_t token, std::uint32_t length, Bytes before) {
  OFP_ASSERT(!output_waits() && is_streamed(type) && length <= wire::data_frame_bytes_max - wire::streamed_token_bytes);
  head_.resize(before.size() + sizeof(ControlHeader) + sizeof token);
  std::ranges::copy(before, head_.begin());
  store(head_.data() + before.size(), ControlHeader{length + wire::streamed_token_bytes, type, 0});
  store(head_.data() + before.size() + sizeof(ControlHeader), token);
  head_at_ = 0;
  stream_left_ = length;
}

Result<std::size_t> ControlSocket::stream(std::span<const iovec> from, bool more_follows) {
  std::array<iovec, pieces_max + 1> pieces;
  std::size_t count = 0;
  const std::size_t head = head_.size() - head_at_;
  if (head > 0) pieces[count++] = {head_.data() + head_at_, head};
  std::size_t left = stream_left_;
  for (const iovec& piece : from) {
    if (count == pieces.size() || left == 0) break;
    const std::size_t length = std::min(piece.iov_len, left);
    if (length == 0) continue;
    pieces[count++] = {piece.iov_base, length};
    left -= length;
  }
  if (count == 0) return std::size_t{0};
  OFP_ASSIGN(const std::size_t sent, send_from({pieces.data(), count}, -1, more_follows ? MSG_MORE : 0));
  sent_ += sent;
  const std::size_t of_head = std::min(sent, head);
  head_at_ += of_head;
  stream_left_ -= static_cast<std::uint32_t>(sent - of_head);
  if (!streams()) OFP_TRY(flush());
  return sent - of_head;
}

Result<std::size_t> ControlSocket::send_from(std::span<const iovec> from, int descriptor, int flags) {
  if (tls_) {
    std::size_t total = 0;
    for (const iovec& piece : from) {
      if (piece.iov_len == 0) continue;
      const auto sent = tls_->send({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
      if (!sent) return tls_failure(sent.error());
      total += *sent;
      if (*sent < piece.iov_len) break;
    }
    if (silence_watch_) silence_watch_->sent();
    return total;
  }
  OFP_ASSERT(descriptor < 0 || kind_ == Kind::unix_socket);
  const ssize_t sent =
      send_with_descriptors(socket_.get(), from, {&descriptor, descriptor >= 0 ? 1u : 0u}, MSG_DONTWAIT | flags);
  if (sent >= 0) {
    if (silence_watch_) silence_watch_->sent();
    return static_cast<std::size_t>(sent);
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return std::size_t{0};
  return failure(errno, "sendmsg");
}

void ControlSocket::shut_down() noexcept {
  if (socket_) shutdown(socket_.get(), SHUT_RDWR);
}

void ControlSocket::close() noexcept {
  silence_watch_.reset();
  frame_descriptors_.clear();
  arrived_.clear();
  if (!socket_ || !user_) return socket_.reset();
  // Shutting down the socket discards its unread bytes and descriptors. Nothing can arrive afterwards: if it is empty
  // it is closed at once.
  shut_down();
  std::byte next;
  if (recv(socket_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0) ::close(socket_.release());
  socket_.reset();
}

// ---- free functions

void send_refusal(ControlSocket& socket, const Failure& why) {
  std::vector<std::byte> payload;
  wire::encode(wire::Refusal{why.code, why.message}, payload);
  (void)socket.send(ControlType::refusal, payload);
}

tl::unexpected<Failure> refused(Bytes payload, std::string_view said) {
  auto refusal = wire::decode_refusal(payload);
  if (!refusal) return tl::unexpected<Failure>(std::move(refusal).error());
  return fail(refusal->code, "{}: {}", said, refusal->message);
}

tl::unexpected<Failure> unexpected_frame(ControlType type, std::string_view where) {
  return fail(Error::protocol, "{}: unexpected frame {}", control_type_name(type), where);
}

Status take_requests(Bytes payload, std::vector<std::byte>& to) {
  constexpr std::size_t head = sizeof(wire::SentRequests), most = head + wire::sent_requests_max * wire::slot_bytes;
  if (payload.size() < head || payload.size() > most || (payload.size() - head) % wire::slot_bytes != 0)
    return fail(Error::protocol, "requests: {} bytes, {} and at most {} slots are allowed", payload.size(), head,
                wire::sent_requests_max);
  to.assign(payload.begin(), payload.end());
  return {};
}

int poll_until(std::span<pollfd> looks, TimeNs deadline) noexcept {
  const TimeNs left = deadline == never ? 0 : std::max<TimeNs>(0, deadline - monotonic_ns());
  const timespec wait{static_cast<time_t>(left / second_ns), static_cast<long>(left % second_ns)};
  return ppoll(looks.data(), looks.size(), deadline == never ? nullptr : &wait, nullptr);
}

Result<ControlSocket::Frame> await_frame(ControlSocket& socket, TimeNs deadline) {
  for (;;) {
    ControlSocket::Frame frame;
    OFP_ASSIGN(const bool there, socket.next(frame));
    if (there) return frame;
    OFP_TRY(socket.flush());
    if (monotonic_ns() >= deadline) return fail(Error::timeout, "the other side did not answer in time");
    pollfd look{socket.fd(), static_cast<short>(socket.wants_write() ? POLLIN | POLLOUT : POLLIN), 0};
    if (poll_until({&look, 1}, deadline) < 0 && errno != EINTR) return fail_errno(errno, "ppoll");
  }
}

}  // namespace offpath::link
