#include "channel/agent_end.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "base/ring_bytes.h"
#include "base/sleep_flag.h"
#include "channel/agent_end_operations.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

namespace offpath::channel {

using link::LinkEvent;
using wire::ChannelLayout;
using wire::CompletionLine;
using wire::EntryKind;
using wire::Slot;
using wire::WakeWord;

namespace {

constexpr std::size_t answers_max = 1024;  // beyond these no request is taken until the host has read replies
constexpr std::size_t pulls_max = 4096;    // likewise, until some pulls have completed
constexpr std::size_t mapped_slices_max = link::AgentLink::operations_max / 4;
constexpr std::size_t slice_pieces_max = 1024;  // the most that one vectored read takes
constexpr unsigned look_ahead_slots = 15;       // with the tail line, 1 KiB
constexpr TimeNs busy_ns = 50 * microsecond_ns;
constexpr unsigned idle_rounds = 16;
// A ring with fewer free slots is called full: the program keeps eight for requests of wakes, and its next request may
// need as many.
constexpr std::uint64_t full_free_slots = 16;

}  // namespace

AgentEnd::AgentEnd(std::uint64_t number, std::string program, std::unique_ptr<link::AgentLink> link,
                   const ChannelLayout& layout, AgentEvents& events, const AgentEndOptions& options)
    : number_(number),
      program_(std::move(program)),
      link_(std::move(link)),
      layout_(layout),
      events_(events),
      options_(options),
      slice_bytes_(link_->traits().one_sided ? options.pull_slice_bytes : options.asked_slice_bytes),
      requests_(layout.request_slots, EntryReader::Tickets::counted),
      replies_(nullptr, layout.reply_slots),
      lines_(layout.streams_max) {
  if (const MutableBytes memory = link_->mapped(wire::channel_segment); memory.size() >= layout.total_bytes()) {
    mapped_ = memory.data();
    replies_ = RingWriter(mapped_ + layout.reply_ring(), layout.reply_slots);
    look_out_ = LookOut(options.look_budget);  // otherwise each look is a read over the network
  } else {
    reply_mirror_ = std::make_unique_for_overwrite<std::byte[]>(layout.reply_slots * wire::slot_bytes);
    replies_ = RingWriter(reply_mirror_.get(), layout.reply_slots);
  }
}

AgentEnd::~AgentEnd() = default;

bool AgentEnd::poll(TimeNs now) {
  if (closed_) return false;
  if (closing_) {
    end(now);
    return true;
  }
  if (now >= look_out_.next() && look_out_.begin(now)) [[unlikely]]
    rouse();
  bool did = take_link_events(now);
  if (!closing_ && may_sleep_with_flush()) {
    sleep_ = Sleep::falling;
    agent_line_dirty_ = true;
  }
  if (!closing_) did |= look(now);
  std::uint64_t budget = slice_bytes_;  // of one poll, if reads complete at once
  while (!closing_ && post_slices(budget)) {
    did = true;
    take_link_events(now);  // then their batch completes in this round, and the next one may begin
  }
  did |= finish_pulls(now);  // pulls with nothing to read
  if (!closing_) did |= flush(now);
  // Over a link that keeps their order, writes may be complete as soon as they are posted.
  if (!closing_ && flushing_ > 0 && link_->traits().ordered) {
    did |= take_link_events(now);
    if (!closing_ && flushing_ == 0) did |= pay_wake();  // no other event may come before the loop sleeps
  }
  if (sleep_ == Sleep::falling && link_->traits().ordered && !agent_line_dirty_ && !looking_ && !closing_) {
    sleep_ = Sleep::looking;
    post_look();
  }
  if (did) idle_since_ = now;
  return did;
}

// ---- link events

bool AgentEnd::take_link_events(TimeNs now) {
  const std::size_t count = link_->poll(now, events_taken_);
  bool did = false;
  for (std::size_t i = 0; i < count && !closing_; ++i) {
    LinkEvent& event = events_taken_[i];
    switch (event.kind) {
      case LinkEvent::Kind::read_done:
      case LinkEvent::Kind::write_done:
        did |= take_completion(event.token, std::move(event.status), now);
        continue;
      case LinkEvent::Kind::woken:
        if (event.requests.empty() || !take_sent(std::exchange(event.requests, {}), now)) wake_up(now);
        break;
      case LinkEvent::Kind::offered:
        events_.on_offer(
            *this, event.token,
            event.status ? Result<Fd>(std::move(event.fd)) : tl::unexpected(std::move(event.status).error()), now);
        break;
      case LinkEvent::Kind::closed:
        close(event.status ? Failure{Error::closed, "the program closed the channel"}
                           : std::move(event.status).error());
        break;
    }
    did = true;
  }
  return did;
}

// False for completions that should not delay sleep: looks that found nothing, and writes of lines and flags.
bool AgentEnd::take_completion(std::uint64_t token, Status status, TimeNs now) {
  const std::uint64_t number = token & ((1ull << 56) - 1);
  switch (static_cast<Operation>(token >> 56)) {
    case Operation::look:
      return finish_look(std::move(status), now);
    case Operation::flush:
      --flushing_;
      if (!status) close(std::move(status).error());
      return false;
    case Operation::pull: {
      const auto pull = std::ranges::find(pulls_, number, &Pull::number);
      OFP_ASSERT(pull != pulls_.end());
      --pull->outstanding;
      --slices_outstanding_;
      if (!status && pull->status) {
        pull->status = std::move(status);
        pull->all_posted = true;  // the rest need not be read
      }
      finish_pulls(time(now));  // the link may have read during this poll
      return true;
    }
    case Operation::fetch:
    case Operation::push: {
      const auto push = std::ranges::find(pushes_, number, &std::pair<std::uint64_t, std::uint64_t>::first);
      OFP_ASSERT(push != pushes_.end());
      const std::uint64_t owner = push->second;
      pushes_.erase(push);
      if (static_cast<Operation>(token >> 56) == Operation::push) ++counters_.pushes;
      events_.on_transfer(*this, owner, std::move(status), now);
      return true;
    }
    case Operation::outside:
      fetching_ = false;
      look_again_ = true;
      if (status) status = serve_outside(now);
      if (!status) close(std::move(status).error());
      return true;
  }
  return false;
}

void AgentEnd::wake_up(TimeNs now) {
  idle_since_ = now;
  rouse();
}

void AgentEnd::rouse() noexcept {
  if (sleep_ == Sleep::awake) return;
  sleep_ = Sleep::awake;
  if (mapped_ != nullptr)
    SleepFlag(mapped_ + ChannelLayout::agent_line + offsetof(wire::AgentLine, asleep)).clear();
  else
    agent_line_dirty_ = true;
}

TimeNs AgentEnd::idle_before_sleep_ns() const {
  return link_->traits().one_sided && !background_ ? options_.idle_before_sleep_ns : 0;
}

// Called before idle_since_ counts the post.
void AgentEnd::note_post(const Entry& entry, TimeNs now) {
  if (entry.payload.size() < sizeof(std::uint16_t)) return;
  if (look_out_.looks_at(now)) look_out_.end(now, now - idle_since_ >= idle_before_sleep_ns());
  look_out_.posted(load<std::uint16_t>(entry.payload.data()), now);  // sends and moves begin with the stream's number
}

// ---- the request ring

bool AgentEnd::saturated() const noexcept {
  return held_ || fetching_ || answers_.size() >= answers_max || pulls_.size() >= pulls_max;
}

bool AgentEnd::look(TimeNs now) {
  // If the segment is not mapped, looks also read how far the program has read its replies.
  if (saturated() && (mapped_ != nullptr || answers_.empty())) {
    if (mapped_ != nullptr)
      note_requests(word(mapped_ + ChannelLayout::tail_line).load(std::memory_order_relaxed), now);
    return false;
  }
  if (mapped_ != nullptr) return look_mapped(now);
  if (looking_ || sleep_ == Sleep::asleep || sleep_ == Sleep::falling) return false;
  // An idle ring is looked at less often: each look is a read over the network.
  if (!look_again_ && now - idle_since_ > busy_ns && ++rounds_ % idle_rounds != 0) return false;
  post_look();
  return false;  // nothing is complete yet
}

std::string_view AgentEnd::why_requests_wait() const noexcept {
  if (answers_.size() >= answers_max) return "the program does not read its replies";
  if (held_) return "the agent takes no more of its requests before earlier ones are done";
  if (pulls_.size() >= pulls_max) return "the agent still reads the arrays of earlier requests";
  return "the agent is about to take its requests";
}

void AgentEnd::note_requests(std::uint64_t tail, TimeNs now) noexcept {
  requests_full_.note(tail - std::min(tail, request_head()) + full_free_slots > layout_.request_slots, now);
}

Status AgentEnd::check_tail(std::uint64_t tail) const {
  if (tail < tail_ || tail - std::min(tail, requests_.position()) > layout_.request_slots)
    return fail(Error::protocol, "the request ring's tail is {}; it was {}, {} slots are taken, the ring has {}", tail,
                tail_, requests_.position(), layout_.request_slots);
  return {};
}

// A slot counts if it is below the tail, or if lap and checksum show that it is complete: then it is taken before the
// tail's cache line arrives from the host's core.
bool AgentEnd::look_mapped(TimeNs now) {
  const std::uint64_t tail = word(mapped_ + ChannelLayout::tail_line).load(std::memory_order_acquire);
  const bool slot_is_new = requests_.is_due(word(next_slot()).load(std::memory_order_acquire));
  if (tail == tail_ && tail <= requests_.position() && !slot_is_new) return false;
  ++counters_.looks;
  if (auto status = check_tail(tail); !status) {
    close(std::move(status).error());
    return true;
  }
  tail_ = tail;
  note_requests(tail, now);
  prefetch_slots();
  const std::uint64_t position_before = requests_.position();
  for (unsigned taken = 0; taken < options_.look_slots_max && !saturated(); ++taken) {
    const bool published = requests_.position() < tail;
    if (!published && !requests_.is_due(word(next_slot()).load(std::memory_order_acquire))) break;
    Slot slot;  // copied once, then checked, then used
    std::memcpy(&slot, next_slot(), sizeof slot);
    if (!requests_.verifies(slot)) {
      if (!published) break;  // still being written
      close(requests_.explain(slot));
      return true;
    }
    // Acquires everything that the program wrote before the slot.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (sleep_ != Sleep::awake) wake_up(now);
    if (!take_slot(slot, now)) return true;
  }
  if (requests_.position() == position_before) return false;
  note_requests(tail, now);
  reply_head_ =
      word(mapped_ + ChannelLayout::tail_line + offsetof(wire::TailLine, reply_head)).load(std::memory_order_acquire);
  return true;
}

std::byte* AgentEnd::next_slot() const noexcept {
  return mapped_ + ChannelLayout::request_ring +
         (requests_.position() & (layout_.request_slots - 1)) * wire::slot_bytes;
}

// The host's core has these cache lines: requested together they arrive together.
void AgentEnd::prefetch_slots() const noexcept {
  const std::uint64_t known = std::min<std::uint64_t>(tail_ - std::min(tail_, requests_.position()), look_ahead_slots);
  for (std::uint64_t i = 1; i < known; ++i)
    __builtin_prefetch(mapped_ + ChannelLayout::request_ring +
                       ((requests_.position() + i) & (layout_.request_slots - 1)) * wire::slot_bytes);
}

void AgentEnd::post_look() {
  looking_ = true;
  look_again_ = false;
  look_position_ = requests_.position();
  look_tail_before_ = tail_;
  const std::uint64_t known = tail_ - std::min(tail_, look_position_);
  look_slots_ = std::clamp<std::uint64_t>(known, look_ahead_slots, options_.look_slots_max);
  look_slots_ = std::min<std::uint64_t>(look_slots_, layout_.request_slots);
  look_buffer_.resize(sizeof(wire::TailLine) + look_slots_ * wire::slot_bytes);
  const auto [at, first, second] = ring_runs(layout_.request_slots, look_position_, look_slots_);
  std::byte* slots = look_buffer_.data() + wire::slot_bytes;
  const auto slot_offset = [](std::uint64_t index) { return ChannelLayout::request_ring + index * wire::slot_bytes; };
  const std::array<link::ReadPiece, 3> pieces = {{
      {wire::channel_segment, 0, ChannelLayout::tail_line, look_buffer_.data(), sizeof(wire::TailLine)},
      {wire::channel_segment, 0, slot_offset(at), slots, first * wire::slot_bytes},
      {wire::channel_segment, 0, slot_offset(0), slots + first * wire::slot_bytes, second * wire::slot_bytes},
  }};
  ++counters_.looks;
  link_->read(token_of(Operation::look, 0), std::span(pieces).first(second > 0 ? 3 : 2));
}

// Tail and slots came in one read, unordered. A slot counts if it is below a tail that had arrived before this read was
// posted, or if lap and checksum show that it is complete; otherwise it is read again.
bool AgentEnd::finish_look(Status status, TimeNs now) {
  looking_ = false;
  if (!status) {
    close(std::move(status).error());
    return true;
  }
  const auto tail_line = load<wire::TailLine>(look_buffer_.data());
  const Bytes slots = Bytes(look_buffer_).subspan(sizeof(wire::TailLine), look_slots_ * wire::slot_bytes);
  const bool more = take_looked({look_position_, look_tail_before_, tail_line.tail, tail_line.reply_head, slots}, now);
  if (!more && sleep_ == Sleep::looking) {
    sleep_ = Sleep::asleep;
    ++counters_.sleeps;
  }
  return more;
}

// What the host sent with a wake spares the look after it. It is older than any look that is under way, and may be
// older than the last one. False: only a look can tell what the wake was for.
bool AgentEnd::take_sent(Bytes requests, TimeNs now) {
  if (mapped_ != nullptr || looking_ || saturated()) return false;
  const auto head = load<wire::SentRequests>(requests.data());
  const Bytes slots = requests.subspan(sizeof head);
  if (head.tail < tail_) return false;
  if (head.position > requests_.position()) {
    close({Error::protocol, fmt::format("a wake with requests from slot {} on; the agent has taken {}", head.position,
                                        requests_.position())});
    return true;
  }
  const std::uint64_t sent = slots.size() / wire::slot_bytes;
  return take_looked({head.position, std::min(head.position + sent, head.tail), head.tail, head.reply_head, slots},
                     now);
}

// True if requests were found, or a look is necessary.
bool AgentEnd::take_looked(const Looked& looked, TimeNs now) {
  if (auto checked = check_tail(looked.tail); !checked) {
    close(std::move(checked).error());
    return true;
  }
  reply_head_ = std::max(reply_head_, looked.reply_head);
  note_requests(looked.tail, now);
  const std::uint64_t position_before = requests_.position(), count = looked.slots.size() / wire::slot_bytes;
  for (std::uint64_t i = position_before - looked.position; i < count && !saturated(); ++i) {
    const auto slot = load<Slot>(looked.slots.data() + i * wire::slot_bytes);
    if (!requests_.verifies(slot)) {
      if (looked.position + i < looked.certain) {
        close(requests_.explain(slot));
        return true;
      }
      break;
    }
    if (!take_slot(slot, now)) return true;
  }
  tail_ = looked.tail;  // the tail may be behind the position: slots can arrive before it
  note_requests(tail_, now);
  const bool found = requests_.position() != position_before;
  // These came with a wake, and no others are likely to follow soon. The host still sees the flag of the sleep, so the
  // next ones come with a wake too.
  const bool sleeps_on =
      found && sleep_ == Sleep::asleep && background_ && requests_.position() >= tail_ && !saturated();
  look_again_ = !sleeps_on && (found || requests_.position() < tail_);
  if (sleeps_on)
    idle_since_ = now;
  else if (look_again_)
    wake_up(now);
  return sleeps_on || look_again_;
}

bool AgentEnd::take_slot(const Slot& slot, TimeNs now) {
  Entry entry;
  auto complete = requests_.take(slot, entry);
  Status status;
  if (!complete)
    status = tl::unexpected(std::move(complete).error());
  else if (*complete)
    status = entry.outside ? take_outside(entry, now) : serve(entry, now);
  if (status) return true;
  close(std::move(status).error());
  return false;
}

Status AgentEnd::take_outside(const Entry& entry, TimeNs now) {
  const auto named = load<wire::OutsideEntry>(entry.payload.data());
  if (named.length > wire::entry_bytes_max)
    return fail(Error::protocol, "request {} is stored outside of the ring with {} bytes; at most {} are allowed",
                entry.ticket, named.length, wire::entry_bytes_max);
  outside_ = entry;
  outside_crc32c_ = named.crc32c;
  outside_payload_.resize(named.length);
  if (mapped_ != nullptr) {
    if (named.length != 0) std::memcpy(outside_payload_.data(), mapped_ + layout_.outside(), named.length);
    return serve_outside(now);
  }
  fetching_ = true;
  const link::ReadPiece piece{wire::channel_segment, 0, layout_.outside(), outside_payload_.data(), named.length};
  link_->read(token_of(Operation::outside, 0), {&piece, 1});
  return {};
}

Status AgentEnd::serve_outside(TimeNs now) {
  if (const std::uint32_t found = crc32c(outside_payload_); found != outside_crc32c_)
    return fail(Error::protocol, "request {}: checksum {:#010x}, its bytes outside of the ring have {:#010x}",
                outside_.ticket, outside_crc32c_, found);
  outside_.payload = outside_payload_;
  return serve(outside_, now);
}

Status AgentEnd::serve(const Entry& entry, TimeNs now) {
  ++counters_.requests;
  switch (static_cast<EntryKind>(entry.kind)) {
    case EntryKind::announce_range: {
      wire::AnnounceRange announce;
      OFP_TRY(wire::decode(entry.payload, announce));
      if (auto status =
              link_->attach_range(announce.range, announce.generation, announce.base, announce.length, announce.key);
          !status)
        reply_failure(entry.ticket, wire::any_reply, status.error());
      return {};
    }
    case EntryKind::retire_range: {
      wire::RetireRange retire;
      OFP_TRY(wire::decode(entry.payload, retire));
      if (auto status = link_->detach_range(retire.range, retire.generation); !status)
        reply_failure(entry.ticket, wire::any_reply, status.error());
      return {};
    }
    case EntryKind::wake_at: {
      wire::WakeAt wake;
      OFP_TRY(wire::decode(entry.payload, wake));
      if (wake.word < WakeWord::replies && wake.stream >= layout_.streams_max)
        return fail(Error::protocol, "wake request for stream {}, the channel has {}", wake.stream,
                    layout_.streams_max);
      ask_wake(wake);
      return {};
    }
    case EntryKind::probe:
      reply(wire::ReplyKind::probed, entry.ticket, wire::Probed{time(now)});
      return {};
    case EntryKind::send:
    case EntryKind::move:
      note_post(entry, now);
      [[fallthrough]];
    default:
      OFP_TRY(events_.check(entry));
      events_.on_request(*this, entry, now);
      return {};
  }
}

// ---- pulls and pushes

void AgentEnd::pull(std::uint64_t token, std::vector<link::ReadPiece> pieces) {
  std::erase_if(pieces, [](const link::ReadPiece& piece) { return piece.length == 0; });
  ++counters_.pulls;
  const bool empty = pieces.empty();
  pulls_.push_back(
      {.number = next_pull_++, .token = token, .pieces = std::move(pieces), .all_posted = empty, .status = {}});
}

void AgentEnd::fetch(std::uint64_t token, std::span<const link::ReadPiece> pieces) {
  pushes_.emplace_back(next_push_, token);
  link_->read(token_of(Operation::fetch, next_push_++), pieces);
}

void AgentEnd::push(std::uint64_t token, std::vector<link::WritePiece> pieces) {
  pushes_.emplace_back(next_push_, token);
  for (const auto& piece : pieces) counters_.bytes_pushed += piece.length;
  link_->write(token_of(Operation::push, next_push_++), pieces);
}

void AgentEnd::cancel(std::uint64_t token) {
  for (Pull& pull : pulls_)
    if (pull.token == token && !pull.all_posted) {
      pull.all_posted = true;
      pull.status = fail(Error::cancelled, "cancelled");
    }
}

bool AgentEnd::post_slices(std::uint64_t& budget) {
  bool posted = false;
  for (Pull& pull : pulls_) {
    while (!pull.all_posted && budget > 0) {
      // If slices complete at once, none is outstanding after the next poll.
      if (slices_outstanding_ >= (mapped_ == nullptr ? options_.pulls_outstanding : mapped_slices_max)) return posted;
      const std::uint64_t bytes = post_slice(pull, std::min(budget, slice_bytes_));
      if (mapped_ != nullptr) budget -= bytes;
      posted = true;
    }
    if (budget == 0) break;
  }
  return posted;
}

std::uint64_t AgentEnd::post_slice(Pull& pull, std::uint64_t bytes_max) {
  slice_.clear();
  std::uint64_t bytes = 0;
  while (pull.piece < pull.pieces.size() && bytes < bytes_max && slice_.size() < slice_pieces_max) {
    const link::ReadPiece& piece = pull.pieces[pull.piece];
    const std::uint64_t length = std::min(piece.length - pull.offset, bytes_max - bytes);
    slice_.push_back(
        {piece.region, piece.generation, piece.offset + pull.offset, piece.to + pull.offset, length, piece.unshared});
    bytes += length;
    pull.offset += length;
    if (pull.offset == piece.length) {
      ++pull.piece;
      pull.offset = 0;
    }
  }
  pull.all_posted = pull.piece == pull.pieces.size();
  ++pull.outstanding;
  ++slices_outstanding_;
  counters_.bytes_pulled += bytes;
  link_->read(token_of(Operation::pull, pull.number), slice_);
  return bytes;
}

bool AgentEnd::finish_pulls(TimeNs now) {
  bool did = false;
  while (!pulls_.empty() && pulls_.front().all_posted && pulls_.front().outstanding == 0) {
    Pull done = std::move(pulls_.front());
    pulls_.pop_front();
    did = true;
    events_.on_transfer(*this, done.token, std::move(done.status), now);
  }
  return did;
}

// ---- sleeping and waking

namespace {

std::array<std::uint64_t, 3> values_of(const CompletionLine& words) noexcept {
  return {words.pulled, words.stored, words.credit};
}

}  // namespace

// The smaller value counts: after the wake the program asks again for what it still waits for. A value that is already
// reached owes a wake even if a larger one is asked for: the program may have seen the word and asked for the next
// value before its wake.
void AgentEnd::ask_wake(const wire::WakeAt& wake) noexcept {
  const auto lower = [&](std::uint64_t& asked, bool reached) {
    wake_owed_ |= reached;
    asked = reached ? wake.value : std::min(asked, wake.value);
  };
  if (wake.word == WakeWord::now) {
    wake_now_ = true;
  } else if (wake.word == WakeWord::replies) {
    lower(wake_beyond_, reply_written_ > wake_beyond_);
  } else {
    Line& asked = lines_[wake.stream];
    const auto word = static_cast<std::size_t>(wake.word);
    const std::uint64_t value = values_of(asked.written)[word];
    lower(asked.wake_at[word], value >= asked.wake_at[word]);
    if (value >= wake.value) (void)line(wake.stream);  // settled when it is written, like any other
  }
}

// The line is written, or the write is under way.
void AgentEnd::settle_wakes(Line& line) noexcept {
  const auto values = values_of(line.written);
  for (std::size_t word = 0; word < values.size(); ++word) {
    if (values[word] < line.wake_at[word]) continue;
    line.wake_at[word] = nobody;
    wake_owed_ = true;
  }
}

bool AgentEnd::pay_wake() {
  if (!wake_owed_) return false;
  wake_owed_ = false;
  ++counters_.wakes_sent;
  link_->wake();
  return true;
}

// After a request that no other is likely to follow: the answer, the flag of the sleep and the look after it are posted
// together, if the link keeps their order.
bool AgentEnd::may_sleep_with_flush() const noexcept {
  return mapped_ == nullptr && background_ && sleep_ == Sleep::awake && look_again_ && !looking_ && !fetching_ &&
         flushing_ == 0 && pulls_.empty() && link_->traits().ordered &&
         replies_.used(reply_head_) < replies_.slots() / 2;
}

bool AgentEnd::fall_asleep(TimeNs now) {
  if (closed_ || closing_) return false;
  if (now - idle_since_ < idle_before_sleep_ns() || !answers_.empty()) return false;
  if (mapped_ != nullptr) {
    if (!pulls_.empty()) return false;
    if (sleep_ == Sleep::asleep) return true;
    if (look_out_.looks_at(now)) return false;
    look_out_.end(now, false);
    const SleepFlag flag(mapped_ + ChannelLayout::agent_line + offsetof(wire::AgentLine, asleep));
    if (!flag.fall_asleep([&] {
          return word(mapped_ + ChannelLayout::tail_line).load(std::memory_order_acquire) > requests_.position();
        }))
      return false;
    sleep_ = Sleep::asleep;
    ++counters_.sleeps;
    return true;
  }
  if (wake_owed_ && flushing_ == 0) return false;  // the next poll pays it
  // Over a link with delayed completion: write the flag, wait for the write, look once more, then sleep. The loop may
  // sleep at every stage, because each ends with an event of the link.
  switch (sleep_) {
    case Sleep::awake:
      if (looking_ || fetching_ || flushing_ > 0) return true;
      if (look_again_) return false;
      sleep_ = Sleep::falling;
      agent_line_dirty_ = true;
      flush_remote();
      if (link_->traits().ordered) {
        sleep_ = Sleep::looking;
        post_look();
      }
      return true;
    case Sleep::falling:
      if (flushing_ > 0) return true;
      sleep_ = Sleep::looking;
      if (!looking_) post_look();
      return true;
    case Sleep::looking:
      return true;
    case Sleep::asleep:
      return true;
  }
  return true;
}

// ---- the end

void AgentEnd::close(Failure why) {
  if (closing_ || closed_) return;
  closing_ = true;
  why_ = std::move(why);
}

void AgentEnd::end(TimeNs now) {
  if (why_.code != Error::closed && why_.code != Error::peer_lost) link_->refuse(why_);
  events_.on_closing(*this);
  link_->close();
  closed_ = true;
  look_out_.end(now, false);
  const Failure gone{why_.code, fmt::format("the channel ended: {}", why_.message)};
  for (auto pulls = std::exchange(pulls_, {}); const Pull& pull : pulls)
    events_.on_transfer(*this, pull.token, tl::unexpected(gone), now);
  for (auto pushes = std::exchange(pushes_, {}); const auto& push : pushes)
    events_.on_transfer(*this, push.second, tl::unexpected(gone), now);
  events_.on_closed(*this, why_, now);
}

}  // namespace offpath::channel
