#include "link/card/card_agent_link.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "wire/region.h"
#include "wire/stale_range.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr unsigned polls_between_card_looks = 64;  // for a clock that stands still
constexpr unsigned frames_of_a_look = 1024;
constexpr std::uint64_t bounced_bytes_max = BouncePool::block_bytes;
constexpr TimeNs memory_wait_ns = second_ns;  // for other channels to return memory
constexpr std::size_t leaving_max = 65536;

}  // namespace

// ---- life

CardAgentLink::CardAgentLink(ControlSocket socket, LinkTraits traits, WriteOrder order, const ChannelBytes& channel,
                             const SegmentLimits& limits, TimeNs deadline)
    : socket_(std::move(socket)),
      deadline_(deadline),
      order_(order),
      traits_(std::move(traits)),
      limits_(limits),
      channel_(channel),
      segment_bytes_(channel.all) {
  // Its address and key arrive with the first announcement; until then nothing is posted.
  OFP_ASSERT(regions_.attach(wire::channel_segment, 0, 0, channel_.all, 0));
}

Status CardAgentLink::watch_descriptors() {
  events_fd_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!events_fd_) return fail_errno(errno, "epoll_create1");
  more_fd_ = Fd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!more_fd_) return fail_errno(errno, "eventfd");
  epoll_event nothing{0, {}};
  nothing.data.fd = more_fd_.get();
  if (epoll_ctl(events_fd_.get(), EPOLL_CTL_ADD, more_fd_.get(), &nothing) != 0) return fail_errno(errno, "epoll_ctl");
  return watch_descriptor(socket_.fd());
}

Status CardAgentLink::watch_descriptor(int fd) {
  epoll_event readable{EPOLLIN, {}};
  readable.data.fd = fd;
  if (epoll_ctl(events_fd_.get(), EPOLL_CTL_ADD, fd, &readable) != 0) return fail_errno(errno, "epoll_ctl");
  return {};
}

Status CardAgentLink::begin_posting(const CardLimits& limits, std::shared_ptr<CardDevice> device) {
  card_ = limits;
  device_ = std::move(device);
  OFP_TRY(device_->bounce().prepare(now_));
  bounce_.emplace(device_->bounce());
  return {};
}

void CardAgentLink::close() {
  lost_ = told_ = true;
  break_off();
  operations_.clear();
  idle_.clear();
  for (auto& lane : waiting_) lane.clear();
  chains_.clear();
  writing_ = nullptr;
  if (bounce_) bounce_->drop();
  bounce_.reset();
  end_card();
  device_.reset();
  socket_.shut_down();
  socket_.close();
  events_fd_.reset();
  more_fd_.reset();
  regions_ = RegionTable();
}

// The card stops before the events of failed operations are delivered: it moves nothing afterwards.
void CardAgentLink::lose(Failure why, bool tells) {
  if (lost_) return;
  lost_ = true;
  why_ = std::move(why);
  if (tells || why_.code != Error::peer_lost) send_refusal(socket_, why_);
  break_off();
  socket_.shut_down();
  const auto end = [this](Operation& operation) {
    if (operation.status) operation.status = tl::unexpected<Failure>(why_);
    finish(operation);
  };
  for (const Chain& chain : chains_) {
    if (chain.operation == nullptr) continue;
    chain.operation->under_way -= chain.left;
    if (chain.operation->under_way == 0 && chain.operation->posted()) end(*chain.operation);
  }
  for (auto& lane : waiting_) {
    for (Operation* operation : lane) end(*operation);
    lane.clear();
  }
  chains_.clear();
  if (bounce_) bounce_->drop();
  writing_ = nullptr;
  leaving_.clear();
}

// ---- posting

Status CardAgentLink::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                   std::uint32_t key) {
  return regions_.attach_range(range, generation, base, length, key);
}

Status CardAgentLink::detach_range(RegionId range, std::uint32_t generation) {
  return regions_.detach_range(range, generation);
}

CardAgentLink::Operation* CardAgentLink::new_operation(bool is_read, std::uint64_t token) {
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
  operation->under_way = 0;
  operation->status = {};
  return operation;
}

// The host may have withdrawn a range before the ring says so.
Result<const Region*> CardAgentLink::resolve(const ReadPiece& piece) const {
  OFP_ASSIGN(const Region* region, regions_.resolve(piece.region, piece.generation, piece.offset, piece.length));
  if (!wire::is_segment(piece.region) && piece.region < range_gone_.size() &&
      piece.generation <= range_gone_[piece.region])
    return wire::stale_generation(piece.region, piece.generation, false, range_gone_[piece.region]);
  return region;
}

