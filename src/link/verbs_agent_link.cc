#include "link/verbs_agent_link.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr unsigned polls_between_looks = 64;  // where the clock stands still
constexpr unsigned frames_of_a_look = 1024;
constexpr std::uint64_t request_bytes_max = 1 << 20;  // of one work request; every device takes that much
constexpr std::uint64_t bounced_bytes_max = OperationRegions::bytes_min;
constexpr std::size_t leaving_max = 65536;

}  // namespace

// ---- life

Result<std::unique_ptr<AgentLink>> accept_verbs(ControlSocket socket, const VerbsProofs& proofs, std::uint64_t channel_segment_bytes,
                                                const SegmentLimits& limits, std::shared_ptr<const LastingMemory> lasting,
                                                TimeNs deadline) {
  return VerbsAgentLink::create(std::move(socket), proofs, channel_segment_bytes, limits, std::move(lasting), deadline);
}

Result<std::unique_ptr<VerbsAgentLink>> VerbsAgentLink::create(ControlSocket socket, const VerbsProofs& proofs,
                                                               std::uint64_t channel_segment_bytes, const SegmentLimits& limits,
                                                               std::shared_ptr<const LastingMemory> lasting, TimeNs deadline) {
  auto listening = listen_for_queue_pair(socket);
  if (!listening) {  // the program waits for the port
    send_refusal(socket, listening.error());
    return tl::unexpected<Failure>(std::move(listening).error());
  }
  VerbsConnection connection = std::move(*listening);
  Fd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events) return fail_errno(errno, "epoll_create1");
  Fd more(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!more) return fail_errno(errno, "eventfd");
  epoll_event nothing{0, {}};
  nothing.data.fd = more.get();
  for (const int fd : {socket.fd(), connection.events->fd}) {
    epoll_event readable{EPOLLIN, {}};
    readable.data.fd = fd;
    if (epoll_ctl(events.get(), EPOLL_CTL_ADD, fd, &readable) != 0) return fail_errno(errno, "epoll_ctl");
  }
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, more.get(), &nothing) != 0) return fail_errno(errno, "epoll_ctl");
  const std::uint64_t port = port_of(connection);
  OFP_TRY(socket.send(ControlType::rendezvous, std::as_bytes(std::span(&port, 1))));
  return std::unique_ptr<VerbsAgentLink>(new VerbsAgentLink(std::move(socket), proofs, std::move(connection), channel_segment_bytes,
                                                            limits, std::move(lasting), deadline, std::move(events), std::move(more)));
}

VerbsAgentLink::VerbsAgentLink(ControlSocket socket, const VerbsProofs& proofs, VerbsConnection connection,
                               std::uint64_t channel_segment_bytes, const SegmentLimits& limits,
                               std::shared_ptr<const LastingMemory> lasting, TimeNs deadline, Fd events_fd, Fd more_fd)
    : socket_(std::move(socket)),
      proofs_(proofs),
      deadline_(deadline),
      connection_(std::move(connection)),
      kept_(std::move(lasting)),
      events_fd_(std::move(events_fd)),
      more_fd_(std::move(more_fd)),
      limits_(limits),
      channel_bytes_(channel_segment_bytes),
      segment_bytes_(channel_segment_bytes) {
  traits_ = {"verbs", true, false, 0, std::string(verbs_reason)};
  // Its address and key come with the first frame; until then nothing is posted.
  OFP_ASSERT(regions_.attach(wire::channel_segment, 0, 0, channel_segment_bytes, 0));
}

VerbsAgentLink::~VerbsAgentLink() { close(); }

void VerbsAgentLink::close() {
  lost_ = told_ = true;
  connection_.break_off();
  operations_.clear();
  idle_.clear();
  waiting_.clear();
  chains_.clear();
  kept_.clear();
  bounce_.reset();
  connection_.close();
  socket_.shut_down();
  socket_.close();
  events_fd_.reset();
  more_fd_.reset();
  regions_ = RegionTable();
}

