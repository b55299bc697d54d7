// The agent end's writes to the program's memory: replies, completion lines, and the position up to which requests are
// read.
#include <algorithm>
#include <array>
#include <utility>

#include "base/ring_bytes.h"
#include "channel/agent_end.h"
#include "channel/agent_end_operations.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

namespace offpath::channel {

using wire::ChannelLayout;
using wire::CompletionLine;

AgentEnd::Line& AgentEnd::line(std::uint32_t stream) noexcept {
  OFP_ASSERT(stream < lines_.size());
  Line& line = lines_[stream];
  if (!line.dirty) {
    line.dirty = true;
    dirty_.push_back(stream);
  }
  return line;
}

void AgentEnd::set_pulled(std::uint32_t stream, std::uint64_t ticket) noexcept { line(stream).words.pulled = ticket; }
void AgentEnd::set_stored(std::uint32_t stream, std::uint64_t ticket) noexcept { line(stream).words.stored = ticket; }
void AgentEnd::set_credit(std::uint32_t stream, std::uint64_t total) noexcept { line(stream).words.credit = total; }
void AgentEnd::reset_line(std::uint32_t stream) noexcept {
  Line& reset = line(stream);
  // Wakes waiters of the stream that had this number before, so that they look again.
  wake_owed_ |= std::ranges::any_of(reset.wake_at, [](std::uint64_t value) { return value != nobody; });
  reset.wake_at.fill(nobody);
  reset.words = reset.written = {};
}

void AgentEnd::reply_bytes(wire::ReplyKind kind, std::uint64_t ticket, Bytes payload) {
  ++counters_.replies;
  // The slot has the lower half of the ticket. Any number of requests may have been posted since the reply's own.
  Answer& answer = answers_.emplace_back(Answer{kind, ticket, std::vector<std::byte>(wire::reply_head_bytes)});
  store(answer.payload.data(), static_cast<std::uint32_t>(ticket >> 32));
  answer.payload.insert(answer.payload.end(), payload.begin(), payload.end());
}

void AgentEnd::reply_failure(std::uint64_t ticket, std::uint32_t stream, const Failure& failure) {
  ++(is_miss(stream, failure.code) ? counters_.misses : counters_.failures);
  reply(wire::ReplyKind::failed, ticket, wire::Failed{stream, failure.code, failure.message});
  if (stream >= lines_.size()) return;
  answers_.back().failed_stream = stream;
  ++lines_[stream].failures;
}

bool AgentEnd::compose_replies() {
  if (answers_.empty()) return false;
  if (mapped_ != nullptr)
    reply_head_ =
        word(mapped_ + ChannelLayout::tail_line + offsetof(wire::TailLine, reply_head)).load(std::memory_order_acquire);
  if (reply_head_ > replies_.position()) {
    close({Error::protocol, fmt::format("the reply ring's head is {}, its tail {}", reply_head_, replies_.position())});
    return false;
  }
  bool wrote = false;
  while (!answers_.empty()) {
    const Answer& answer = answers_.front();
    const std::uint64_t all = wire::slots_for(answer.payload.size()), left = all - answer_slots_;
    const std::uint64_t free = replies_.slots() - replies_.used(reply_head_);
    if (free == 0 || (left > free && all <= wire::entry_slots_max(replies_.slots()))) break;
    const std::uint64_t count = std::min(left, free);
    replies_.write(static_cast<std::uint8_t>(answer.kind), answer.ticket, answer.payload, answer_slots_, count);
    answer_slots_ += count;
    wrote = true;
    if (count < left) break;
    if (answer.failed_stream < lines_.size() && --lines_[answer.failed_stream].failures == 0)
      (void)line(answer.failed_stream);  // written after the ring, with what was held back
    answers_.pop_front();
    answer_slots_ = 0;
  }
  return wrote;
}

bool AgentEnd::flush(TimeNs now) {
  if (mapped_ == nullptr && flushing_ > 0) return false;  // later changes go with the next flush
  bool woke = pay_wake();  // before the next flush: flushes may follow one another without end
  // Reads the host's position only while replies wait for room.
  const bool replied = compose_replies();
  if (closing_) return true;
  replies_full_.note(!answers_.empty(), now);
  const bool head_moved = request_head() != head_written_;
  const bool changed = replied || !dirty_.empty() || head_moved || agent_line_dirty_;
  if (changed) mapped_ != nullptr ? flush_mapped() : flush_remote();
  if (mapped_ == nullptr && !answers_.empty()) {  // only a look shows that the host has read replies
    look_again_ = true;
    rouse();
  }
  if (reply_written_ > wake_beyond_) {
    wake_beyond_ = nobody;
    wake_owed_ = true;
  }
  wake_owed_ |= std::exchange(wake_now_, false);
  // While answers find no room, no requests are taken, not even for a wake: so a full ring wakes its reader once.
  if (!answers_.empty() && std::exchange(full_at_, reply_written_) != reply_written_) wake_owed_ = true;
  if (flushing_ == 0) woke |= pay_wake();
  return woke || (changed && mapped_ != nullptr);
}

// The new contents of a dirty line. A failure is in the ring before `pulled` or `stored` passes its ticket: both are
// held back while one of the stream's failures finds no room there. Credit is not, because a program that only posts
// needs it.
const CompletionLine& AgentEnd::publish(std::uint32_t stream) noexcept {
  Line& line = lines_[stream];
  line.dirty = false;
  if (line.failures == 0)
    line.written = line.words;
  else
    line.written.credit = line.words.credit;
  settle_wakes(line);
  return line.written;
}

void AgentEnd::flush_mapped() {
  if (replies_.position() != reply_written_) {
    reply_written_ = replies_.position();
    word(mapped_ + ChannelLayout::reply_tail_line).store(reply_written_, std::memory_order_release);
  }
  for (const std::uint32_t stream : dirty_) {
    const CompletionLine& words = publish(stream);
    std::byte* to = mapped_ + layout_.completion_line(stream);
    word(to + offsetof(CompletionLine, credit)).store(words.credit, std::memory_order_release);
    word(to + offsetof(CompletionLine, pulled)).store(words.pulled, std::memory_order_release);
    word(to + offsetof(CompletionLine, stored)).store(words.stored, std::memory_order_release);
  }
  dirty_.clear();
  agent_line_dirty_ = false;
  head_written_ = request_head();
  word(mapped_ + ChannelLayout::agent_line).store(head_written_, std::memory_order_release);
}

// Reply slots, then their tail, then lines: one write if the link keeps the order of its pieces, otherwise three.
void AgentEnd::flush_remote() {
  const auto [at_slot, first, second] =
      ring_runs(layout_.reply_slots, reply_written_, replies_.position() - reply_written_);
  flush_buffer_.resize((2 + dirty_.size()) * 64);
  std::vector<link::WritePiece> pieces;
  const auto write = [&] {
    ++flushing_;
    link_->write(token_of(Operation::flush, 0), pieces);
    pieces.clear();
  };
  const bool apart = !link_->traits().ordered;
  if (first > 0) {
    pieces.push_back({wire::channel_segment, layout_.reply_ring() + at_slot * wire::slot_bytes,
                      reply_mirror_.get() + at_slot * wire::slot_bytes, first * wire::slot_bytes});
    if (second > 0)
      pieces.push_back({wire::channel_segment, layout_.reply_ring(), reply_mirror_.get(), second * wire::slot_bytes});
    if (apart) write();
    reply_written_ = replies_.position();
    store(flush_buffer_.data(), wire::ReplyTailLine{reply_written_, {}});
    pieces.push_back(
        {wire::channel_segment, ChannelLayout::reply_tail_line, flush_buffer_.data(), sizeof(wire::ReplyTailLine)});
    if (apart) write();
  }
  std::byte* at = flush_buffer_.data() + 64;
  for (const std::uint32_t stream : dirty_) {
    store(at, publish(stream));
    pieces.push_back({wire::channel_segment, layout_.completion_line(stream), at, sizeof(CompletionLine)});
    at += 64;
  }
  dirty_.clear();
  head_written_ = request_head();
  agent_line_dirty_ = false;
  const wire::AgentLine agent_line{head_written_, sleep_ != Sleep::awake ? 1ull : 0ull, {}};
  store(at, agent_line);
  pieces.push_back({wire::channel_segment, ChannelLayout::agent_line, at, sizeof agent_line});
  write();
}

}  // namespace offpath::channel