void CardAgentLink::add_piece(Operation& operation, RegionId id, const Region& region, std::uint64_t offset,
                              std::byte* memory, std::uint64_t length) {
  if (length == 0) return;
  Place place = Place::announced;
  if (id == wire::channel_segment) {
    if (offset < channel_.rings && length > channel_.rings - offset) {
      const std::uint64_t first = channel_.rings - offset;
      add_piece(operation, id, region, offset, memory, first);
      return add_piece(operation, id, region, channel_.rings, memory + first, length - first);
    }
    if (offset >= channel_.rings)
      place = Place::outside;
    else if (!open_)
      place = Place::early;
  }
  const std::uint64_t address = place == Place::announced ? region.base + offset : offset;
  const std::uint32_t key = place == Place::announced ? region.key : 0;
  if (!operation.pieces.empty()) {  // continues the previous piece on both sides
    Piece& before = operation.pieces.back();
    if (before.key == key && before.place == place && before.address + before.length == address &&
        before.memory + before.length == memory) {
      before.length += length;
      return;
    }
  }
  operation.pieces.push_back({address, key, place, memory, length});
}

void CardAgentLink::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
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

void CardAgentLink::write(std::uint64_t token, std::span<const WritePiece> pieces) {
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

void CardAgentLink::begin(Operation& operation) {
  if (lost_) operation.status = tl::unexpected<Failure>(why_);
  if (operations_.size() - idle_.size() > operations_max)
    operation.status = fail(Error::would_block, "{} operations are under way, at most {} are allowed",
                            operations_.size() - idle_.size(), operations_max);
  if (!operation.status || operation.pieces.empty()) {
    finish(operation);
    return watch();
  }
  waiting_[takes_turns(operation) ? 0 : 1].push_back(&operation);
  if (auto pumped = pump(); !pumped) lose(std::move(pumped).error());
  if (bounce_ && bounce_->refused() != nullptr) look_again();
  watch();
}

void CardAgentLink::finish(Operation& operation) {
  const auto kind = operation.is_read ? LinkEvent::Kind::read_done : LinkEvent::Kind::write_done;
  events_.push(kind, operation.token).status = std::move(operation.status);
  operation.status = {};
  operation.regions.clear();
  idle_.push_back(&operation);
}

Status CardAgentLink::pump() {
  for (auto& lane : waiting_) OFP_TRY(pump(lane));
  return {};
}

Status CardAgentLink::pump(std::deque<Operation*>& lane) {
  while (open_ && !halted_ && !lane.empty() && requests_under_way_ < card_.requests_max) {
    Operation& next = *lane.front();
    if (takes_turns(next)) {
      if (writing_ != nullptr && writing_ != &next) break;
      writing_ = &next;
    }
    Status done = post_chain(next);
    const bool whole = next.posted();
    if (whole) lane.pop_front();
    if (!done) return done;
    if (!whole) break;  // no more room
  }
  return {};
}

// Registers memory if that pays, once it is the operation's turn: memory of waiting operations stays unpinned.
void CardAgentLink::cover(Operation& operation) {
  operation.covered = true;
  std::uint64_t bytes = 0;
  stretches_.clear();
  for (const Piece& piece : operation.pieces) {
    if (device_->kept().key_of(*device_, piece.memory)) continue;
    stretches_.push_back({piece.memory, piece.length});
    bytes += piece.length;
  }
  if (bytes >= OperationRegions::bytes_min) operation.regions.cover(*device_, stretches_, operation.is_read);
}

Status CardAgentLink::post_chain(Operation& operation) {
  if (!operation.covered) cover(operation);
  requests_.clear();
  const std::size_t copies_begin = operation.copies.size();
  while (!operation.posted() && add_request(operation)) {
  }
  if (requests_.empty()) return {};
  const auto count = static_cast<unsigned>(requests_.size());
  operation.under_way += count;
  requests_under_way_ += count;
  chains_.push_back({&operation, count, count, bounce_->position(), copies_begin, operation.copies.size()});
  return post(operation.is_read, chains_.back(), requests_);
}

// Where the host's memory of a piece is; none: its announcement is still to come.
std::optional<CardAgentLink::Remote> CardAgentLink::find_remote(const Piece& piece) const {
  if (piece.place == Place::announced) return Remote{piece.address, piece.key};
  if (piece.place == Place::outside && channel_announced_ < channel_.all) {
    if (!outside_) return std::nullopt;
    return Remote{outside_->base + (piece.address - channel_.rings), outside_->key};
  }
  const Region* channel = regions_.find(wire::channel_segment);
  return Remote{channel->base + piece.address, channel->key};
}

// Adds the operation's next request, or extends the previous one; false if the card or the bounce buffer has no room,
// or the host has still to announce the memory.
bool CardAgentLink::add_request(Operation& operation) {
  const Piece& piece = operation.pieces[operation.piece];
  const auto remote = find_remote(piece);
  if (!remote) return false;
  const std::uint64_t address = remote->address + operation.offset;
  const std::uint32_t key = remote->key;
  std::byte* const memory = piece.memory + operation.offset;
  std::uint64_t length = piece.length - operation.offset;
  const bool inside = !operation.is_read && length <= card_.inside_bytes_max;
  std::optional<std::uint64_t> registered;
  if (!inside) {
    if (const auto kept = device_->kept().key_of(*device_, memory)) {
      registered = kept->key;
      length = std::min(length, kept->length);
    } else {
      registered = operation.regions.key_of(memory);
    }
  }
  const bool bounced = !inside && !registered;
  length = std::min(length, bounced ? bounced_bytes_max : card_.request_bytes_max);

  std::byte* local = memory;
  std::uint64_t local_key = registered.value_or(0);
  bool continues = false;
  if (bounced) {
    const auto room = bounce_->take(length, now_);
    if (!room) return false;
    local = room->memory;
    local_key = room->key;
    // Pieces that are adjacent on the host become one request, wherever their bytes go here.
    if (!requests_.empty()) {
      const Request& before = requests_.back();
      continues = before.key == key && before.address + before.length == address && before.local_key == local_key &&
                  before.local + before.length == local && before.length + length <= bounced_bytes_max;
    }
  }
  if (continues) {
    requests_.back().length += length;
  } else {
    if (requests_under_way_ + requests_.size() >= card_.requests_max) return false;
    requests_.push_back({address, key, inside, local, local_key, length});
  }
  if (bounced && operation.is_read) operation.copies.push_back({memory, local, length});
  if (bounced && !operation.is_read) std::memcpy(local, memory, length);
  operation.offset += length;
  if (operation.offset == piece.length) {
    ++operation.piece;
    operation.offset = 0;
  }
  return true;
}

void CardAgentLink::wake() {
  if (lost_) return;
  auto sent = socket_.send_wake();
  if (!sent) lose(std::move(sent).error());
  watch();
}

// ---- completions

void CardAgentLink::moved(Chain& chain, unsigned requests) {
  OFP_ASSERT(chain.operation != nullptr && chain.left >= requests);
  chain.left -= requests;
  Operation& operation = *chain.operation;
  operation.under_way -= requests;
  if (chain.left > 0) return;
  for (std::size_t i = chain.copies_begin; i < chain.copies_end; ++i) {
    const CopyBack& copy = operation.copies[i];
    std::memcpy(copy.to, copy.from, copy.length);
  }
  chain.operation = nullptr;
  if (operation.under_way > 0 || !operation.posted()) return;
  if (writing_ == &operation) writing_ = nullptr;
  finish(operation);
}

void CardAgentLink::settle() {
  while (!chains_.empty() && chains_.front().operation == nullptr) {
    bounce_->give_back_to(chains_.front().bounce_position);
    requests_under_way_ -= chains_.front().requests;
    chains_.pop_front();
  }
}

void CardAgentLink::fail_operation(Chain& chain, const Failure& why) {
  if (chain.operation != nullptr && chain.operation->status) chain.operation->status = tl::unexpected<Failure>(why);
}

// ---- polling

std::size_t CardAgentLink::poll(TimeNs now, std::span<LinkEvent> events) {
  if (told_) return 0;
  now_ = now;
  again_ = false;
  const auto attempt = [this](Status done) {
    if (!done) lose(std::move(done).error());
  };
  if (!lost_ && open_) {
    attempt(take_completions());
    if (!lost_) attempt(pump());
  }
  if (!lost_ && (!open_ || more_ || again_ || now >= next_look_ || ++polls_since_look_ >= polls_between_card_looks)) {
    next_look_ = deadline_after(now, look_interval_ns);
    polls_since_look_ = 0;
    attempt(look(now));
    if (!lost_) attempt(pump());
  }
  if (!lost_) attempt(look_at_memory(now));
  if (!lost_) attempt(tell_withdrawn());
  std::size_t count = events_.take(events);
  if (woken_ && count < events.size()) {
    events[count++] = {LinkEvent::Kind::woken, 0, {}, Fd(), std::exchange(requests_sent_, {})};
    woken_ = false;
  }
  if (lost_ && events_.empty() && count < events.size()) {
    events[count++] = {LinkEvent::Kind::closed, 0, tl::unexpected<Failure>(why_), Fd()};
    told_ = true;
  }
  watch();
  return count;
}

// A request for which the device has no memory waits for what other channels return. No completion of this one wakes
// the loop for it, so the link asks to be polled.
Status CardAgentLink::look_at_memory(TimeNs now) {
  const Failure* refused = bounce_ ? bounce_->refused() : nullptr;
  if (refused == nullptr) {
    refused_since_ = never;
    return {};
  }
  if (refused_since_ == never) refused_since_ = now;
  if (now >= deadline_after(refused_since_, memory_wait_ns)) return tl::unexpected<Failure>(*refused);
  look_again();
  return {};
}

// Checks only the descriptors that epoll reports, because each check is a system call.
Status CardAgentLink::look(TimeNs now) {
  more_ = false;
  if (device_) device_->bounce().rest(now);
  if (!open_ && now >= deadline_) return tl::unexpected<Failure>(why_not_open());
  std::array<epoll_event, 4> ready;
  const int count = epoll_wait(events_fd_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = ready[static_cast<std::size_t>(i)].data.fd;
    if (fd == socket_.fd()) {
      OFP_TRY(socket_.flush());
      OFP_TRY(take_frames());
    } else if (fd != more_fd_.get()) {
      OFP_TRY(look_at(fd));
    }
  }
  return {};
}

// Keeps event_fd() readable as long as poll has events.
void CardAgentLink::watch() {
  if (!events_fd_) return;
  if (const bool wanted = !lost_ && socket_.wants_write(); wanted != room_watched_) {
    epoll_event event{wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, {}};
    event.data.fd = socket_.fd();
    if (epoll_ctl(events_fd_.get(), EPOLL_CTL_MOD, socket_.fd(), &event) == 0) room_watched_ = wanted;
  }
  if (const bool wanted = more_ || again_ || woken_ || !events_.empty() || (lost_ && !told_); wanted != more_watched_) {
    epoll_event event{wanted ? EPOLLIN : 0u, {}};
    event.data.fd = more_fd_.get();
    if (epoll_ctl(events_fd_.get(), EPOLL_CTL_MOD, more_fd_.get(), &event) == 0) more_watched_ = wanted;
  }
}

// ---- the control socket

Status CardAgentLink::take_frames() {
  for (unsigned taken = 0; taken < frames_of_a_look; ++taken) {
    ControlSocket::Frame frame;
    OFP_ASSIGN(const bool there, socket_.next(frame));
    if (!there) return {};
    OFP_TRY(take_frame(frame));
  }
  more_ = true;  // perhaps in the socket's own buffer
  return {};
}

Status CardAgentLink::take_frame(const ControlSocket::Frame& frame) {
  switch (frame.type) {
    case ControlType::wake:
      woken_ = true;
      requests_sent_.clear();  // not all that were posted: the ring is looked at
      return {};
    case ControlType::requests:
      woken_ = true;
      return take_requests(frame.payload, requests_sent_);
    case ControlType::withdraw:
      return let_go(frame.payload);
    default:
      return take_announcement(frame);
  }
}

Status CardAgentLink::check_segment(RegionId segment, std::uint64_t length) const {
  const std::uint32_t number = segment & ~wire::segment_flag;
  if (segment == wire::channel_segment) {
    if (open_) return fail(Error::protocol, "segment 0: announced twice");
    if (length != channel_.all && length != channel_.rings)
      return fail(Error::protocol, "segment 0: {} bytes, the channel has {}, its rings {}", length, channel_.all,
                  channel_.rings);
    return {};
  }
  if (number >= limits_.count_max || segment_count_ >= limits_.count_max)
    return fail(Error::too_large, "segment {}: at most {} segments are allowed", number, limits_.count_max);
  if (length > limits_.bytes_max - segment_bytes_)
    return fail(Error::too_large, "segment {}: its {} bytes and the {} of other segments are more than the {} allowed",
                number, length, segment_bytes_, limits_.bytes_max);
  if (regions_.find(segment) != nullptr) return fail(Error::protocol, "segment {}: announced twice", number);
  return {};
}

Status CardAgentLink::attach_segment(RegionId segment, std::uint64_t address, std::uint64_t length, std::uint32_t key) {
  if (segment == wire::channel_segment) {
    OFP_TRY(regions_.attach(segment, 0, address, channel_.all, key));
    channel_announced_ = length;
    open_ = true;
    return {};
  }
  OFP_TRY(regions_.attach(segment, 0, address, length, key));
  segment_bytes_ += length;
  ++segment_count_;
  return {};
}

Status CardAgentLink::attach_outside(std::uint64_t address, std::uint64_t length, std::uint32_t key) {
  if (!open_ || channel_announced_ == channel_.all || outside_)
    return fail(Error::protocol, "segment 0: the part outside of its rings is announced {}",
                open_ ? "twice" : "before the rings");
  if (length != channel_.all - channel_.rings)
    return fail(Error::protocol, "segment 0: {} bytes outside of its rings, the channel has {}", length,
                channel_.all - channel_.rings);
  std::uint64_t end = 0;
  if (!checked_add(address, length, end))
    return fail(Error::protocol, "segment 0: {} bytes outside of its rings at {:#x} are beyond the address space",
                length, address);
  outside_ = Region{0, true, address, length, key};
  return {};
}

Status CardAgentLink::let_go(Bytes payload) {
  OFP_ASSIGN(const wire::Withdrawal withdrawal, wire::decode_withdrawal(payload));
  if (withdrawal.region == wire::channel_segment)
    return fail(Error::protocol, "the channel segment cannot be withdrawn");
  if (leaving_.size() >= leaving_max) return fail(Error::protocol, "more than {} withdrawals at a time", leaving_max);
  const std::uint64_t before = first_without(withdrawal);
  if (withdrawal.region == wire::outside_part) {
    outside_.reset();
  } else if (wire::is_segment(withdrawal.region)) {
    if (const Region* region = regions_.find(withdrawal.region); region != nullptr) {
      segment_bytes_ -= region->length;
      --segment_count_;
      OFP_TRY(regions_.detach(withdrawal.region, 0));
    }
  } else {
    if (withdrawal.region >= wire::regions_max)
      return fail(Error::protocol, "withdrawal: there is no range {}", withdrawal.region);
    if (withdrawal.region >= range_gone_.size()) range_gone_.resize(withdrawal.region + 1);
    std::uint32_t& gone = range_gone_[withdrawal.region];
    gone = std::max(gone, withdrawal.generation);
  }
  leaving_.push_back({before, withdrawal});
  return {};
}

// No operation from this number on uses the memory. If its key is unknown (the range was announced again meanwhile),
// any operation may.
std::uint64_t CardAgentLink::first_without(const wire::Withdrawal& withdrawal) const {
  const Region* region = regions_.find(withdrawal.region);
  if (region == nullptr || region->generation != withdrawal.generation) return next_number_;
  std::uint64_t first = 0;
  const auto look_at = [&first, key = region->key](const Operation& operation) {
    if (operation.number >= first && std::ranges::find(operation.pieces, key, &Piece::key) != operation.pieces.end())
      first = operation.number + 1;
  };
  for (const Chain& chain : chains_)
    if (chain.operation != nullptr) look_at(*chain.operation);
  for (const auto& lane : waiting_)
    for (const Operation* operation : lane) look_at(*operation);
  return first;
}

std::uint64_t CardAgentLink::oldest_under_way() const noexcept {
  std::uint64_t oldest = next_number_;
  for (const auto& lane : waiting_)
    if (!lane.empty()) oldest = std::min(oldest, lane.front()->number);
  for (const Chain& chain : chains_)
    if (chain.operation != nullptr) oldest = std::min(oldest, chain.operation->number);
  return oldest;
}

Status CardAgentLink::tell_withdrawn() {
  if (leaving_.empty()) return {};
  const std::uint64_t oldest = oldest_under_way();
  while (!leaving_.empty() && oldest >= leaving_.front().before) {
    scratch_.clear();
    wire::encode(leaving_.front().withdrawal, scratch_);
    forget(leaving_.front().withdrawal);
    leaving_.pop_front();
    OFP_TRY(socket_.send(ControlType::withdrawn, scratch_));
  }
  return {};
}

}  // namespace offpath::link