// Whatever was under way is over when its event is given out: the queue pair goes first.
void VerbsAgentLink::lose(Failure why) {
  if (lost_) return;
  lost_ = true;
  why_ = std::move(why);
  if (why_.code != Error::peer_lost) send_refusal(socket_, why_);
  connection_.break_off();
  socket_.shut_down();
  const auto end = [this](Operation& operation) {
    if (operation.status) operation.status = tl::unexpected<Failure>(why_);
    finish(operation);
  };
  for (const Chain& chain : chains_)
    if (chain.last) end(*chain.operation);
  for (Operation* operation : waiting_) end(*operation);
  chains_.clear();
  waiting_.clear();
  leaving_.clear();
}

// ---- posting

Status VerbsAgentLink::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                    std::uint32_t key) {
  return regions_.attach_range(range, generation, base, length, key);
}

Status VerbsAgentLink::detach_range(RegionId range, std::uint32_t generation) {
  return regions_.detach_range(range, generation);
}

VerbsAgentLink::Operation* VerbsAgentLink::new_operation(bool is_read, std::uint64_t token) {
  if (idle_.empty()) {
    operations_.push_back(std::make_unique<Operation>());
    idle_.push_back(operations_.back().get());
  }
  Operation* operation = idle_.back();
  idle_.pop_back();
  operation->is_read = is_read;
  operation->covered = false;
  operation->token = token;
  operation->number = next_number_++;
  operation->pieces.clear();
  operation->copies.clear();
  operation->piece = operation->offset = 0;
  operation->status = {};
  return operation;
}

// The host may have withdrawn a range although the ring has not told of it yet.
Result<const Region*> VerbsAgentLink::resolve(const ReadPiece& piece) const {
  OFP_ASSIGN(const Region* region, regions_.resolve(piece.region, piece.generation, piece.offset, piece.length));
  if (!wire::is_segment(piece.region) && piece.region < range_gone_.size() && piece.generation <= range_gone_[piece.region])
    return fail(Error::stale, "range {}: generation {} was named, it was withdrawn at generation {}", piece.region, piece.generation,
                range_gone_[piece.region]);
  return region;
}

void VerbsAgentLink::add_piece(Operation& operation, RegionId id, const Region& region, std::uint64_t offset, std::byte* memory,
                               std::uint64_t length) {
  if (length == 0) return;
  const bool early = id == wire::channel_segment && !open_;
  const std::uint64_t address = region.base + offset;
  if (!operation.pieces.empty()) {  // goes on where the piece before ended, on both sides
    Piece& before = operation.pieces.back();
    if (before.key == region.key && before.early == early && before.address + before.length == address &&
        before.memory + before.length == memory) {
      before.length += length;
      return;
    }
  }
  operation.pieces.push_back({address, region.key, early, memory, length});
}

void VerbsAgentLink::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
  if (told_) return;
  Operation* operation = new_operation(true, token);
  for (const ReadPiece& piece : pieces) {
    auto region = resolve(piece);
    if (!region) {
      operation->status = tl::unexpected<Failure>(std::move(region).error());
      break;
    }
    add_piece(*operation, piece.region, **region, piece.offset, piece.to, piece.length);
  }
  begin(*operation);
}

void VerbsAgentLink::write(std::uint64_t token, std::span<const WritePiece> pieces) {
  if (told_) return;
  Operation* operation = new_operation(false, token);
  for (const WritePiece& piece : pieces) {
    auto region = regions_.resolve(piece.segment, 0, piece.offset, piece.length);
    if (!wire::is_segment(piece.segment)) region = fail(Error::denied, "range {} is read-only", piece.segment);
    if (!region) {
      operation->status = tl::unexpected<Failure>(std::move(region).error());
      break;
    }
    add_piece(*operation, piece.segment, **region, piece.offset, const_cast<std::byte*>(piece.from), piece.length);
  }
  begin(*operation);
}

void VerbsAgentLink::begin(Operation& operation) {
  if (lost_) operation.status = tl::unexpected<Failure>(why_);
  if (operations_.size() - idle_.size() > operations_max)
    operation.status = fail(Error::would_block, "{} operations are under way, at most {} are allowed",
                            operations_.size() - idle_.size(), operations_max);
  if (!operation.status || operation.pieces.empty()) {
    finish(operation);
    return watch();
  }
  waiting_.push_back(&operation);
  if (auto pumped = pump(); !pumped) lose(std::move(pumped).error());
  watch();
}

