#include "channel/agent/line_writer.h"

#include "base/ring_bytes.h"
#include "wire/region.h"

namespace offpath::channel {

using wire::ChannelLayout;
using wire::CompletionLine;

void LineWriter::write(std::uint64_t request_head, bool asleep) {
  mapped_ != nullptr ? store_lines(request_head) : send_lines(request_head, asleep);
}

void LineWriter::store_lines(std::uint64_t request_head) {
  if (answers_.ring().position() != replies_written_) {
    replies_written_ = answers_.ring().position();
    word(mapped_ + ChannelLayout::reply_tail_line).store(replies_written_, std::memory_order_release);
  }
  for (const std::uint32_t stream : lines_.changed()) {
    const CompletionLine& words = publish(stream);
    std::byte* to = mapped_ + layout_.completion_line(stream);
    word(to + offsetof(CompletionLine, credit)).store(words.credit, std::memory_order_release);
    word(to + offsetof(CompletionLine, pulled)).store(words.pulled, std::memory_order_release);
    word(to + offsetof(CompletionLine, stored)).store(words.stored, std::memory_order_release);
  }
  lines_.all_published();
  flag_changed_ = false;
  head_written_ = request_head;
  word(mapped_ + ChannelLayout::agent_line).store(head_written_, std::memory_order_release);
}

// Reply slots, then their tail, then lines: one write if the link keeps the order of its pieces, otherwise three.
void LineWriter::send_lines(std::uint64_t request_head, bool asleep) {
  const std::uint64_t position = answers_.ring().position();
  const auto [at_slot, first, second] = ring_runs(layout_.reply_slots, replies_written_, position - replies_written_);
  buffer_.resize((2 + lines_.changed().size()) * 64);
  std::vector<link::WritePiece> pieces;
  const auto write = [&] {
    ++writes_;
    link_.write(token_of(Operation::flush, 0), pieces);
    pieces.clear();
  };
  const bool apart = !link_.traits().ordered;
  if (first > 0) {
    pieces.push_back({wire::channel_segment, layout_.reply_ring() + at_slot * wire::slot_bytes, answers_.slot(at_slot),
                      first * wire::slot_bytes});
    if (second > 0)
      pieces.push_back({wire::channel_segment, layout_.reply_ring(), answers_.slot(0), second * wire::slot_bytes});
    if (apart) write();
    replies_written_ = position;
    store(buffer_.data(), wire::ReplyTailLine{replies_written_, {}});
    pieces.push_back(
        {wire::channel_segment, ChannelLayout::reply_tail_line, buffer_.data(), sizeof(wire::ReplyTailLine)});
    if (apart) write();
  }
  std::byte* at = buffer_.data() + 64;
  for (const std::uint32_t stream : lines_.changed()) {
    store(at, publish(stream));
    pieces.push_back({wire::channel_segment, layout_.completion_line(stream), at, sizeof(CompletionLine)});
    at += 64;
  }
  lines_.all_published();
  head_written_ = request_head;
  flag_changed_ = false;
  const wire::AgentLine agent_line{head_written_, asleep ? 1ull : 0ull, {}};
  store(at, agent_line);
  pieces.push_back({wire::channel_segment, ChannelLayout::agent_line, at, sizeof agent_line});
  write();
}

}  // namespace offpath::channel
