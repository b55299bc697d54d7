#include "channel/agent_end.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "base/ring_bytes.h"
#include "base/sleep_flag.h"
#include "channel/agent/operations.h"
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

constexpr unsigned mapped_slices_max = link::AgentLink::operations_max / 4;
constexpr unsigned look_ahead_slots = 15;  // with the tail line, 1 KiB
constexpr TimeNs busy_ns = 50 * microsecond_ns;
constexpr unsigned idle_rounds = 16;
// A ring with fewer free slots is called full: the program keeps eight for requests of wakes, and its next request may
// need as many.
constexpr std::uint64_t full_free_slots = 16;

std::byte* mapped_channel(link::AgentLink& link, const ChannelLayout& layout) {
  const MutableBytes memory = link.mapped(wire::channel_segment);
  return memory.size() >= layout.total_bytes() ? memory.data() : nullptr;
}

TransferLimits transfer_limits(const link::LinkTraits& link, const AgentEndOptions& options, bool mapped) {
  return {.slice_bytes = link.one_sided ? options.pull_slice_bytes : options.asked_slice_bytes,
          .slices_outstanding = mapped ? mapped_slices_max : options.pulls_outstanding,
          .in_the_call = mapped};
}

}  // namespace

AgentEnd::AgentEnd(std::uint64_t number, std::string program, std::unique_ptr<link::AgentLink> link,
                   const ChannelLayout& layout, AgentEvents& events, const AgentEndOptions& options)
    : number_(number),
      program_(std::move(program)),
      link_(std::move(link)),
      layout_(layout),
      events_(events),
      options_(options),
      mapped_(mapped_channel(*link_, layout)),
      requests_(layout.request_slots, EntryReader::Tickets::counted),
      lines_(layout.streams_max),
      wakes_(layout.streams_max),
      answers_(mapped_ != nullptr ? mapped_ + layout.reply_ring() : nullptr, layout.reply_slots, lines_),
      writer_(*link_, layout, mapped_, lines_, wakes_, answers_),
      transfers_(*link_, counters_, transfer_limits(link_->traits(), options, mapped_ != nullptr)) {
  if (mapped_ != nullptr) look_out_ = LookOut(options.look_budget);  // otherwise each look is a read over the network
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
    writer_.flag_changed();
  }
  if (!closing_) did |= look(now);
  std::uint64_t budget = transfers_.slice_bytes();  // of one poll, if reads complete at once
  while (!closing_ && transfers_.post(budget)) {
    did = true;
    take_link_events(now);  // then their batch completes in this round, and the next one may begin
  }
  did |= finish_pulls(now);  // pulls with nothing to read
  if (!closing_) did |= flush(now);
  // Over a link that keeps their order, writes may be complete as soon as they are posted.
  if (!closing_ && writer_.writing() && link_->traits().ordered) {
    did |= take_link_events(now);
    if (!closing_ && !writer_.writing()) did |= pay_wake();  // no other event may come before the loop sleeps
  }
  if (sleep_ == Sleep::falling && link_->traits().ordered && !writer_.flag_is_due() && !looking_ && !closing_) {
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
      writer_.end_write();
      if (!status) close(std::move(status).error());
      return false;
    case Operation::pull:
      transfers_.end_slice(number, std::move(status));
      finish_pulls(time(now));  // the link may have read during this poll
      return true;
    case Operation::fetch:
      events_.on_transfer(*this, transfers_.end_fetch(number), std::move(status), now);
      return true;
    case Operation::push:
      events_.on_transfer(*this, transfers_.end_push(number), std::move(status), now);
      return true;
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
    writer_.flag_changed();
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

bool AgentEnd::saturated() const noexcept { return held_ || fetching_ || answers_.full() || transfers_.full(); }

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
  if (answers_.full()) return "the program does not read its replies";
  if (held_) return "the agent takes no more of its requests before earlier ones are done";
  if (transfers_.full()) return "the agent still reads the arrays of earlier requests";
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

// The slots that the host sent with a wake save the look after it. They are older than any look under way, and may be
// older than the last one. False: a look is needed to find the reason of the wake.
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

bool AgentEnd::finish_pulls(TimeNs now) {
  bool did = false;
  while (auto ended = transfers_.take_pulled()) {
    did = true;
    events_.on_transfer(*this, ended->token, std::move(ended->status), now);
  }
  return did;
}

// ---- sleeping and waking

void AgentEnd::ask_wake(const wire::WakeAt& wake) noexcept {
  if (wake.word == WakeWord::now)
    wakes_.ask_now();
  else if (wake.word == WakeWord::replies)
    wakes_.ask_replies(wake.value, writer_.replies_written());
  else if (wakes_.ask(wake, lines_.written(wake.stream)))
    lines_.write_again(wake.stream);  // settled when it is written, like any other
}

bool AgentEnd::pay_wake() {
  if (!wakes_.take()) return false;
  ++counters_.wakes_sent;
  link_->wake();
  return true;
}

// After a request that no other is likely to follow: the answer, the flag of the sleep and the look after it are posted
// together, if the link keeps their order.
bool AgentEnd::may_sleep_with_flush() const noexcept {
  return mapped_ == nullptr && background_ && sleep_ == Sleep::awake && look_again_ && !looking_ && !fetching_ &&
         !writer_.writing() && !transfers_.pulling() && link_->traits().ordered &&
         answers_.ring().used(reply_head_) < answers_.ring().slots() / 2;
}

bool AgentEnd::fall_asleep(TimeNs now) {
  if (closed_ || closing_) return false;
  if (now - idle_since_ < idle_before_sleep_ns() || !answers_.empty()) return false;
  if (mapped_ != nullptr) {
    if (transfers_.pulling()) return false;
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
  if (wakes_.owed() && !writer_.writing()) return false;  // the next poll pays it
  // Over a link with delayed completion: write the flag, wait for the write, look once more, then sleep. The loop may
  // sleep at every stage, because each ends with an event of the link.
  switch (sleep_) {
    case Sleep::awake:
      if (looking_ || fetching_ || writer_.writing()) return true;
      if (look_again_) return false;
      sleep_ = Sleep::falling;
      writer_.flag_changed();
      writer_.write(request_head(), true);
      if (link_->traits().ordered) {
        sleep_ = Sleep::looking;
        post_look();
      }
      return true;
    case Sleep::falling:
      if (writer_.writing()) return true;
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

// The loop would sleep on a channel in this state, so an event of the link follows whatever happens to it. While it is
// held a request may wait in the ring, and its looks are counted.
bool AgentEnd::rest(TimeNs now) {
  if (!may_rest_ || held_ || !fall_asleep(now) || sleep_ != Sleep::asleep) return false;
  rests_ = !looking_ && !fetching_ && !transfers_.under_way() && !wakes_.owed() && !writer_.writing() &&
           !writer_.due(request_head());
  return rests_;
}

// ---- writes to the program's memory

void AgentEnd::reply_failure(std::uint64_t ticket, std::uint32_t stream, const Failure& failure) {
  end_rest();
  ++(is_miss(stream, failure.code) ? counters_.misses : counters_.failures);
  ++counters_.replies;
  scratch_.clear();
  encode(wire::Failed{stream, failure.code, failure.message}, scratch_);
  answers_.add(wire::ReplyKind::failed, ticket, scratch_, stream);
}

// Reads the host's position only while replies wait for room.
bool AgentEnd::compose_replies() {
  if (answers_.empty()) return false;
  if (mapped_ != nullptr)
    reply_head_ =
        word(mapped_ + ChannelLayout::tail_line + offsetof(wire::TailLine, reply_head)).load(std::memory_order_acquire);
  auto wrote = answers_.compose(reply_head_);
  if (!wrote) close(std::move(wrote).error());
  return wrote && *wrote;
}

bool AgentEnd::flush(TimeNs now) {
  if (mapped_ == nullptr && writer_.writing()) return false;  // later changes go with the next flush
  bool woke = pay_wake();  // before the next flush: flushes may follow one another without end
  const bool replied = compose_replies();
  if (closing_) return true;
  replies_full_.note(!answers_.empty(), now);
  const bool changed = replied || writer_.due(request_head());
  if (changed) writer_.write(request_head(), sleep_ != Sleep::awake);
  if (mapped_ == nullptr && !answers_.empty()) {  // only a look shows that the host has read replies
    look_again_ = true;
    rouse();
  }
  wakes_.settle_replies(writer_.replies_written(), !answers_.empty());
  if (!writer_.writing()) woke |= pay_wake();
  return woke || (changed && mapped_ != nullptr);
}

// ---- the end

void AgentEnd::close(Failure why, bool tells) {
  if (closing_ || closed_) return;
  end_rest();
  closing_ = true;
  tells_ = tells || (why.code != Error::closed && why.code != Error::peer_lost);
  why_ = std::move(why);
}

void AgentEnd::end(TimeNs now) {
  if (tells_) link_->refuse(why_);
  events_.on_closing(*this);
  link_->close();
  closed_ = true;
  look_out_.end(now, false);
  const Failure gone{why_.code, fmt::format("the channel ended: {}", why_.message)};
  for (const std::uint64_t token : transfers_.abandon()) events_.on_transfer(*this, token, tl::unexpected(gone), now);
  events_.on_closed(*this, why_, now);
}

}  // namespace offpath::channel