void VerbsAgentLink::finish(Operation& operation) {
  const auto kind = operation.is_read ? LinkEvent::Kind::read_done : LinkEvent::Kind::write_done;
  events_.push(kind, operation.token).status = std::move(operation.status);
  operation.status = {};
  operation.regions.clear();
  idle_.push_back(&operation);
}

Status VerbsAgentLink::pump() {
  while (open_ && !waiting_.empty() && requests_under_way_ < connection_.send_requests_max) {
    const std::size_t before = waiting_.size();
    OFP_TRY(post_chain(*waiting_.front()));
    if (waiting_.size() == before) break;  // no more room
  }
  return {};
}

// Registers what is worth it, once the operation has its turn: memory of those that wait stays unpinned.
void VerbsAgentLink::cover(Operation& operation) {
  operation.covered = true;
  std::uint64_t bytes = 0;
  stretches_.clear();
  for (const Piece& piece : operation.pieces) {
    if (kept_.key_of(*connection_.calls, connection_.domain.get(), piece.memory)) continue;
    stretches_.push_back({piece.memory, piece.length});
    bytes += piece.length;
  }
  if (bytes >= OperationRegions::bytes_min)
    operation.regions.cover(*connection_.calls, connection_.domain.get(), stretches_, operation.is_read);
}

Status VerbsAgentLink::post_chain(Operation& operation) {
  if (!operation.covered) cover(operation);
  requests_.clear();
  local_.clear();
  Chain chain{&operation, 0, false, 0, operation.copies.size(), 0};
  while (operation.piece < operation.pieces.size() && add_request(operation)) {
  }
  if (requests_.empty()) return {};
  chain.requests = static_cast<unsigned>(requests_.size());
  chain.last = operation.piece == operation.pieces.size();
  chain.bounce_position = bounce_->position();
  chain.copies_end = operation.copies.size();
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].sg_list = &local_[i];
    requests_[i].num_sge = 1;
    requests_[i].next = i + 1 < requests_.size() ? &requests_[i + 1] : nullptr;
  }
  requests_.back().send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int code = ibv_post_send(connection_.pair.get(), requests_.data(), &bad); code != 0)
    return fail_errno(code, fmt::format("posting {} work requests", requests_.size()));
  requests_under_way_ += chain.requests;
  if (chain.last) waiting_.pop_front();
  chains_.push_back(chain);
  return {};
}

// The next work request of an operation, or more of the one before; false where the queue pair or the bounce buffer has
// no room.
bool VerbsAgentLink::add_request(Operation& operation) {
  const Piece& piece = operation.pieces[operation.piece];
  const Region* channel = regions_.find(wire::channel_segment);
  const std::uint64_t address = piece.address + operation.offset + (piece.early ? channel->base : 0);
  const std::uint32_t key = piece.early ? channel->key : piece.key;
  std::byte* const memory = piece.memory + operation.offset;
  std::uint64_t length = piece.length - operation.offset;
  const bool inside = !operation.is_read && length <= connection_.inline_bytes_max;
  std::optional<std::uint32_t> registered;
  if (!inside) {
    if (const auto kept = kept_.key_of(*connection_.calls, connection_.domain.get(), memory)) {
      registered = kept->key;
      length = std::min(length, kept->length);
    } else {
      registered = operation.regions.key_of(memory);
    }
  }
  const bool bounced = !inside && !registered;
  length = std::min(length, bounced ? bounced_bytes_max : request_bytes_max);

  std::byte* local = memory;
  bool continues = false;
  if (bounced) {
    local = bounce_->take(length);
    if (local == nullptr) return false;
    // Pieces that continue each other on the host are one request, wherever they go here.
    continues = !requests_.empty() && requests_.back().wr.rdma.rkey == key &&
                requests_.back().wr.rdma.remote_addr + local_.back().length == address && local_.back().lkey == bounce_->key() &&
                local_.back().addr + local_.back().length == reinterpret_cast<std::uint64_t>(local) &&
                local_.back().length + length <= bounced_bytes_max;
  }
  if (!continues) {
    if (requests_under_way_ + requests_.size() >= connection_.send_requests_max) return false;
    ibv_send_wr request{};
    request.opcode = operation.is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    request.send_flags = inside ? IBV_SEND_INLINE : 0;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
    requests_.push_back(request);
    local_.push_back({reinterpret_cast<std::uint64_t>(local), 0, registered.value_or(bounced ? bounce_->key() : 0)});
  }
  local_.back().length += static_cast<std::uint32_t>(length);
  if (bounced && operation.is_read) operation.copies.push_back({memory, local, length});
  if (bounced && !operation.is_read) std::memcpy(local, memory, length);
  operation.offset += length;
  if (operation.offset == piece.length) {
    ++operation.piece;
    operation.offset = 0;
  }
  return true;
}

void VerbsAgentLink::wake() {
  if (lost_) return;
  auto sent = socket_.send_wake();
  if (!sent) lose(std::move(sent).error());
  watch();
}

// ---- completions

// True if there may be more.
Result<bool> VerbsAgentLink::take_some_completions() {
  std::array<ibv_wc, 32> completions;
  const int count = ibv_poll_cq(connection_.queue.get(), static_cast<int>(completions.size()), completions.data());
  if (count < 0) return fail(Error::io, "the completion queue cannot be polled ({})", count);
  for (int i = 0; i < count; ++i) {
    if (completions[i].status != IBV_WC_SUCCESS) {
      fail_oldest(completions[i]);
      return false;
    }
    complete_oldest();
  }
  return static_cast<std::size_t>(count) == completions.size();
}

Status VerbsAgentLink::take_completions() {
  while (!lost_) {
    OFP_ASSIGN(const bool more, take_some_completions());
    if (more) continue;
    if (armed_ || lost_) break;
    // Completions that come before this call raise no event: look once more after it.
    if (const int code = ibv_req_notify_cq(connection_.queue.get(), 0); code != 0) return fail_errno(code, "ibv_req_notify_cq");
    armed_ = true;
  }
  return {};
}

void VerbsAgentLink::complete_oldest() {
  OFP_ASSERT(!chains_.empty());
  const Chain chain = chains_.front();
  chains_.pop_front();
  Operation& operation = *chain.operation;
  for (std::size_t i = chain.copies_begin; i < chain.copies_end; ++i) {
    const CopyBack& copy = operation.copies[i];
    std::memcpy(copy.to, copy.from, copy.length);
  }
  bounce_->give_back_to(chain.bounce_position);
  requests_under_way_ -= chain.requests;
  if (chain.last) finish(operation);
}

// The first failure names the operation; what comes behind it in the queue pair was flushed.
void VerbsAgentLink::fail_oldest(const ibv_wc& completion) {
  const char* text = connection_.calls->ibv_wc_status_str(completion.status);
  Failure why{Error::io, fmt::format("the queue pair failed: {}", text)};
  if (completion.status == IBV_WC_RETRY_EXC_ERR || completion.status == IBV_WC_RNR_RETRY_EXC_ERR ||
      completion.status == IBV_WC_WR_FLUSH_ERR || completion.status == IBV_WC_RESP_TIMEOUT_ERR)
    why = {Error::peer_lost, fmt::format("the program's RDMA device does not answer ({})", text)};
  else if (completion.status == IBV_WC_REM_ACCESS_ERR || completion.status == IBV_WC_REM_INV_REQ_ERR || completion.status == IBV_WC_REM_OP_ERR)
    why = {Error::unreadable, fmt::format("the program's RDMA device refused a piece of it ({}): the memory is not what was announced",
                                          text)};
  // Of a program that ended this is how it shows, too: its socket says whether it did.
  if (auto taken = take_frames(); !taken && taken.error().code == Error::peer_lost) why = std::move(taken).error();
  if (lost_) return;
  if (!chains_.empty()) chains_.front().operation->status = tl::unexpected<Failure>(why);
  lose(std::move(why));
}

void VerbsAgentLink::drain_completion_events() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (connection_.calls->ibv_get_cq_event(connection_.completions.get(), &queue, &context) == 0) {
    connection_.calls->ibv_ack_cq_events(queue, 1);
    armed_ = false;
  }
}

// ---- polling

std::size_t VerbsAgentLink::poll(TimeNs now, std::span<LinkEvent> events) {
  if (told_) return 0;
  const auto attempt = [this](Status done) {
    if (!done) lose(std::move(done).error());
  };
  if (!lost_ && open_) {
    attempt(take_completions());
    if (!lost_) attempt(pump());
  }
  if (!lost_ && (!open_ || more_ || now >= next_look_ || ++polls_since_look_ >= polls_between_looks)) {
    next_look_ = deadline_after(now, look_interval_ns);
    polls_since_look_ = 0;
    attempt(look(now));
    if (!lost_) attempt(pump());
  }
  if (!lost_) attempt(tell_withdrawn());
  std::size_t count = events_.take(events);
  if (woken_ && count < events.size()) {
    events[count++] = {LinkEvent::Kind::woken, 0, {}, Fd()};
    woken_ = false;
  }
  if (lost_ && events_.empty() && count < events.size()) {
    events[count++] = {LinkEvent::Kind::closed, 0, tl::unexpected<Failure>(why_), Fd()};
    told_ = true;
  }
  watch();
  return count;
}

// At the descriptors, each of which is a system call: what epoll says is there, and no more.
Status VerbsAgentLink::look(TimeNs now) {
  more_ = false;
  if (!open_ && now >= deadline_)
    return fail(Error::timeout, "the program did not connect its queue pair in time: RDMA packets (RoCE: UDP port 4791) do not get through");
  std::array<epoll_event, 4> ready;
  const int count = epoll_wait(events_fd_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = ready[static_cast<std::size_t>(i)].data.fd;
    if (fd == socket_.fd()) {
      OFP_TRY(socket_.flush());
      OFP_TRY(take_frames());
    } else if (fd == connection_.events->fd) {
      OFP_TRY(advance_connection());
    } else if (connection_.completions && fd == connection_.completions->fd) {
      drain_completion_events();
      OFP_TRY(take_completions());
    }
  }
  return {};
}

Status VerbsAgentLink::advance_connection() {
  const bool before = static_cast<bool>(connection_.pair);
  auto ready = advance_accept(connection_, proofs_);
  if (!ready) {
    // The program may have said why it ended, or that it did.
    if (ready.error().code == Error::peer_lost) OFP_TRY(take_frames());
    return tl::unexpected<Failure>(std::move(ready).error());
  }
  if (before || !*ready) return {};
  OFP_ASSIGN(BounceRing bounce, BounceRing::create(*connection_.calls, connection_.domain.get()));
  bounce_ = std::make_unique<BounceRing>(std::move(bounce));
  epoll_event readable{EPOLLIN, {}};
  readable.data.fd = connection_.completions->fd;
  if (epoll_ctl(events_fd_.get(), EPOLL_CTL_ADD, connection_.completions->fd, &readable) != 0) return fail_errno(errno, "epoll_ctl");
  return {};
}

// Keeps event_fd() readable for as long as poll has something to tell.
void VerbsAgentLink::watch() {
  if (!events_fd_) return;
  if (const bool wanted = !lost_ && socket_.wants_write(); wanted != room_watched_) {
    epoll_event event{wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, {}};
    event.data.fd = socket_.fd();
    if (epoll_ctl(events_fd_.get(), EPOLL_CTL_MOD, socket_.fd(), &event) == 0) room_watched_ = wanted;
  }
  if (const bool wanted = more_ || woken_ || !events_.empty() || (lost_ && !told_); wanted != more_watched_) {
    epoll_event event{wanted ? EPOLLIN : 0u, {}};
    event.data.fd = more_fd_.get();
    if (epoll_ctl(events_fd_.get(), EPOLL_CTL_MOD, more_fd_.get(), &event) == 0) more_watched_ = wanted;
  }
}

// ---- the control socket

Status VerbsAgentLink::take_frames() {
  for (unsigned taken = 0; taken < frames_of_a_look; ++taken) {
    ControlSocket::Frame frame;
    OFP_ASSIGN(const bool there, socket_.next(frame));
    if (!there) return {};
    OFP_TRY(take_frame(frame));
  }
  more_ = true;  // perhaps in the socket's own buffer
  return {};
}

Status VerbsAgentLink::take_frame(const ControlSocket::Frame& frame) {
  switch (frame.type) {
    case ControlType::wake: woken_ = true; return {};
    case ControlType::segment: return take_segment(frame.payload);
    case ControlType::withdraw: return let_go(frame.payload);
    default: return unexpected_frame(frame.type, "on an open channel");
  }
}

Status VerbsAgentLink::take_segment(Bytes payload) {
  OFP_ASSIGN(const wire::SegmentNotice notice, wire::decode_segment_notice(payload));
  const std::uint32_t number = notice.region & ~wire::segment_flag;
  if (notice.region == wire::channel_segment) {
    if (open_) return fail(Error::protocol, "segment 0: announced twice");
    if (!bounce_) OFP_TRY(advance_connection());
    if (!bounce_) return fail(Error::protocol, "segment 0: announced before the queue pair was connected");
    if (notice.length != channel_bytes_)
      return fail(Error::protocol, "segment 0: {} bytes, the channel has {}", notice.length, channel_bytes_);
    OFP_TRY(regions_.attach(notice.region, 0, notice.address, notice.length, notice.key));
    open_ = true;
    OFP_TRY(take_completions());  // arms the completion queue
    return socket_.send(ControlType::segment_ok, std::as_bytes(std::span(&notice.region, 1)));
  }
  if (number >= limits_.count_max || segment_count_ >= limits_.count_max)
    return fail(Error::too_large, "segment {}: at most {} segments are allowed", number, limits_.count_max);
  if (notice.length > limits_.bytes_max - segment_bytes_)
    return fail(Error::too_large, "segment {}: its {} bytes and the {} of other segments are more than the {} allowed", number,
                notice.length, segment_bytes_, limits_.bytes_max);
  if (regions_.find(notice.region) != nullptr) return fail(Error::protocol, "segment {}: announced twice", number);
  OFP_TRY(regions_.attach(notice.region, 0, notice.address, notice.length, notice.key));
  segment_bytes_ += notice.length;
  ++segment_count_;
  return socket_.send(ControlType::segment_ok, std::as_bytes(std::span(&notice.region, 1)));
}

Status VerbsAgentLink::let_go(Bytes payload) {
  OFP_ASSIGN(const wire::Withdrawal withdrawal, wire::decode_withdrawal(payload));
  if (withdrawal.region == wire::channel_segment) return fail(Error::protocol, "the channel segment cannot be withdrawn");
  if (leaving_.size() >= leaving_max) return fail(Error::protocol, "more than {} withdrawals at a time", leaving_max);
  const std::uint64_t before = first_without(withdrawal);
  if (wire::is_segment(withdrawal.region)) {
    if (const Region* region = regions_.find(withdrawal.region); region != nullptr) {
      segment_bytes_ -= region->length;
      --segment_count_;
      OFP_TRY(regions_.detach(withdrawal.region, 0));
    }
  } else {
    if (withdrawal.region >= wire::regions_max) return fail(Error::protocol, "withdrawal: there is no range {}", withdrawal.region);
    if (withdrawal.region >= range_gone_.size()) range_gone_.resize(withdrawal.region + 1);
    std::uint32_t& gone = range_gone_[withdrawal.region];
    gone = std::max(gone, withdrawal.generation);
  }
  leaving_.push_back({before, withdrawal});
  return {};
}

// The number from which on no operation under way uses the memory. Where its key is not known (the range was announced
// anew meanwhile), any may.
std::uint64_t VerbsAgentLink::first_without(const wire::Withdrawal& withdrawal) const {
  const Region* region = regions_.find(withdrawal.region);
  if (region == nullptr || region->generation != withdrawal.generation) return next_number_;
  const auto uses = [key = region->key](const Operation& operation) {
    return std::ranges::find(operation.pieces, key, &Piece::key) != operation.pieces.end();
  };
  std::uint64_t first = 0;
  for (const Chain& chain : chains_)
    if (chain.last && uses(*chain.operation)) first = chain.operation->number + 1;
  for (const Operation* operation : waiting_)
    if (uses(*operation)) first = operation->number + 1;
  return first;
}

// Operations end in the order they began, so the oldest one tells of all.
Status VerbsAgentLink::tell_withdrawn() {
  while (!leaving_.empty()) {
    std::uint64_t oldest = next_number_;
    if (!waiting_.empty()) oldest = waiting_.front()->number;
    if (!chains_.empty()) oldest = chains_.front().operation->number;
    if (oldest < leaving_.front().before) return {};
    scratch_.clear();
    wire::encode(leaving_.front().withdrawal, scratch_);
    leaving_.pop_front();
    OFP_TRY(socket_.send(ControlType::withdrawn, scratch_));
  }
  return {};
}

}  // namespace offpath::link
